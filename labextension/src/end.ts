/**
 * Which stop the user is warned of, decided with each end event. Pure.
 */
import type { Countdown, EndEvent } from './messages';

// an end that moves by less is the same end: the service computes it again with each look at the server
const SAME_END_MS = 60_000;
/** Code of the reason that the user gave the GPU back and the server starts again without it. */
export const COMES_BACK = 'given-back-for-cpu';
/** A server that has not started again by then does not. */
const BACK_WITHIN_MS = 5 * 60_000;

/**
 * The countdown to warn of now, after the last end event.
 *
 * Only the event `over` ends a warning; `end` is null while the service is away, which changes nothing.
 */
export function warnedOf(before: Countdown | null, end: EndEvent | null): Countdown | null {
  if (end?.kind === 'over') {
    return null;
  }
  const countdown = end?.countdown;
  if (countdown?.cause === 'given-back') {
    return null; // the user gave the GPU back and needs no warning, and the earlier countdown is over
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

/** When the last warning of a stop is due, in ms; null if it is not known. */
export function lastWarning(countdown: Countdown): number | null {
  return countdown.last_warning ? Date.parse(countdown.last_warning) : null;
}

/** Whether a warning of `other` covers `one`, too. */
export function isSame(one: Countdown, other: Countdown | null): boolean {
  return (
    one.cause === other?.cause &&
    Math.abs(Date.parse(one.stops_at) - Date.parse(other.stops_at)) < SAME_END_MS
  );
}
