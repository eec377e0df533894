/**
 * Why a stopped server was stopped, in words, and where to start it again. Pure.
 *
 * The reason is that of the last end event, once the hub reports that the server does not run. If there was no event,
 * or its end was not due, the reason is unknown.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { COMES_BACK, isPast } from './end.js';
import { reasonText, unreachedText } from './format.js';
import type { Countdown, EndEvent, ServerState, Snapshot } from './messages';
import type { Connection } from './model';
import { clock, duration, exactly } from './units.js';

/** A stop may begin this much before the announced end, because clocks differ. */
const EARLY_MS = 5000;
/** Id of the offer without a GPU. */
const CPU = 'cpu';

/** A stop whose reason is known. */
export interface IStop {
  /** Time of the stop in ms, by the server's clock. */
  at: number;
  /** The countdown that came to its end. */
  countdown: Countdown;
  /** Seconds for which the GPU had been idle; null if that is not known. */
  idle: number | null;
  /** What the service said about the size of the GPU, in the user's language; "" for nothing. */
  size: string;
}

/** What the model knows of the server. */
export interface IKnown {
  connection: Connection;
  end: EndEvent | null;
  snapshot: Snapshot | null;
}

/** The stop of a server that does not run; null if the server may run or the reason is not known. */
export function stopOf({ connection, end, snapshot }: IKnown, now: number): IStop | null {
  const countdown = end?.countdown;
  if (!countdown || end === null) {
    return null;
  }
  // after a sign-out, the hub no longer tells this browser whether the server runs
  const confirmed =
    connection === 'stopped' || (connection === 'signed-out' && countdown.cause === 'signed-out');
  if (!confirmed || (end.kind !== 'save' && !isPast(countdown, now + EARLY_MS))) {
    return null;
  }
  const at = Math.min(Date.parse(countdown.stops_at), now);
  const server = snapshot?.server ?? null;
  return { at, countdown, idle: idleAt(at, end, server), size: server?.size ?? '' };
}

/** Idle seconds at the stop: the last event's value, which is some seconds old, but at least the limit. */
function idleAt(at: number, end: EndEvent, server: ServerState | null): number | null {
  const told = end.countdown?.reason.params.idle;
  if (typeof told !== 'number') {
    return null;
  }
  const limit = server?.rule?.params.idle;
  const since = told + Math.max(0, at - Date.parse(end.at)) / 1000;
  return Math.max(since, typeof limit === 'number' ? limit : 0);
}

/** "Your server was stopped at 15:16". */
export function stopTitle(stop: IStop, now: number, trans: TranslationBundle): string {
  return trans.__('Your server was stopped at %1', clock(stop.at, now));
}

/** Why it was stopped, and the service's sentences about the size of its GPU: "Its GPU was idle for 3 min. …". */
export function stopReason(stop: IStop, now: number, trans: TranslationBundle): string {
  return `${causeText(stop, now, trans)} ${stop.size}`.trim();
}

function causeText(stop: IStop, now: number, trans: TranslationBundle): string {
  const { reason } = stop.countdown;
  const idle = stop.idle === null ? '' : duration(stop.idle, trans);
  switch (stop.idle === null && reason.reason.startsWith('idle') ? '' : reason.reason) {
    case 'idle':
    case 'idle-at-first':
    case 'idle-promised':
      return trans.__('Its GPU was idle for %1.', idle);
    case 'idle-wanted':
      return trans.__('Its GPU was idle for %1, and somebody waited for one.', idle);
    case 'idle-memory':
      return trans.__('Its GPU held memory and computed nothing for %1.', idle);
    case 'idle-never-used':
      return trans.__('Its GPU was never used.');
    case 'lifetime':
      return typeof reason.params.limit === 'number'
        ? trans.__('Its time limit of %1 was over.', exactly(reason.params.limit, trans))
        : reasonText(reason, now, trans);
    case 'unopened':
      return trans.__('Nobody had opened it.');
    case 'stopped-by-admin':
      return trans.__('An administrator stopped it.');
    case 'stopped-by-admin-why':
      return trans.__('An administrator stopped it: %1', reason.params.why);
    case 'given-back':
      return trans.__('You gave its GPU back.');
    case COMES_BACK:
      return trans.__('You gave its GPU back. It starts again without one.');
    default:
      return reasonText(reason, now, trans);
  }
}

/** What the stop means for the user's work. @param unsaved - paths of open documents with unsaved changes. */
export function lossText(unsaved: readonly string[], trans: TranslationBundle): string {
  return unsaved.length === 0
    ? trans.__('Your notebooks are saved; variables are lost.')
    : trans.__(
        'Not saved, and still open on this page: %1. Variables are lost.',
        unsaved.join(', ')
      );
}

/** Title and reason in one text: "Your server was stopped at 15:16. Its GPU was idle for 3 min." */
function stopSentence(stop: IStop, now: number, trans: TranslationBundle): string {
  return `${stopTitle(stop, now, trans)}. ${stopReason(stop, now, trans)}`;
}

/** Why this page has no connection to its server: the known stop, or another reason. */
export function awayText(known: IKnown, now: number, trans: TranslationBundle): string {
  const stop = stopOf(known, now);
  return stop === null
    ? unreachedText(known.connection, known.end, now, trans)
    : stopSentence(stop, now, trans);
}

/** URL of the hub, from JupyterLab's page config; without a prefix there is no hub. */
export interface IHub {
  hubHost?: string;
  hubPrefix?: string;
}

/** URL of the service's help page; "" without a hub. */
export function helpUrl({ hubHost = '', hubPrefix = '' }: IHub): string {
  return hubPrefix && `${hubHost}${hubPrefix.replace(/hub\/?$/, '')}services/gpu/help`;
}

/** A URL that starts the server, with the same offer (`again`) or without a GPU (`cpu`). */
export interface IStart {
  kind: 'again' | 'cpu';
  url: string;
}

/**
 * URLs of the hub's spawn form for this server; an empty list without a hub.
 * @param back - the path to open when the server runs.
 */
export function starts(hub: IHub, server: ServerState | null, back: string): IStart[] {
  if (!hub.hubPrefix) {
    return [];
  }
  const parts = server === null ? [] : [server.user, server.server].filter(part => part !== '');
  const form =
    (hub.hubHost ?? '') + URLExt.join(hub.hubPrefix, 'spawn', ...parts.map(encodeURIComponent));
  const url = (offer: string): string =>
    form + URLExt.objectToQueryString({ 'opt-offer': offer, next: back });
  if (server === null) {
    return [{ kind: 'again', url: form }];
  }
  const again: IStart = { kind: 'again', url: url(server.offer) };
  return server.offer === CPU ? [again] : [again, { kind: 'cpu', url: url(CPU) }];
}

export function startLabel(kind: IStart['kind'], trans: TranslationBundle): string {
  return kind === 'again' ? trans.__('Start again') : trans.__('Work on CPU');
}
