/**
 * Why a server that does not run any more was stopped, in words, and where to start it again. Pure.
 *
 * It is known from the last word about its end, once the hub says that the server does not run. Where nothing was said
 * before, or the end was not due, nothing is guessed.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { COMES_BACK, isPast } from './end.js';
import { reasonText, unreachedText } from './format.js';
import type { Countdown, EndEvent, ServerState, Snapshot } from './messages';
import type { Connection } from './model';
import { clock, duration, exactly } from './units.js';

/** So long before the end that was told a stop may begin: clocks differ. */
const EARLY_MS = 5000;
/** The offer without a GPU. */
const CPU = 'cpu';

/** A stop that is known. */
export interface IStop {
  /** In ms, by the server's clock. */
  at: number;
  /** The countdown that came to its end. */
  countdown: Countdown;
  /** How long the GPU was idle then, in seconds; null: it is not known. */
  idle: number | null;
}

/** What is known of a page's server. */
export interface IKnown {
  connection: Connection;
  end: EndEvent | null;
  snapshot: Snapshot | null;
}

/** The stop of a server that does not run; null: it may run, or nobody said why it ended. */
export function stopOf({ connection, end, snapshot }: IKnown, now: number): IStop | null {
  const countdown = end?.countdown;
  if (!countdown || end === null) {
    return null;
  }
  // whoever was signed out is told by no hub any more whether it runs
  const confirmed =
    connection === 'stopped' || (connection === 'signed-out' && countdown.cause === 'signed-out');
  if (!confirmed || (end.kind !== 'save' && !isPast(countdown, now + EARLY_MS))) {
    return null;
  }
  const at = Math.min(Date.parse(countdown.stops_at), now);
  return { at, countdown, idle: idleAt(at, end, snapshot?.server ?? null) };
}

/** The last word counted in whole minutes, and some seconds before: at the stop it was the limit at least. */
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

/** "Its GPU was idle for 3 min.": why it was stopped. */
export function stopReason(stop: IStop, now: number, trans: TranslationBundle): string {
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

/** What became of one's work. @param unsaved - paths of what is open and not saved. */
export function lossText(unsaved: readonly string[], trans: TranslationBundle): string {
  return unsaved.length === 0
    ? trans.__('Your notebooks are saved; variables are lost.')
    : trans.__(
        'Not saved, and still open on this page: %1. Variables are lost.',
        unsaved.join(', ')
      );
}

/** The whole of it, where there is no title: "Your server was stopped at 15:16. Its GPU was idle for 3 min." */
function stopSentence(stop: IStop, now: number, trans: TranslationBundle): string {
  return `${stopTitle(stop, now, trans)}. ${stopReason(stop, now, trans)}`;
}

/** Why this page hears nothing of its server: the stop that is known, or what else is. */
export function awayText(known: IKnown, now: number, trans: TranslationBundle): string {
  const stop = stopOf(known, now);
  return stop === null
    ? unreachedText(known.connection, known.end, now, trans)
    : stopSentence(stop, now, trans);
}

/** Where the hub is, as JupyterLab knows it; no prefix: there is none. */
export interface IHub {
  hubHost?: string;
  hubPrefix?: string;
}

/** The service's one screen for whoever does not know all this; "" without a hub. */
export function helpUrl({ hubHost = '', hubPrefix = '' }: IHub): string {
  return hubPrefix && `${hubHost}${hubPrefix.replace(/hub\/?$/, '')}services/gpu/help`;
}

/** An address that starts a server, and what it gives. */
export interface IStart {
  kind: 'again' | 'cpu';
  url: string;
}

/**
 * The hub's form for this server, with the same offer chosen, or without a GPU; none without a hub.
 * @param back - the path that is opened once it runs.
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
