/**
 * This server's devices: memory against its real limit, use, the last ten minutes, and the programs on the device.
 */
import * as React from 'react';

import { Chart, Table } from './chart';
import {
  besideText,
  isOld,
  memoryOf,
  memoryPercent,
  memoryText,
  notMeasurable,
  reasonText,
  sourceText,
  useText
} from './format';
import { Holders } from './holders';
import type { GpuReading, Snapshot } from './messages';
import { Meter } from './meter';
import type { IGpuModel } from './model';
import type { IShown } from './seen';
import { belowText, decidedBelow } from './signs';
import { duration, percent, secondsSince } from './units';
import { Word } from './words';

/** If there are more devices, each is one line that can be expanded. */
const MANY = 4;

interface IDevices extends IShown {
  model: IGpuModel;
  snapshot: Snapshot;
  /** The server's message about the GPU, translated. */
  said: string;
}

export function Devices(props: IDevices): JSX.Element {
  const { snapshot, said, trans } = props;
  const { gpus } = snapshot;
  if (gpus.length === 1) {
    return <>{gpus.map(reading => device(reading, props))}</>;
  }
  return (
    <>
      {said === '' ? null : <p className="jp-gpu-Warning">{said}</p>}
      {gpus.length > MANY ? (
        <p className="jp-gpu-Note">
          {trans.__('%1 GPUs: memory, and use on the right.', gpus.length)}
        </p>
      ) : null}
      {gpus.map((reading, index) => {
        const name = trans.__('GPU %1', index + 1);
        return gpus.length > MANY ? (
          <Line key={reading.uuid} name={name} reading={reading} {...props} />
        ) : (
          <div key={reading.uuid} role="group" aria-label={name}>
            <h3>{[name, reading.profile ?? reading.product].join(' · ')}</h3>
            {device(reading, { ...props, said: '' })}
          </div>
        );
      })}
    </>
  );
}

function device(reading: GpuReading, props: IDevices): JSX.Element {
  return <Device key={reading.uuid} {...props} reading={reading} />;
}

function Device({
  reading,
  model,
  snapshot,
  said,
  ...shown
}: IDevices & { reading: GpuReading }): JSX.Element {
  const { trans, now, unit } = shown;
  const { server } = snapshot;
  const memory = memoryOf(reading);
  const { shared } = reading;
  const old = isOld(reading, snapshot, now);
  const points = model.history.get(reading.uuid) ?? [];
  const labels = {
    memory: shared ? trans.__('Your memory') : trans.__('Memory'),
    use: shared ? trans.__('In use, all users') : trans.__('In use')
  };
  const texts = { memory: memoryText(memory, unit, trans), use: useText(reading, trans) };
  // if use can never be measured, its row already says so
  const note =
    notMeasurable(reading) && reading.memory_used_bytes !== null
      ? ''
      : reasonText(reading.note, now, trans);
  const beside = besideText(reading, unit, trans);
  const below = decidedBelow(reading, server);
  return (
    <div className={old ? 'jp-gpu-Device jp-mod-old' : 'jp-gpu-Device'}>
      {old ? (
        <p className="jp-gpu-Warning">
          {trans.__('Numbers from %1 ago.', duration(secondsSince(reading.at, now), trans))} {said}
        </p>
      ) : said === '' ? null : (
        <p className="jp-gpu-Warning">{said}</p>
      )}
      {reading.profile === null || shared || reading.product === '' ? null : (
        <p className="jp-gpu-Note">
          {trans.__('Your own part of one %1, cut by hardware (MIG).', reading.product)}
        </p>
      )}
      <div className="jp-gpu-Row">
        <span className="jp-gpu-Label">
          <Word
            word={trans.__('Memory')}
            sentence={trans.__(
              'What your programs hold of the GPU’s memory, and all there is for you. A program that wants more ends with an error.'
            )}
          />
        </span>
        <span>{texts.memory}</span>
      </div>
      <Meter label={trans.__('Memory')} text={texts.memory} percent={memoryPercent(memory)} />
      <Chart
        points={points}
        field="memory"
        label={labels.memory}
        value={texts.memory}
        old={old}
        limit={memory.limit ?? reading.memory_total_bytes ?? 0}
        {...shown}
      />
      {beside === '' ? null : <p className="jp-gpu-Note">{beside}</p>}
      <div className="jp-gpu-Row">
        <span className="jp-gpu-Label">
          <Word
            word={labels.use}
            sentence={trans.__(
              'How busy the GPU is. 0 % while a cell runs: it computes on the CPU, or waits for data.'
            )}
          />
        </span>
        <span>{texts.use}</span>
      </div>
      <Meter label={labels.use} text={texts.use} percent={reading.used_percent} />
      {notMeasurable(reading) ? null : (
        <Chart
          points={points}
          field="used"
          label={labels.use}
          value={texts.use}
          old={old}
          limit={100}
          below={below}
          {...shown}
        />
      )}
      {below === null ? null : <p className="jp-gpu-Note">{belowText(below, trans)}</p>}
      {reading.source === 'dcgm' && reading.used_percent !== null ? (
        <p className="jp-gpu-Note">{sourceText(reading, server, now, trans)}</p>
      ) : null}
      {note === '' ? null : <p className="jp-gpu-Note">{note}</p>}
      <Holders reading={reading} model={model} {...shown} />
      <Opened summary={trans.__('Numbers')}>
        {() => <Table points={points} memory={labels.memory} use={labels.use} {...shown} />}
      </Opened>
      <Opened summary={trans.__('About this GPU')}>
        {() => <About reading={reading} snapshot={snapshot} {...shown} />}
      </Opened>
    </div>
  );
}

