/**
 * Bytes, percents and times as the reader's language and clock write them. Not here: what they say about the GPU.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

export type Unit = 'GiB' | 'GB';

const BYTES: Record<Unit, number> = { GiB: 1024 ** 3, GB: 1e9 };

/** A number as the reader's language writes it. */
export function number(value: number, digits = 0): string {
  return value.toLocaleString(undefined, { maximumFractionDigits: digits });
}

/** A count of bytes in `unit`, without the unit; two digits where one would say zero; null is "unknown". */
export function size(
  bytes: number | null,
  unit: Unit,
  digits: number,
  trans: TranslationBundle
): string {
  if (bytes === null) {
    return trans.__('unknown');
  }
  const value = bytes / BYTES[unit];
  return number(value, value < 0.1 ? 2 : digits);
}

export function percent(value: number | null, trans: TranslationBundle): string {
  return value === null ? trans.__('unknown') : trans.__('%1\u00a0%', number(value));
}

/** A length of time: "50 s", "9 min", "2 h 10 min"; `up` rounds up, for limits. */
export function duration(seconds: number, trans: TranslationBundle, up = false): string {
  const whole = Math.max(0, up ? Math.ceil(seconds) : Math.floor(seconds));
  if (whole < 60) {
    return trans.__('%1\u00a0s', whole);
  }
  const minutes = up ? Math.ceil(whole / 60) : Math.floor(whole / 60);
  if (minutes < 60) {
    return trans.__('%1\u00a0min', minutes);
  }
  const rest = minutes % 60;
  const hours = Math.floor(minutes / 60);
  return rest === 0 ? trans.__('%1\u00a0h', hours) : trans.__('%1\u00a0h %2\u00a0min', hours, rest);
}

/** A time of day as the reader's clock writes it; with its weekday when it is not today. */
export function clock(at: string | number, now: number): string {
  const date = new Date(at);
  const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  const today = new Date(now).toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString(undefined, time)
    : date.toLocaleString(undefined, { weekday: 'short', ...time });
}
