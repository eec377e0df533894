/**
 * Texts for states, sentences and labels. Pure: the present time is an argument.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type {
  Countdown,
  EndEvent,
  GpuReading,
  Keep,
  OfferState,
  Reason,
  ServerState,
  Snapshot,
  Wait
} from './messages';
import type { Connection } from './model';
import type { Range } from './series';
import type { GpuSettings } from './settings';
// with its extension: node's test runner imports the compiled file
import { isPast, isSame } from './end.js';
import { ownMemory } from './history.js';
import { SENTENCES } from './reasons.js';
import { isRunning, noticeText, sorted, statusPart } from './training-text.js';
import {
  clock,
  duration,
  exactly,
  number,
  percent,
  secondsSince,
  size,
  type Unit
} from './units.js';

/** A reading is old after this many intervals without a new one, and at least this many seconds. */
const OLD_PERIODS = 3;
const OLD_SECONDS = 3;

/** The status bar shows a countdown that is below this, in seconds. */
export const COUNTDOWN_IN_STATUS_SECONDS = 600;

/** Code of the service's reason for a server that ends before its training: the training's own section shows it. */
export const TOO_LONG = 'training-too-long';

/** A reason, or the parts of one that a refusal has. */
type ReasonContent = Pick<Reason, 'reason' | 'params' | 'message'>;

/**
 * A reason in the reader's language and time format, by its code and parameters; "" for null.
 *
 * The server's English text is used if the reason has no parameters and no translation, or if a parameter is missing,
 * as in a reason that is newer than this panel.
 */
export function reasonText(
  reason: ReasonContent | null,
  now: number,
  trans: TranslationBundle
): string {
  if (!reason) {
    return '';
  }
  const sentence = SENTENCES.get(reason.reason);
  if (!sentence) {
    const found = trans._p('reason', reason.reason);
    return found === reason.reason ? reason.message : found;
  }
  const parts = sentence.params.map(([name, kind]) =>
    WRITTEN[kind]?.(reason.params[name], trans, now)
  );
  if (parts.includes(undefined)) {
    return reason.message;
  }
  return sentence.text(trans, parts as string[], Number(reason.params[sentence.count ?? '']));
}

/** Format a parameter by its kind; undefined if it is missing. */
const WRITTEN: Record<
  string,
  (value: unknown, trans: TranslationBundle, now: number) => string | undefined
> = {
  text: value =>
    typeof value === 'string' || typeof value === 'number' ? String(value) : undefined,
  number: value => (typeof value === 'number' ? number(value, 2) : undefined),
  duration: (value, trans) => (typeof value === 'number' ? exactly(value, trans) : undefined),
  time: (value, _, now) => (typeof value === 'string' ? clock(value, now) : undefined)
};

/** The view that the panel shows. */
export type View =
  'loading' | 'absent' | 'lost' | 'stopped' | 'outdated' | 'cpu' | 'problem' | 'gpu';

/** The view for a snapshot; `connection` decides if there is no snapshot or the last one is outdated. */
export function viewOf(snapshot: Snapshot | null, connection: Connection): View {
  if (connection === 'outdated' || connection === 'stopped') {
    return connection;
  }
  if (snapshot === null) {
    return connection === 'absent' ? 'absent' : isAway(connection) ? 'lost' : 'loading';
  }
  if (snapshot.gpus.length > 0) {
    return 'gpu';
  }
  if (snapshot.state === 'starting') {
    return 'loading';
  }
  return snapshot.state === 'no-gpu' ? 'cpu' : 'problem';
}

/** Why this page has no connection to its server, and what to do; "" while it has. */
export function unreachedText(
  connection: Connection,
  end: EndEvent | null,
  now: number,
  trans: TranslationBundle
): string {
  if (connection === 'outdated') {
    return trans.__('This page is older than its server: reload it.');
  }
  if (connection === 'signed-out') {
    return trans.__(
      'You are signed out. Sign in again in another tab and come back: what is open on this page stays.'
    );
  }
  if (connection === 'stopped') {
    return trans.__('This server does not run any more.');
  }
  if (connection !== 'lost') {
    return '';
  }
  const countdown = end?.countdown;
  return countdown?.warn && isPast(countdown, now)
    ? trans.__(
        'This server was to stop at %1, and this page cannot reach it any more. To start a new one: File → Hub Control Panel.',
        clock(countdown.stops_at, now)
      )
    : trans.__(
        'This page cannot reach its server. It keeps trying. Whether the server still runs: File → Hub Control Panel.'
      );
}