/** Details: the card, further counters, and the source of the use. */
function About({
  reading,
  snapshot,
  trans,
  now
}: IShown & { reading: GpuReading; snapshot: Snapshot }): JSX.Element {
  const { counters } = reading;
  const rows: [string, string][] = [
    [trans.__('Card'), reading.product || trans.__('unknown')],
    ...(reading.profile === null
      ? []
      : [[trans.__('MIG profile'), reading.profile] as [string, string]])
  ];
  for (const [label, value] of [
    [trans.__('Multiprocessors at work'), counters?.sm_percent],
    [trans.__('Tensor cores'), counters?.tensor_percent],
    [trans.__('Memory bandwidth'), counters?.dram_percent]
  ] as const) {
    if (typeof value === 'number') {
      rows.push([label, percent(value, trans)]);
    }
  }
  return (
    <>
      <dl>
        {rows.map(([label, value]) => (
          <div className="jp-gpu-Row" key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <p>{sourceText(reading, snapshot.server, now, trans)}</p>
    </>
  );
}

/** One device of many: a button, a bar and its numbers; expanded, the whole device. */
function Line({
  name,
  reading,
  ...props
}: IDevices & { name: string; reading: GpuReading }): JSX.Element {
  const [open, setOpen] = React.useState(false);
  const { snapshot, trans, now, unit } = props;
  const memory = memoryOf(reading);
  const text = memory.used === null ? trans.__('unknown') : memoryText(memory, unit, trans);
  const old = isOld(reading, snapshot, now);
  return (
    <>
      <div className={old ? 'jp-gpu-OfMany jp-mod-old' : 'jp-gpu-OfMany'}>
        <button
          type="button"
          className="jp-gpu-Small"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          {name}
        </button>
        <Meter label={trans.__('%1, memory', name)} text={text} percent={memoryPercent(memory)} />
        <span>{text}</span>
        <span>
          {old
            ? trans.__('%1 old', duration(secondsSince(reading.at, now), trans))
            : percent(reading.used_percent, trans)}
        </span>
      </div>
      {open ? device(reading, { ...props, said: '' }) : null}
    </>
  );
}

/** A `details` element whose content is rendered only while it is open. */
function Opened({
  summary,
  children
}: {
  summary: string;
  children: () => JSX.Element;
}): JSX.Element {
  const [open, setOpen] = React.useState(false);
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open ? children() : null}
    </details>
  );
}
