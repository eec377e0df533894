/**
 * The last ten minutes as values for a chart's line, a sentence and a table.
 *
 * Pure. A value that is not known has no line, number or row, and is never shown as zero.
 */
import type { Point } from './history';

export type Field = 'used' | 'memory';

/** Time span of a chart, in ms. */
export const SPAN_MS = 600_000;

/** Size of a chart in its own units, small enough that whole numbers are precise: they are formatted faster. */
export const WIDTH = 2560;
export const HEIGHT = 320;

/** Number of columns: as many as a narrow panel has pixels. */
export const COLUMNS = 256;

const COLUMN_MS = SPAN_MS / COLUMNS;

export interface Range {
  lowest: number;
  highest: number;
}

/** One minute of the table; null means not known. */
export interface Minute {
  at: number;
  used: Range | null;
  memory: Range | null;
}

/**
 * A chart's line and the area below it, as SVG paths.
 *
 * Each column is drawn from its lowest to its highest reading, so that a short peak is still seen.
 * @param top - the value at the upper edge.
 */
export function paths(
  points: readonly Point[],
  field: Field,
  now: number,
  top: number
): { line: string; area: string } {
  const start = now - SPAN_MS;
  const x = (at: number): number => Math.round(((at - start) / SPAN_MS) * WIDTH);
  let line = '';
  let area = '';
  for (const run of runs(points, field, start)) {
    const drawn = run.map(([at, value]) => {
      const share = top > 0 ? Math.min(1, Math.max(0, value / top)) : 0;
      return `${x(at)} ${Math.round(HEIGHT * (1 - share))}`;
    });
    const all = drawn.join('L');
    // a single reading is a dot: a line without length, with round ends
    line += `M${all}${drawn.length > 1 ? '' : 'h0'}`;
    area += `M${x(run[0]?.[0] ?? start)} ${HEIGHT}L${all}V${HEIGHT}Z`;
  }
  return { line, area };
}

/** A limit is drawn if the highest value is at least this share of it. */
const IN_SIGHT = 2 / 3;

/** The value at the upper edge: the highest of the ten minutes, or a limit that it came near to. */
export function topOf(limit: number, highest: number): number {
  return highest === 0 || highest >= IN_SIGHT * limit ? Math.max(limit, highest) : highest;
}

/** The lowest and the highest known value of the last ten minutes; null if none is known. */
export function range(points: readonly Point[], field: Field, now: number): Range | null {
  let found: Range | null = null;
  for (const point of points) {
    if (point.at >= now - SPAN_MS) {
      found = wider(found, point[field]);
    }
  }
  return found;
}

/** One row per minute, newest first. */
export function minutes(points: readonly Point[], now: number): Minute[] {
  const rows = new Map<number, Minute>();
  for (const point of points) {
    if (point.at < now - SPAN_MS) {
      continue;
    }
    const at = Math.floor(point.at / 60_000) * 60_000;
    const row = rows.get(at) ?? { at, used: null, memory: null };
    row.used = wider(row.used, point.used);
    row.memory = wider(row.memory, point.memory);
    rows.set(at, row);
  }
  return [...rows.values()].sort((one, other) => other.at - one.at);
}

function wider(range: Range | null, value: number | null): Range | null {
  if (value === null) {
    return range;
  }
  return range === null
    ? { lowest: value, highest: value }
    : { lowest: Math.min(range.lowest, value), highest: Math.max(range.highest, value) };
}

/** Runs of known readings as [ms, value]; of each column only the lowest and the highest reading. */
function runs(points: readonly Point[], field: Field, start: number): [number, number][][] {
  const found: [number, number][][] = [];
  let run: [number, number][] | null = null;
  let column = -1;
  for (const point of points) {
    const value = point[field];
    if (value === null || point.at < start) {
      run = null; // the next reading begins a new line
      continue;
    }
    if (run === null) {
      run = [];
      found.push(run);
    }
    const here = Math.floor(point.at / COLUMN_MS); // aligned to the clock, so that columns move with time and do not flicker
    const one = run[run.length - 2];
    const other = run[run.length - 1];
    if (here !== column || other === undefined) {
      run.push([point.at, value]);
      column = here;
    } else if (one === undefined || Math.floor(one[0] / COLUMN_MS) !== here) {
      run.push([point.at, value]);
    } else if (between(value, one[1], other[1])) {
      continue;
    } else if (between(other[1], one[1], value)) {
      run[run.length - 1] = [point.at, value];
    } else {
      run.splice(-2, 2, other, [point.at, value]);
    }
  }
  return found;
}

function between(value: number, one: number, other: number): boolean {
  return value >= Math.min(one, other) && value <= Math.max(one, other);
}