/** Whether a reading is shown as old, because three newer ones are missing. */
export function isOld(reading: GpuReading, snapshot: Snapshot, now: number): boolean {
  return isLongAgo(reading.at, snapshot, now);
}

function isLongAgo(at: string, snapshot: Snapshot, now: number): boolean {
  return secondsSince(at, now) > Math.max(OLD_SECONDS, OLD_PERIODS * snapshot.period_seconds);
}

/**
 * Memory of this server against its real limit.
 *
 * `shared`: others may use the device, and `used` is this server's part. `about`: `limit` is not enforced.
 */
export interface Memory {
  used: number | null;
  limit: number | null;
  shared: boolean;
  about: boolean;
}

export function memoryOf(reading: GpuReading): Memory {
  const { shared, limit_bytes, limit_source } = reading;
  return {
    used: ownMemory(reading),
    limit: shared ? limit_bytes : (limit_bytes ?? reading.memory_total_bytes),
    shared,
    about: limit_source === 'share'
  };
}

/** Memory in percent of the limit; null if it is not known. */
export function memoryPercent(memory: {
  used: number | null;
  limit: number | null;
}): number | null {
  if (memory.used === null || !memory.limit) {
    return null;
  }
  return Math.min(100, Math.max(0, (memory.used / memory.limit) * 100));
}

/** "3.1 of 4.75 GiB", "yours 3.1 of about 20 GiB", "unknown". */
export function memoryText(memory: Memory, unit: Unit, trans: TranslationBundle): string {
  const used = size(memory.used, unit, 1, trans);
  if (memory.limit === null && memory.used === null) {
    return used;
  }
  if (memory.limit === null) {
    return memory.shared
      ? trans.__('yours %1\u00a0%2, limit unknown', used, unit)
      : trans.__('%1\u00a0%2, limit unknown', used, unit);
  }
  const limit = size(memory.limit, unit, memory.about ? 1 : 2, trans);
  if (!memory.shared) {
    return trans.__('%1 of %2\u00a0%3', used, limit, unit);
  }
  return memory.about
    ? trans.__('yours %1 of about %2\u00a0%3', used, limit, unit)
    : trans.__('yours %1 of %2\u00a0%3', used, limit, unit);
}

/** Whose limit it is, and the memory that all users of a shared device hold; "" if neither applies. */
export function besideText(reading: GpuReading, unit: Unit, trans: TranslationBundle): string {
  const limit =
    reading.limit_source === 'hami'
      ? trans.__('Your limit is set by HAMi.')
      : reading.limit_source === 'share'
        ? trans.__('Your share is by agreement: nothing holds anybody to it.')
        : '';
  if (!reading.shared) {
    return limit;
  }
  const device = trans.__(
    'Whole device, everybody: %1 of %2\u00a0%3.',
    size(reading.memory_used_bytes, unit, 1, trans),
    size(reading.memory_total_bytes, unit, 2, trans),
    unit
  );
  return limit === '' ? device : `${device} ${limit}`;
}

/** "84 %", or why there is no number. */
export function useText(reading: GpuReading, trans: TranslationBundle): string {
  return notMeasurable(reading)
    ? trans.__('not measurable on this card')
    : percent(reading.used_percent, trans);
}

/** Whether use can never be measured here. If another source is missing now, the note says why. */
export function notMeasurable(reading: GpuReading): boolean {
  return reading.source === 'none';
}

