/**
 * This server's programs on a device, each with a button that shuts its kernel down.
 */
import * as React from 'react';

import { errorText } from './api';
import { reasonText } from './format';
import type { GpuReading, Holder } from './messages';
import type { IGpuModel } from './model';
import type { IShown } from './seen';
import { duration, secondsSince, size } from './units';

export function Holders({
  reading,
  model,
  ...shown
}: IShown & { reading: GpuReading; model: IGpuModel }): JSX.Element {
  const { trans, now } = shown;
  const { holders, holders_note } = reading;
  const note =
    holders_note !== null
      ? reasonText(holders_note, now, trans)
      : holders === null
        ? trans.__('Which notebook uses it is not known.')
        : holders.length === 0
          ? trans.__('No notebook or program of yours uses it.')
          : '';
  return (
    <>
      {holders && holders.length > 0 ? (
        <>
          <p className="jp-gpu-Label">{trans.__('Used by')}</p>
          <ul aria-label={trans.__('Used by')}>
            {holders.map(holder => (
              <One
                key={holder.kernel || `${holder.path} ${holder.name}`}
                holder={holder}
                model={model}
                {...shown}
              />
            ))}
          </ul>
        </>
      ) : null}
      {note === '' ? null : <p className="jp-gpu-Note">{note}</p>}
    </>
  );
}

function One({
  holder,
  model,
  trans,
  now,
  unit
}: IShown & { holder: Holder; model: IGpuModel }): JSX.Element {
  const [refused, setRefused] = React.useState('');
  const { name, memory_bytes, idle_since } = holder;

  async function end(): Promise<void> {
    setRefused('');
    try {
      await model.endKernel(holder); // after a question to the user
    } catch (error) {
      setRefused(errorText(error));
    }
  }

  return (
    <li>
      <div className="jp-gpu-Row">
        <span className="jp-gpu-Name" title={holder.path || name}>
          {name}
        </span>
        <span>
          {memory_bytes === null
            ? trans.__('not known how much')
            : `${size(memory_bytes, unit, 1, trans)}\u00a0${unit}`}
        </span>
      </div>
      {idle_since !== null || holder.kernel !== '' ? (
        <div className="jp-gpu-Row">
          <span className="jp-gpu-Detail">
            {idle_since === null
              ? trans.__('running')
              : trans.__('idle for %1', duration(secondsSince(idle_since, now), trans))}
          </span>
          {holder.kernel === '' ? null : (
            <button
              type="button"
              className="jp-gpu-Small"
              aria-label={trans.__('Shut down the kernel of %1', name)}
              onClick={() => void end()}
            >
              {trans.__('Shut down its kernel')}
            </button>
          )}
        </div>
      ) : null}
      {refused === '' ? null : (
        <p className="jp-gpu-Warning" role="status">
          {refused}
        </p>
      )}
    </li>
  );
}
