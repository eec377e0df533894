/**
 * The last ten minutes of one value as an SVG line, and of a device as a table. The values come from `series.ts`.
 */
import * as React from 'react';

import { chartText } from './format';
import type { Point } from './history';
import { type Field, HEIGHT, minutes, paths, type Range, range, topOf, WIDTH } from './series';
import type { IShown } from './seen';
import { clock, percent, size } from './units';

interface IChart extends IShown {
  points: readonly Point[];
  field: Field;
  label: string;
  /** The present value, or the last known one, in words. */
  value: string;
  old: boolean;
  /** The maximum possible value; 0 if it is not known. */
  limit: number;
  /** Value below which the GPU counts as idle, drawn as a line; null for no line. */
  below?: number | null;
}

export function Chart(props: IChart): JSX.Element {
  const { points, field, label, value, trans, now } = props;
  const found = range(points, field, now);
  const { limit } = props;
  // a percentage is drawn against 100 %; memory against what was used, which may be little of the card
  const top = field === 'used' ? limit : topOf(limit, found?.highest ?? 0);
  const { line, area } = paths(points, field, now, top);
  const written = (number: number): string => write(number, field, props);
  return (
    <div
      className="jp-gpu-Chart"
      role="img"
      aria-label={chartText(label, value, props.old, found, written, trans)}
    >
      {found === null ? (
        <span>{trans.__('No numbers from the last 10 min')}</span>
      ) : (
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          <path className="jp-gpu-Area" d={area} />
          <path className="jp-gpu-Line" d={line} />
          {field === 'memory' && limit > 0 && limit <= top ? (
            <path className="jp-gpu-Limit" d={`M0 ${HEIGHT * (1 - limit / top)}H${WIDTH}`} />
          ) : null}
          {props.below ? (
            <path className="jp-gpu-Limit" d={`M0 ${HEIGHT * (1 - props.below / top)}H${WIDTH}`} />
          ) : null}
        </svg>
      )}
      <div className="jp-gpu-Axis" aria-hidden="true">
        <span>{trans.__('10 min ago')}</span>
        <span>{trans.__('0 to %1', written(top))}</span>
        <span>{trans.__('now')}</span>
      </div>
    </div>
  );
}

/** The numbers of the charts, one row per minute. */
export function Table({
  points,
  memory,
  use,
  ...shown
}: IShown & { points: readonly Point[]; memory: string; use: string }): JSX.Element {
  const { trans, now } = shown;
  const cell = (found: Range | null, field: Field): string => {
    if (found === null) {
      return trans.__('unknown');
    }
    const [low, high] = [write(found.lowest, field, shown), write(found.highest, field, shown)];
    return low === high ? low : trans.__('%1 to %2', low, high);
  };
  return (
    <table>
      <caption>{trans.__('Lowest and highest in each minute, the newest first.')}</caption>
      <thead>
        <tr>
          <th scope="col">{trans.__('Time')}</th>
          <th scope="col">{memory}</th>
          <th scope="col">{use}</th>
        </tr>
      </thead>
      <tbody>
        {minutes(points, now).map(minute => (
          <tr key={minute.at}>
            <th scope="row">{clock(minute.at, now)}</th>
            <td>{cell(minute.memory, 'memory')}</td>
            <td>{cell(minute.used, 'used')}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function write(value: number, field: Field, { trans, unit }: IShown): string {
  return field === 'used' ? percent(value, trans) : `${size(value, unit, 2, trans)}\u00a0${unit}`;
}