/** The source of the use; "" if there is none. */
export function sourceText(
  reading: GpuReading,
  server: ServerState | null,
  now: number,
  trans: TranslationBundle
): string {
  switch (reading.source) {
    case 'nvml':
      return trans.__('Use is what the driver says (NVML).');
    case 'gpm':
      return trans.__('Use is what the card itself counts (GPM).');
    case 'simulated':
      return trans.__('Use is simulated: there is no card.');
    case 'dcgm': {
      const figures = server?.figures;
      return figures?.uuid === reading.uuid
        ? trans.__(
            "Use is measured by the cluster's monitoring (DCGM), %1 ago.",
            duration(secondsSince(figures.at, now), trans)
          )
        : trans.__("Use is measured by the cluster's monitoring (DCGM), less often than memory.");
    }
    default:
      return '';
  }
}

/** A chart in one sentence, for screen readers. */
export function chartText(
  label: string,
  value: string,
  old: boolean,
  range: Range | null,
  written: (value: number) => string,
  trans: TranslationBundle
): string {
  if (range === null) {
    return trans.__('%1: no numbers from the last 10 min.', label);
  }
  const [lowest, highest] = [written(range.lowest), written(range.highest)];
  return old
    ? trans.__(
        '%1 in the last 10 min: last known %2, lowest %3, highest %4.',
        label,
        value,
        lowest,
        highest
      )
    : trans.__(
        '%1 in the last 10 min: now %2, lowest %3, highest %4.',
        label,
        value,
        lowest,
        highest
      );
}

/** Seconds until the server stops; null without a countdown. */
export function secondsLeft(countdown: Countdown | null | undefined, now: number): number | null {
  if (!countdown) {
    return null;
  }
  return Math.max(0, (Date.parse(countdown.stops_at) - now) / 1000);
}

/** "starts now", "2 in line, likely 25 min to 1 h 10 min, wait at most 2 h 10 min", "not enough data yet", "unknown". */
export function waitText(offer: OfferState, trans: TranslationBundle): string {
  const { wait } = offer;
  if (wait.now) {
    return trans.__('starts now');
  }
  const parts: string[] = [];
  if (offer.waiting > 0) {
    parts.push(trans.__('%1 in line', offer.waiting));
  }
  const likely = likelyWords(wait, trans);
  if (likely !== '') {
    parts.push(likely);
  } else if (wait.note === 'few-data') {
    parts.push(trans.__('not enough data yet'));
  }
  if (wait.at_most_seconds !== null) {
    parts.push(trans.__('wait at most %1', duration(wait.at_most_seconds, trans, true)));
  } else if (likely === '' && wait.note !== 'few-data') {
    parts.push(trans.__('wait unknown'));
  }
  return parts.join(', ');
}

/**
 * The likely range, whose ends are whole steps: "likely 25 min to 1 h 10 min (rough)", "likely roughly 15 min to 2 h";
 * "" if it is not known. A wide range already says "roughly", so "(rough)" is not added to it.
 */
function likelyWords(wait: Wait, trans: TranslationBundle): string {
  if (wait.p10_seconds === null || wait.p90_seconds === null) {
    return '';
  }
  const roughly = (text: string) => (wait.wide ? trans.__('roughly %1', text) : text);
  const from = duration(wait.p10_seconds, trans);
  const to = duration(Math.max(wait.p90_seconds, 60), trans, true);
  const words =
    wait.p10_seconds <= 0
      ? trans.__('likely within %1', roughly(to))
      : from === to && !wait.wide
        ? trans.__('likely about %1', to)
        : trans.__('likely %1 to %2', roughly(from), to);
  return wait.note === 'rough' && !wait.wide ? trans.__('%1 (rough)', words) : words;
}

/** The plain name of an offer: "Small GPU"; an admin's title is not translated. */
export function offerName(
  { name, title }: Pick<OfferState, 'name' | 'title'>,
  trans: TranslationBundle
): string {
  const ours: Record<string, string> = {
    'Small GPU': trans.__('Small GPU'),
    'Medium GPU': trans.__('Medium GPU'),
    'Large GPU': trans.__('Large GPU'),
    'Extra large GPU': trans.__('Extra large GPU'),
    'Whole GPU': trans.__('Whole GPU'),
    'CPU only': trans.__('CPU only')
  };
  const plain = name || title;
  return ours[plain] ?? plain;
}

