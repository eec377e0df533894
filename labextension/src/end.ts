/**
 * Which stop the user is warned of, from one word about the end to the next. Pure; how it is said is elsewhere.
 */
import type { Countdown, EndEvent } from './messages';

// an end that moves by less is the same end: the service counts anew each time it looks
const SAME_END_MS = 60_000;
/** Its user gave the GPU back, and the server comes back by itself. */
export const COMES_BACK = 'given-back-for-cpu';
/** By then it has come back, or did not. */
const BACK_WITHIN_MS = 5 * 60_000;

/**
 * The countdown to warn of now, as the last word has it.
 *
 * Only the word that it is over takes it back: a service that is away for a moment (`end` null) says nothing new.
 */
export function warnedOf(before: Countdown | null, end: EndEvent | null): Countdown | null {
  if (end?.kind === 'over') {
    return null;
  }
  const countdown = end?.countdown;
  if (countdown?.cause === 'given-back') {
    return null; // who gave the GPU back knows it, and what was counted down before is over
  }
  return countdown?.warn ? countdown : before;
}

/** Whether a countdown has come to its end. */
export function isPast(countdown: Countdown, now: number): boolean {
  return Date.parse(countdown.stops_at) <= now;
}

/** Whether a server that stopped is about to run again, without its GPU. */
export function comesBack(end: EndEvent | null, now: number): boolean {
  const countdown = end?.countdown;
  return (
    countdown?.reason.reason === COMES_BACK && now < Date.parse(countdown.stops_at) + BACK_WITHIN_MS
  );
}

/** When the last warning of a stop is due, in ms; null: nobody says. */
export function lastWarning(countdown: Countdown): number | null {
  return countdown.last_warning ? Date.parse(countdown.last_warning) : null;
}

/** Whether who was warned of `other` knows of `one`. */
export function isSame(one: Countdown, other: Countdown | null): boolean {
  return (
    one.cause === other?.cause &&
    Math.abs(Date.parse(one.stops_at) - Date.parse(other.stops_at)) < SAME_END_MS
  );
}
