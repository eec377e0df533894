/**
 * What the end of this server means for a training, and whether its user can ask for more time. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

// with their extension: node's test runner imports the compiled file
import { reasonText, stopText, TOO_LONG } from './format.js';
import type { ServerState, Snapshot, Training } from './messages';
import { endedText, isRunning, secondsLeft, sorted } from './training-text.js';
import { clock, duration } from './units.js';

/** The service computes the end of a server again and again: it differs a little each time. */
const SAME_END_MS = 600_000;

/** A training that goes on after the end of its server. */
export interface ILate {
  /** The run; if only the service knows of it, the code of its reason and the rough end of the server. */
  run: string;
  text: string;
}

/** The training that goes on after the end of this server; null if none does, or if it is not known. */
export function lateOf(snapshot: Snapshot, now: number, trans: TranslationBundle): ILate | null {
  const { server, service_note, trainings } = snapshot;
  if (!server || service_note) {
    return null;
  }
  const [first] = sorted(
    (trainings ?? []).filter(one => isRunning(one) && !one.outside),
    now
  );
  const left = first ? secondsLeft(first, now) : null;
  if (!first || left === null) {
    const reason = server.warnings.find(one => one.reason === TOO_LONG);
    if (!reason) {
      return null;
    }
    const end = Math.round(Date.parse(String(reason.params.stops)) / SAME_END_MS);
    return { run: `${TOO_LONG} ${end}`, text: reasonText(reason, now, trans) };
  }
  const ends = now + 1000 * left;
  const stops = stopsAt(server);
  if (ends <= stops) {
    return null;
  }
  const times = [clock(ends, now), clock(stops, now)] as const;
  const text =
    first.bound === 'at-most'
      ? trans.__('Your training may go on until %1; this server ends at %2.', ...times)
      : first.bound === 'at-least'
        ? trans.__('Your training goes on until %1 at least; this server ends at %2.', ...times)
        : trans.__('Your training ends about %1; this server ends at %2.', ...times);
  return { run: first.run, text };
}

/** When this server stops, in ms; Infinity if no end is planned. */
function stopsAt({ countdown, ends_at }: ServerState): number {
  return Math.min(...[countdown?.stops_at, ends_at].map(at => (at ? Date.parse(at) : Infinity)));
}

/** "Done at 15:38. This server stops at 16:08."; without the second sentence if that is not known. */
export function overText(
  training: Training,
  { server, service_note }: Snapshot,
  now: number,
  trans: TranslationBundle
): string {
  const ended = endedText(training, now, trans);
  const stops = server && !service_note && !training.outside ? stopsAt(server) : Infinity;
  return stops < Infinity ? `${ended} ${stopText(stops, now, trans)}` : ended;
}

/** Whether *keep* stands beside the countdown, and is the button for more time. */
export function keepsInstead({ countdown }: ServerState): boolean {
  return countdown?.can_keep === true;
}

/** Whether the user can ask for a longer lifetime: another end comes first only if it is counted down. */
export function canExtend(server: ServerState): boolean {
  const { countdown, extend } = server;
  const first = !countdown || countdown.cause === 'lifetime';
  return first && !keepsInstead(server) && (extend?.left ?? 0) > 0;
}

/** "Ask for more time (2 h)". */
export function extendLabel({ extend }: ServerState, trans: TranslationBundle): string {
  return `${trans.__('Ask for more time')} (${duration(60 * (extend?.minutes ?? 0), trans)})`;
}