/** What another choice would give: "Free now: MIG 1g.5gb. To have one …"; "" if nothing is known. */
export function takeWords(offers: OfferState[], trans: TranslationBundle): string {
  const gpus = offers.filter(offer => offer.share > 0);
  const free = gpus.filter(offer => offer.wait.now).map(offer => offerName(offer, trans));
  if (free.length > 0) {
    return trans.__(
      'Free now: %1. To have one instead, stop this server and choose it on the start page.',
      free.join(', ')
    );
  }
  const known = gpus.filter(offer => offer.wait.p90_seconds !== null);
  if (known.length === 0) {
    return '';
  }
  const soonest = known.reduce((best, offer) =>
    (offer.wait.p90_seconds ?? 0) < (best.wait.p90_seconds ?? 0) ? offer : best
  );
  return trans.__('Soonest: %1, %2.', offerName(soonest, trans), likelyWords(soonest.wait, trans));
}

/** When the likely waits were computed: "Likely waits as of 14:31."; "" if there are none. */
export function waitsAgeWords(offers: OfferState[], now: number, trans: TranslationBundle): string {
  const [oldest] = offers.flatMap(({ wait }) => (wait.as_of === null ? [] : [wait.as_of])).sort();
  return oldest === undefined ? '' : trans.__('Likely waits as of %1.', clock(oldest, now));
}

/** "2 of 5 free", or "full"; "" if it is not known or not counted. */
export function freeText(offer: OfferState, trans: TranslationBundle): string {
  if (offer.free === null || offer.total === null) {
    return '';
  }
  if (offer.total === 0) {
    return trans.__('none there now');
  }
  return offer.free === 0 ? trans.__('full') : trans.__('%1 of %2 free', offer.free, offer.total);
}

/** The other offers that are free now: "Free now: MIG 1g.5gb (2 of 5 free)."; "" if there is none. */
export function freeNow(offers: OfferState[], trans: TranslationBundle): string {
  const free = offers
    .filter(offer => offer.share > 0 && offer.wait.now)
    .map(offer => [offerName(offer, trans), freeText(offer, trans)])
    .map(([title, count]) => (count ? `${title} (${count})` : title));
  return free.length > 0 ? trans.__('Free now: %1.', free.join(', ')) : '';
}

/** The label of the keep button: "Keep 30 min". */
export function keepLabel(server: { keep: Keep | null }, trans: TranslationBundle): string {
  return trans.__('Keep %1', keepLength(server, trans));
}

/** How long one *keep* lasts: "30 min". */
export function keepLength(server: { keep: Keep | null }, trans: TranslationBundle): string {
  return duration((server.keep?.minutes ?? 0) * 60, trans);
}

/** The remaining keeps: "Keep: 1 of 2 left in 24 h"; if there is no button, the reason. */
export function keepLeft(keep: Keep, trans: TranslationBundle): string {
  if (keep.left < 1) {
    return keep.of_server
      ? trans.__('Keep is used up: %1 of %1.', keep.of)
      : trans.__('Keep is used up: %1 of %1 in 24\u00a0h.', keep.of);
  }
  return keep.of_server
    ? trans.__('Keep: %1 of %2 left', keep.left, keep.of)
    : trans.__('Keep: %1 of %2 left in 24\u00a0h', keep.left, keep.of);
}

/** When the server ends by itself: "Ends at 15:43 at the latest, or when …"; "" if the countdown shows it. */
export function endText(server: ServerState, now: number, trans: TranslationBundle): string {
  const { rule, ends_at, countdown } = server;
  // the end of the countdown is shown once
  if (ends_at === null || (countdown && isSame({ ...countdown, stops_at: ends_at }, countdown))) {
    return countdown ? '' : reasonText(rule, now, trans) || trans.__('No end is planned.');
  }
  const at = clock(ends_at, now);
  const { idle, wanted, warn } = rule?.params ?? {};
  if (countdown || typeof idle !== 'number' || typeof warn !== 'number') {
    const ends = trans.__('Ends at %1 at the latest.', at);
    return countdown ? ends : `${reasonText(rule, now, trans)} ${ends}`.trim();
  }
  const [limit, before] = [exactly(idle, trans), exactly(warn, trans)];
  return typeof wanted === 'number'
    ? trans.__(
        'Ends at %1 at the latest, or when its GPU is idle for %2, or for %3 while somebody waits for one (you are warned %4 before).',
        at,
        limit,
        exactly(wanted, trans),
        before
      )
    : trans.__(
        'Ends at %1 at the latest, or when its GPU is idle for %2 (you are warned %3 before).',
        at,
        limit,
        before
      );
}

