/**
 * Formats bytes, percentages and times for the reader's language and clock.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

export type Unit = 'GiB' | 'GB';

const BYTES: Record<Unit, number> = { GiB: 1024 ** 3, GB: 1e9 };

// an earlier or later day than that may have the weekday of today
const WEEKDAY_MS = 6 * 86_400_000;

// the browser's language, until JupyterLab's is known
let language: string | undefined;
let hourCycle: Intl.DateTimeFormatOptions['hourCycle'];

/**
 * Set the language in which numbers and times are formatted.
 * @param code - JupyterLab's language; an invalid one is ignored.
 * @param own - the browser's languages: a variant of the same language is preferred, and its 12 or 24 hours are used.
 */
export function speak(code: string, own: readonly string[]): void {
  const [kind] = code.split('-');
  const chosen = own.find(one => one.split('-')[0] === kind) ?? code;
  try {
    [language] = Intl.getCanonicalLocales(chosen);
  } catch {
    language = undefined;
  }
  hourCycle = new Intl.DateTimeFormat(undefined, { hour: 'numeric' }).resolvedOptions().hourCycle;
}

/** Seconds since this time; 0 if it is to come. */
export function secondsSince(at: string, now: number): number {
  return Math.max(0, (now - Date.parse(at)) / 1000);
}

/** A number in the reader's language. */
export function number(value: number, digits = 0): string {
  return value.toLocaleString(language, { maximumFractionDigits: digits });
}

/** A number of bytes in `unit`, without the unit; two digits if one would show zero; "unknown" for null. */
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

/** A duration: "50 s", "9 min", "2 h 10 min"; `up` rounds up, for limits. */
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

/** A configured duration, precise to the second, as the server writes it: "1 min 30 s", "2 h 10 min". */
export function exactly(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [
    Math.floor(whole / 3600),
    Math.floor(whole / 60) % 60,
    whole % 60
  ];
  const parts = hours > 0 ? [trans.__('%1\u00a0h', hours)] : [];
  if (minutes > 0) {
    parts.push(trans.__('%1\u00a0min', minutes));
  }
  if (parts.length === 0 || (rest > 0 && hours === 0)) {
    parts.push(trans.__('%1\u00a0s', rest));
  }
  return parts.join(' ');
}

/** A time of day in the reader's format; with the weekday if it is not today, and the date from six days away. */
export function clock(at: string | number, now: number): string {
  const date = new Date(at);
  const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', hourCycle };
  if (new Date(now).toDateString() === date.toDateString()) {
    return date.toLocaleTimeString(language, time);
  }
  const far = Math.abs(date.getTime() - now) >= WEEKDAY_MS;
  const day: Intl.DateTimeFormatOptions = far ? { day: 'numeric', month: 'short' } : {};
  return date.toLocaleString(language, { weekday: 'short', ...day, ...time });
}
