/**
 * The last ten minutes of each device, in the server's time, for the charts. Pure.
 */
import type { GpuReading, Series } from './messages';

export const HISTORY_MS = 600_000;
// the server reads every 10 s while nobody looks; only a longer interval is a gap
export const SLOWEST_PERIOD_MS = 10_000;
const PERIODS_TO_A_GAP = 3;
// the time of a repeated reading differs a little; two readings are a second apart
const SAME_READING_MS = 500;

/** One reading; null means not known, and interrupts the line. */
export interface Point {
  /** Server's time in ms. */
  at: number;
  used: number | null;
  /** Bytes. */
  memory: number | null;
}

export type History = ReadonlyMap<string, Point[]>;

/** The history as the server sent it; `at` is the message's time in ms. */
export function fromSeries(series: Series[], at: number): History {
  const history = new Map<string, Point[]>();
  for (const one of series) {
    const points: Point[] = [];
    one.ages_seconds.forEach((age, place) => {
      const point = {
        at: at - age * 1000,
        used: one.used_percent[place] ?? null,
        memory: one.memory_bytes[place] ?? null
      };
      append(points, point, SLOWEST_PERIOD_MS);
    });
    history.set(one.uuid, trimmed(points, at));
  }
  return history;
}

/**
 * The history with the readings of another message; known readings are skipped.
 * @param periodMs - present interval between readings.
 */
export function withReadings(
  history: History,
  readings: GpuReading[],
  now: number,
  periodMs: number
): History {
  const longer = new Map<string, Point[]>();
  for (const [uuid, points] of history) {
    const rest = trimmed(points, now);
    if (rest.length > 0) {
      longer.set(uuid, rest);
    }
  }
  for (const reading of readings) {
    const points = [...(longer.get(reading.uuid) ?? [])];
    const point = {
      at: Date.parse(reading.at),
      used: reading.used_percent,
      memory: ownMemory(reading)
    };
    append(points, point, periodMs);
    longer.set(reading.uuid, points);
  }
  return longer;
}

/** The history without the memory of this device: earlier readings were those of another user. */
export function withoutMemory(history: History, uuid: string): History {
  const points = history.get(uuid) ?? [];
  return new Map(history).set(
    uuid,
    points.map(point => ({ ...point, memory: null }))
  );
}

/** This server's memory on a device; on a shared device only that of its own programs. */
export function ownMemory(reading: GpuReading): number | null {
  return reading.shared ? reading.own_memory_bytes : reading.memory_used_bytes;
}

/** The history after the server's clock was changed by `jump` ms. */
export function shifted(history: History, ms: number): History {
  return new Map(
    [...history].map(([uuid, points]) => [
      uuid,
      points.map(point => ({ ...point, at: point.at + ms }))
    ])
  );
}

function append(points: Point[], point: Point, periodMs: number): void {
  const last = points[points.length - 1];
  if (last && point.at < last.at + SAME_READING_MS) {
    return;
  }
  if (last && point.at - last.at > PERIODS_TO_A_GAP * periodMs) {
    points.push({ at: last.at + 1, used: null, memory: null });
  }
  points.push(point);
}

function trimmed(points: Point[], now: number): Point[] {
  const first = points.findIndex(point => point.at >= now - HISTORY_MS);
  return first < 0 ? [] : points.slice(first);
}