/** What else would stop the server: "Also: Idle for 21 min. (14:52)". */
export function alsoTexts(countdown: Countdown, now: number, trans: TranslationBundle): string[] {
  return countdown.others.map(({ at, reason }) =>
    trans.__('Also: %1 (%2)', reasonText(reason, now, trans), clock(at, now))
  );
}

/** The text of the warning: "This server stops at 14:52. Idle for 21 min.", and what that means for the work. */
export function warningText(countdown: Countdown, now: number, trans: TranslationBundle): string {
  const words = `${stopText(countdown.stops_at, now, trans)} ${reasonText(countdown.reason, now, trans)}`;
  const todo = countdown.cause === 'signed-out' ? trans.__('Save your work.') : lostText(trans);
  return `${words} ${todo}`;
}

function lostText(trans: TranslationBundle): string {
  return trans.__('Files are saved, variables are lost.');
}

/** The last warning: "Your GPU is idle. The server stops in 1 min. Files are saved, variables are lost." */
export function lastWarningText(
  countdown: Countdown,
  now: number,
  trans: TranslationBundle
): string {
  const why =
    countdown.cause === 'idle'
      ? trans.__('Your GPU is idle.')
      : reasonText(countdown.reason, now, trans);
  const left = secondsLeft(countdown, now) ?? 0;
  const stops =
    left > 0
      ? trans.__('The server stops in %1.', duration(left, trans))
      : trans.__('Stopping now.');
  return `${why} ${stops} ${lostText(trans)}`;
}

/** Why a request was refused. */
export function refusalText(
  refused: ReasonContent | null,
  now: number,
  trans: TranslationBundle
): string {
  return reasonText(refused, now, trans) || trans.__('No answer: it may have been done.');
}

/** The text that is shown while the service is away. */
export function standsText(trans: TranslationBundle): string {
  return trans.__(
    'The countdown and the end of this server stand still until the service answers again.'
  );
}

/** The alert for screen readers, once per countdown: only the time, because the reason changes each minute. */
export function stopText(at: string | number, now: number, trans: TranslationBundle): string {
  return trans.__('This server stops at %1.', clock(at, now));
}

/** Whether the server cannot be used from this page. */
export function isAway(connection: Connection): boolean {
  return connection === 'lost' || connection === 'signed-out' || connection === 'stopped';
}

/**
 * Whether the last snapshot still applies: the connection is open, or was a moment ago.
 *
 * An older one tells nothing about the GPU, and the end of its countdown may have moved.
 */
export function isReached(snapshot: Snapshot, connection: Connection, now: number): boolean {
  if (isAway(connection) || connection === 'outdated') {
    return false;
  }
  return connection === 'open' || !isLongAgo(snapshot.at, snapshot, now);
}

