/**
 * Which stop the user is warned of, from one word about the end to the next. Pure; how it is said is elsewhere.
 */
import type { Countdown, EndEvent } from './messages';

// an end that moves by less is the same end: the service counts anew each time it looks
const SAME_END_MS = 60_000;

/**
 * The countdown to warn of now: `before` itself while it is still the same one.
 *
 * Only the word that it is over takes it back: a service that is away for a moment (`end` null) says nothing new.
 */
export function warnedOf(before: Countdown | null, end: EndEvent | null): Countdown | null {
  if (end?.kind === 'over') {
    return null;
  }
  const countdown = end?.countdown;
  // who gave the GPU back knows it
  const warns = countdown?.warn && countdown.cause !== 'given-back';
  return !warns || isSame(countdown, before) ? before : countdown;
}

/** Whether a countdown has come to its end. */
export function isPast(countdown: Countdown, now: number): boolean {
  return Date.parse(countdown.stops_at) <= now;
}

/** When the last warning of a stop is due, in ms; null: nobody says. */
export function lastWarning(countdown: Countdown): number | null {
  return countdown.last_warning ? Date.parse(countdown.last_warning) : null;
}

function isSame(one: Countdown, other: Countdown | null): boolean {
  return (
    one.cause === other?.cause &&
    Math.abs(Date.parse(one.stops_at) - Date.parse(other.stops_at)) < SAME_END_MS
  );
}
