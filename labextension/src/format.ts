/**
 * Numbers, times and states in words. Pure: no document, no clock, no request; the time now is an argument.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { Countdown, GpuReading, Keep, OfferState, ServerState, Snapshot } from './messages';

const GIB = 1024 ** 3;

/** Readings older than this are shown with their age, in seconds. */
export const STALE_SECONDS = 15;

/** The status bar shows the countdown below this, in seconds. */
export const COUNTDOWN_IN_STATUS_SECONDS = 600;

/** A count of bytes in GiB, without its unit; null is "unknown". */
export function gib(bytes: number | null, digits: number, trans: TranslationBundle): string {
  if (bytes === null) {
    return trans.__('unknown');
  }
  return (bytes / GIB).toLocaleString(undefined, {
    maximumFractionDigits: digits
  });
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
export function clock(iso: string, now: number): string {
  const at = new Date(iso);
  const time: Intl.DateTimeFormatOptions = {
    hour: '2-digit',
    minute: '2-digit'
  };
  const today = new Date(now).toDateString() === at.toDateString();
  return today
    ? at.toLocaleTimeString(undefined, time)
    : at.toLocaleString(undefined, { weekday: 'short', ...time });
}

/** A sentence of the server with its UTC times in the reader's time, and no line break between number and unit. */
export function localTimes(sentence: string, now: number): string {
  return sentence
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, iso => clock(iso, now))
    .replace(/(\d) (?=(?:s|min|h)\b)/g, '$1\u00a0');
}

/** What the panel has to show at all. */
export type View = 'loading' | 'absent' | 'lost' | 'cpu' | 'problem' | 'gpu';

/** Which view a snapshot calls for; `connection` counts only while there is none. */
export function viewOf(
  snapshot: Snapshot | null,
  connection: 'connecting' | 'open' | 'lost' | 'absent'
): View {
  if (snapshot === null) {
    return connection === 'absent' || connection === 'lost' ? connection : 'loading';
  }
  if (snapshot.gpus.length > 0) {
    return 'gpu';
  }
  if (snapshot.state === 'starting') {
    return 'loading';
  }
  return snapshot.state === 'no-gpu' ? 'cpu' : 'problem';
}

/** How old a reading is, in seconds; `now` is the server's time. */
export function age(reading: GpuReading, now: number): number {
  return Math.max(0, (now - Date.parse(reading.at)) / 1000);
}

/** Memory as a share of what there really is, 0 to 100; null is not known. */
export function memoryPercent(reading: GpuReading): number | null {
  if (reading.memory_used_bytes === null || !reading.memory_total_bytes) {
    return null;
  }
  const share = reading.memory_used_bytes / reading.memory_total_bytes;
  return Math.min(100, Math.max(0, share * 100));
}

/** "3.1 of 4.75 GiB" */
export function memoryWords(reading: GpuReading, trans: TranslationBundle): string {
  return trans.__('%1 of %2 GiB', used(reading, trans), gib(reading.memory_total_bytes, 2, trans));
}

/** Used memory in GiB: two digits where one would say zero. */
function used(reading: GpuReading, trans: TranslationBundle): string {
  const bytes = reading.memory_used_bytes;
  return gib(bytes, bytes !== null && bytes < GIB / 10 ? 2 : 1, trans);
}

/** "84 %", or why there is no number. */
export function useWords(reading: GpuReading, trans: TranslationBundle): string {
  if (reading.used_percent !== null) {
    return trans.__('%1 %', Math.round(reading.used_percent));
  }
  return reading.source === 'none' && reading.memory_used_bytes !== null
    ? trans.__('not measurable on this card')
    : trans.__('unknown');
}

/** This server has a part of its device only: what is measured is the device, with everybody on it. */
export function isShared(snapshot: Snapshot): boolean {
  const share = snapshot.server?.share ?? 1;
  return share > 0 && share < 1;
}

/** What a share of a device is, and that the numbers are not its own. */
export function shareWords(server: ServerState, trans: TranslationBundle): string {
  const numbers = trans.__('The numbers are of the whole device, with everybody on it.');
  if (server.memory_bytes === null) {
    return numbers;
  }
  const share = trans.__(
    'Your share is about %1 GiB, without a wall.',
    gib(server.memory_bytes, 1, trans)
  );
  return `${share} ${numbers}`;
}