/** The status bar: "GPU 3.1/4.75 GiB · 84 %", then the countdown when it is near; "" hides the item. */
export function statusText(
  snapshot: Snapshot | null,
  connection: Connection,
  settings: Pick<GpuSettings, 'unit' | 'statusBar'>,
  now: number,
  trans: TranslationBundle,
  unread = 0
): string {
  if (snapshot === null || settings.statusBar === 'nothing') {
    return '';
  }
  const parts: string[] = [];
  if (connection === 'signed-out') {
    parts.push(trans.__('GPU: signed out'));
  } else if (!isReached(snapshot, connection, now)) {
    if (snapshot.gpus.length > 0) {
      parts.push(
        connection === 'outdated'
          ? trans.__('GPU: reload this page')
          : connection === 'stopped'
            ? trans.__('GPU: server stopped')
            : trans.__('GPU: server not reached')
      );
    }
  } else {
    if (snapshot.gpus.some(reading => isOld(reading, snapshot, now))) {
      parts.push(trans.__('GPU not answering'));
    } else if (snapshot.gpus.length > 0) {
      parts.push(...deviceParts(snapshot, settings, trans));
    }
    const training = statusPart(snapshot.trainings ?? [], now, trans);
    if (training !== '') {
      parts.push(training);
    }
    const left = secondsLeft(snapshot.server?.countdown, now);
    if (left !== null && left < COUNTDOWN_IN_STATUS_SECONDS && snapshot.service_note === null) {
      parts.push(trans.__('stops in %1', duration(left, trans)));
    }
  }
  if (unread > 0) {
    parts.push(trans._n('1 message', '%1 messages', unread));
  }
  return parts.join(' · ');
}

function deviceParts(
  { gpus }: Snapshot,
  { unit, statusBar }: Pick<GpuSettings, 'unit' | 'statusBar'>,
  trans: TranslationBundle
): string[] {
  const shared = gpus.some(reading => reading.shared);
  const memories = gpus.map(memoryOf);
  const name = trans._n('GPU', '%1 GPUs', gpus.length);
  const parts: string[] = [];
  const used = sum(memories.map(memory => memory.used));
  const limit = sum(memories.map(memory => memory.limit));
  if (statusBar !== 'use' && used === null) {
    parts.push(`${name} ${trans.__('memory unknown')}`);
  } else if (statusBar !== 'use' && limit === null) {
    const number = size(used, unit, 1, trans);
    parts.push(
      shared
        ? trans.__('%1 yours %2\u00a0%3', name, number, unit)
        : `${name} ${number}\u00a0${unit}`
    );
  } else if (statusBar !== 'use') {
    const numbers = [size(used, unit, 1, trans), size(limit, unit, 2, trans)];
    parts.push(
      shared
        ? trans.__('%1 yours %2 of %3\u00a0%4', name, ...numbers, unit)
        : trans.__('%1 %2/%3\u00a0%4', name, ...numbers, unit)
    );
  }
  const use = sum(gpus.map(reading => reading.used_percent));
  const text = use === null ? null : percent(use / gpus.length, trans);
  if (statusBar === 'use') {
    parts.push(`${name} ${text ?? trans.__('use unknown')}`);
  } else if (statusBar === 'both' && text !== null) {
    parts.push(text);
  }
  if (shared && parts.length > 0 && text !== null && statusBar !== 'memory') {
    parts.push(trans.__('%1 by all users', parts.pop() ?? ''));
  }
  return parts;
}

/** The sum; null if one value is not known, because the sum of the others would be too small. */
function sum(values: (number | null)[]): number | null {
  return values.reduce((all, value) => (all === null || value === null ? null : all + value), 0);
}

/** The server's warnings, without that of its training. That its GPU is gone is shown once, whoever reports it. */
export function warningsOf(snapshot: Snapshot | null): Reason[] {
  return (snapshot?.server?.warnings ?? []).filter(
    ({ reason }) => reason !== TOO_LONG && (snapshot?.state !== 'lost' || reason !== 'gpu-lost')
  );
}

/** The text for screen readers, read out when it changes; without numbers that change all the time. */
export function announcement(
  snapshot: Snapshot | null,
  kept: boolean,
  now: number,
  trans: TranslationBundle
): string {
  if (snapshot === null) {
    return '';
  }
  const parts = [snapshot.reason, snapshot.service_note, ...warningsOf(snapshot)]
    .filter(reason => reason !== null)
    .map(reason => reasonText(reason, now, trans));
  // only the latest: a text that changes is read out as a whole
  const ended = sorted(snapshot.trainings ?? [], now).find(one => !isRunning(one));
  if (ended) {
    parts.push(noticeText(ended, now, trans));
  }
  if (kept) {
    parts.push(trans.__('This server is kept.'));
  }
  return parts.join(' ');
}