/** Seconds until the server stops; null without a countdown. */
export function secondsLeft(countdown: Countdown | null | undefined, now: number): number | null {
  if (!countdown) {
    return null;
  }
  return Math.max(0, (Date.parse(countdown.stops_at) - now) / 1000);
}

/** "now", "likely 25–70 min", "2 in line, at most 2 h 10 min", "unknown". */
export function waitWords(offer: OfferState, trans: TranslationBundle): string {
  const wait = offer.wait;
  if (wait.now) {
    return trans.__('now');
  }
  const parts: string[] = [];
  if (offer.waiting > 0) {
    parts.push(trans.__('%1 in line', offer.waiting));
  }
  if (wait.p10_seconds !== null && wait.p90_seconds !== null) {
    parts.push(
      trans.__(
        'likely %1 to %2',
        duration(wait.p10_seconds, trans),
        duration(wait.p90_seconds, trans, true)
      )
    );
  }
  if (wait.at_most_seconds !== null) {
    parts.push(trans.__('at most %1', duration(wait.at_most_seconds, trans, true)));
  } else if (wait.p90_seconds === null) {
    parts.push(trans.__('wait unknown'));
  }
  return parts.join(', ');
}

/** The keep button's words: "Keep 30 min". */
export function keepLabel(server: ServerState, trans: TranslationBundle): string {
  return trans.__('Keep %1', duration((server.keep?.minutes ?? 0) * 60, trans));
}

/** How often it can still be pressed: "1 of 2 left in 24 h". */
export function keepLeft(keep: Keep, trans: TranslationBundle): string {
  return trans.__('%1 of %2 left in 24\u00a0h', keep.left, keep.of);
}

/** When the server stops by itself, while nothing is counted down. */
export function ruleWords(server: ServerState, trans: TranslationBundle): string {
  return server.rule !== '' ? server.rule : trans.__('No end is planned.');
}

/** The warning as one sentence: "This server stops at 14:52. Idle for 21 min." */
export function warningWords(countdown: Countdown, now: number, trans: TranslationBundle): string {
  return trans.__(
    'This server stops at %1. %2',
    clock(countdown.stops_at, now),
    localTimes(countdown.reason, now)
  );
}

/** The status bar: "GPU 3.1/4.75 GiB · 84 %", then the countdown when it is near; "" hides the item. */
export function statusWords(
  snapshot: Snapshot | null,
  now: number,
  trans: TranslationBundle
): string {
  const reading = snapshot?.gpus[0];
  const parts: string[] = [];
  if (reading) {
    const total = gib(reading.memory_total_bytes, 2, trans);
    parts.push(
      age(reading, now) > STALE_SECONDS
        ? trans.__('GPU not answering')
        : isShared(snapshot)
          ? trans.__('GPU, all users: %1/%2 GiB', used(reading, trans), total)
          : trans.__('GPU %1/%2 GiB', used(reading, trans), total)
    );
    if (reading.used_percent !== null && age(reading, now) <= STALE_SECONDS) {
      parts.push(trans.__('%1 %', Math.round(reading.used_percent)));
    }
  }
  const left = secondsLeft(snapshot?.server?.countdown, now);
  if (left !== null && left < COUNTDOWN_IN_STATUS_SECONDS && !snapshot?.service_note) {
    parts.push(trans.__('stops in %1', duration(left, trans)));
  }
  return parts.join(' · ');
}

/** What a screen reader hears, and only when it changes: no numbers that move. */
export function announcement(
  snapshot: Snapshot | null,
  kept: boolean,
  now: number,
  trans: TranslationBundle
): string {
  if (snapshot === null) {
    return '';
  }
  const parts = [snapshot.sentence, snapshot.service_note]
    .filter(sentence => sentence !== '')
    .map(sentence => localTimes(sentence, now));
  const countdown = snapshot.server?.countdown;
  if (countdown?.warn && !snapshot.service_note) {
    parts.push(trans.__('This server stops at %1.', clock(countdown.stops_at, now)));
  }
  if (kept) {
    parts.push(trans.__('This server is kept.'));
  }
  parts.push(...(snapshot.server?.warnings ?? []));
  return parts.join(' ');
}
