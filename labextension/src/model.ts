/**
 * The state of the page: the last numbers, the last ten minutes, when the server ends, and how the last *keep* went.
 *
 * Each page has one connection, and none while it is hidden: then warnings come by Jupyter Server's event stream. A
 * page that is opened in the background sends no request before it is first visible.
 */
import type { Event, Kernel, ServerConnection, Session } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import {
  type Answer,
  ask,
  endEventIn,
  errorText,
  listen,
  notify,
  type Order,
  order,
  Refusal,
  saved,
  warned
} from './api.js';
import { comesBack } from './end.js';
import { endIn, over, wordOf } from './end-event.js';
import {
  fromSeries,
  shifted,
  withoutMemory,
  SLOWEST_PERIOD_MS,
  withReadings,
  type History,
  type Point
} from './history.js';
import type {
  EndEvent,
  GpuReading,
  Holder,
  Numbers,
  Problem,
  Push,
  ServerState,
  Snapshot
} from './messages';
import { DEFAULTS, type GpuSettings } from './settings.js';
import { Stopwatch } from './stopwatch.js';

export type { GpuSettings, Point };

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 60_000;
/** Interval between two checks while a server is about to start again without its GPU. */
const RETURN_RETRY_MS = 5000;
const CHECK_MS = 5000;
const SHORTEST_SILENCE_MS = 15_000;
const PERIODS_OF_SILENCE = 3;
const TELL_AGAIN_MS = 2000;
const KEPT_MS = 10_000;
// events come by two ways and may overtake each other; if one seems older by more, the clock was set back
const OVERTAKEN_MS = 10_000;
const SET_BACK_MS = 1000;
// a network may delay a message that long
const SET_FORWARD_MS = 10_000;
// until then the same request to save may still arrive by the other way
const ANSWERED_MS = 10_000;

/**
 * State of the page's connection. ``outdated``: the server sends another version of the messages, only a reload helps;
 * ``signed-out``: the server runs but refuses this browser; ``stopped``: the hub reports that the server does not run.
 */
export type Connection =
  'connecting' | 'open' | 'lost' | 'signed-out' | 'stopped' | 'absent' | 'hidden' | 'outdated';

/** Result of the last *keep*. */
export type Keeping = 'idle' | 'asking' | 'kept' | { refused: Problem | null };

export interface IGpuModel {
  /** The last snapshot, updated with later numbers; it is kept when the connection is lost. */
  readonly snapshot: Snapshot | null;
  /** The last ten minutes of each device, oldest first. */
  readonly history: ReadonlyMap<string, Point[]>;
  readonly connection: Connection;
  /** Result of the last *keep*, or the refusal of another order or wish. */
  readonly keeping: Keeping;
  readonly settings: GpuSettings;
  /** The last end event; null if there was none or the service is away. */
  readonly end: EndEvent | null;
  /** URL for signing in to this server again. */
  readonly signInUrl: string;
  /** Emitted when one of the above has changed. */
  readonly changed: ISignal<IGpuModel, void>;
  /** Emitted once for each request of the service to save the open notebooks. */
  readonly saveAsked: ISignal<IGpuModel, void>;
  /** The server's time in ms; the browser's clock may be wrong, or jump. */
  now(): number;
  keep(): Promise<void>;
  /** Ask for a longer lifetime of this server. A refusal is in `keeping`. */
  extend(): Promise<void>;
  /** Wish for a notice at the end of a training, or do without it. A refusal is in `keeping`. */
  notify(run: string, on: boolean): Promise<void>;
  /** Give this server's GPU back: it stops, or with `cpu` starts again without one. A refusal is in `keeping`. */
  giveBack(cpu: boolean): Promise<void>;
  /** Report to the service that the open notebooks are saved. */
  saved(): Promise<void>;
  /** End a request to save, whether or not all was saved: the next event that asks is a new request. */
  saveEnded(): void;
  /** Report to the service that a warning of the stop was shown. */
  warned(): void;
  /**
   * Ask the user, then shut the holder's kernel down.
   * @throws Error with a message for the user.
   */
  endKernel(holder: Holder): Promise<void>;
}

export const IGpuModel = new Token<IGpuModel>(
  'jupyterhub-gpu:IGpuModel',
  "This server's GPU, and when the server stops."
);

/** What the model needs of JupyterLab. */
export interface IModelParts {
  server: ServerConnection.ISettings;
  events: Pick<Event.IManager, 'stream'>;
  sessions: Pick<Session.IManager, 'refreshRunning' | 'running' | 'shutdown'>;
  kernels: Pick<Kernel.IManager, 'shutdown'>;
  trans: TranslationBundle;
  /** Ask the user whether this holder's kernel shall be shut down. */
  confirmEnd: (holder: Holder) => Promise<boolean>;
}

export class GpuModel implements IGpuModel, IDisposable {
  constructor(private _parts: IModelParts) {
    _parts.events.stream.connect(this._emitted);
  }

  get snapshot(): Snapshot | null {
    return this._snapshot;
  }

  get history(): ReadonlyMap<string, Point[]> {
    return this._history;
  }

  get connection(): Connection {
    return this._connection;
  }

  get keeping(): Keeping {
    return this._keeping;
  }

  get settings(): GpuSettings {
    return this._settings;
  }

  get end(): EndEvent | null {
    return this._end;
  }

  get signInUrl(): string {
    return this._parts.server.baseUrl;
  }

  get changed(): ISignal<IGpuModel, void> {
    return this._changed;
  }

  get saveAsked(): ISignal<IGpuModel, void> {
    return this._saveAsked;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  now(): number {
    return this._serverAt + this._sinceServer.elapsed();
  }

  /** Connect when the page becomes visible, the first time and each time after that. */
  start(): void {
    if (this._started || this._disposed) {
      return;
    }
    this._started = true;
    for (const [target, kind, listener] of this._pageEvents()) {
      target.addEventListener(kind, listener);
    }
    this._seen();
  }

  /** Use these settings; another interval needs a new connection. */
  use(settings: GpuSettings): void {
    const again = settings.intervalSeconds !== this._settings.intervalSeconds;
    this._settings = settings;
    if (again && this._hangUpNow !== null) {
      this._connect();
    }
    this._changed.emit();
  }

  async keep(): Promise<void> {
    await this._asking('keep', 'kept');
  }

  async extend(): Promise<void> {
    await this._asking('extend', 'kept');
  }

  async notify(run: string, on: boolean): Promise<void> {
    try {
      await notify(this._parts.server, run, on);
    } catch (error) {
      this._refused(error);
      return;
    }
    if (this._snapshot !== null) {
      // not only with the next report of the program
      const trainings = this._snapshot.trainings.map(one =>
        one.run === run ? { ...one, notify: on } : one
      );
      this._snapshot = { ...this._snapshot, trainings };
      this._setKeeping('idle');
    }
  }

  async giveBack(cpu: boolean): Promise<void> {
    await this._asking(cpu ? 'give-back?cpu=1' : 'give-back', 'idle');
  }

  private async _asking(what: Order, done: 'kept' | 'idle'): Promise<void> {
    if (this._keeping === 'asking') {
      return;
    }
    this._setKeeping('asking');
    try {
      this._takeServer(await order(this._parts.server, what));
      this._setKeeping(done);
      window.setTimeout(() => this._forgetKept(), KEPT_MS);
    } catch (error) {
      this._refused(error);
    }
  }

  private _refused(error: unknown): void {
    this._setKeeping({ refused: error instanceof Refusal ? error.problem : null });
  }

  /** Show "kept" for a moment only: later it could be understood of another countdown. */
  private _forgetKept(): void {
    if (this._keeping === 'kept') {
      this._setKeeping('idle');
    }
  }

  async saved(): Promise<void> {
    try {
      await saved(this._parts.server);
    } catch {
      await new Promise(resolve => window.setTimeout(resolve, TELL_AGAIN_MS));
      // not repeated: the next event that asks is a new request
      await saved(this._parts.server).catch(() => (this._saving = false));
    }
    this.saveEnded();
  }

  saveEnded(): void {
    this._savedAt = this.now();
  }

  warned(): void {
    void warned(this._parts.server).catch(() => undefined); // then the service sends the warning by other ways
  }

  async endKernel(holder: Holder): Promise<void> {
    const { trans, sessions, kernels } = this._parts;
    if (holder.kernel === '') {
      throw new Error(
        trans.__('%1 is no kernel: it can only be ended where it was started.', holder.name)
      );
    }
    if (!(await this._parts.confirmEnd(holder))) {
      return;
    }
    try {
      await sessions.refreshRunning();
      const session = [...sessions.running()].find(one => one.kernel?.id === holder.kernel);
      await (session ? sessions.shutdown(session.id) : kernels.shutdown(holder.kernel));
    } catch (error) {
      throw new Error(
        trans.__('The kernel of %1 was not shut down: %2', holder.name, errorText(error))
      );
    }
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    for (const [target, kind, listener] of this._pageEvents()) {
      target.removeEventListener(kind, listener);
    }
    this._parts.events.stream.disconnect(this._emitted);
    this._hangUp();
    Signal.clearData(this);
  }

  private _connect(): void {
    this._hangUp();
    this._heard.restart();
    this._hangUpNow = listen(this._parts.server, this._settings.intervalSeconds, {
      taken: push => this._take(push),
      outdated: () => this._outdated(),
      ended: signedOut => void this._lost(signedOut)
    });
    this._checking = window.setTimeout(this._check, CHECK_MS);
  }

  private _hangUp(): void {
    window.clearTimeout(this._retry);
    window.clearTimeout(this._checking);
    this._hangUpNow?.();
    this._hangUpNow = null;
  }

  /** Notice a connection that died without an event: after a laptop's sleep, or without a network. */
  private _check = (): void => {
    const silence = Math.max(SHORTEST_SILENCE_MS, PERIODS_OF_SILENCE * this._periodMs());
    if (this._heard.elapsed() > silence) {
      void this._lost();
    } else {
      this._checking = window.setTimeout(this._check, CHECK_MS);
    }
  };

  private _periodMs(): number {
    const period = this._snapshot?.period_seconds ?? 0;
    return Math.max(period, this._settings.intervalSeconds) * 1000;
  }

  private _take(push: Push): void {
    const at = Date.parse(push.at);
    const jump = at - this.now();
    if (at < this._serverAt - SET_BACK_MS || jump > SET_FORWARD_MS) {
      this._history = shifted(this._history, jump); // its clock was changed: the age of the readings stays the same
    }
    this._serverAt = at;
    this._sinceServer.restart();
    this._heard.restart();
    const before = push.snapshot ?? this._snapshot;
    if (before === null) {
      return; // numbers without a snapshot
    }
    this._retryMs = FIRST_RETRY_MS;
    this._connection = 'open';
    if (push.history) {
      this._history = fromSeries(push.history, this._serverAt);
    }
    const gpus = before.gpus.map(reading => withNumbers(reading, push.numbers));
    const counted = this._snapshot?.server?.countdown ?? null;
    for (const { uuid, shared } of gpus) {
      const was = this._snapshot?.gpus.find(reading => reading.uuid === uuid);
      if (!push.history && was && was.shared !== shared) {
        this._history = withoutMemory(this._history, uuid);
      }
    }
    this._snapshot = { ...before, at: push.at, gpus };
    const period = this._joined ? this._periodMs() : Math.max(this._periodMs(), SLOWEST_PERIOD_MS);
    this._history = withReadings(this._history, gpus, this._serverAt, period);
    // before the first numbers, the server may have read at the interval that it has without listeners
    this._joined = !push.history && (this._joined || push.numbers.length > 0);
    if (push.snapshot) {
      this._takeEnd(endIn(this._snapshot), push.snapshot.server?.save !== true);
      if (push.snapshot.server?.countdown && !counted && this._keeping !== 'asking') {
        this._keeping = 'idle'; // a new countdown: the result of the earlier *keep* does not apply
      }
    }
    this._changed.emit();
  }

  /** Take the service's answer to *keep*, which is newer than any snapshot. */
  private _takeServer(server: ServerState): void {
    if (this._snapshot !== null) {
      this._snapshot = { ...this._snapshot, server };
    }
    const at = new Date(this.now()).toISOString();
    this._takeEnd(server.countdown?.warn ? wordOf(server, at) : over(at), !server.save);
  }

  private _emitted = (_: unknown, emission: Event.Emission): void => {
    const event = endEventIn(emission);
    if (event === null) {
      return;
    }
    if (this._serverAt === 0) {
      this._serverAt = Date.parse(event.at);
      this._sinceServer.restart();
    }
    this._takeEnd(event, event.kind === 'over');
    this._changed.emit();
  };

  /** Take an end event from either of the two ways. */
  private _takeEnd(end: EndEvent | null, savingIsOver: boolean): void {
    const late = end && this._end ? Date.parse(this._end.at) - Date.parse(end.at) : 0;
    if (late > 0 && late < OVERTAKEN_MS) {
      return;
    }
    this._end = end;
    if (savingIsOver) {
      this._saving = false;
    }
    const answered = this.now() - this._savedAt > ANSWERED_MS;
    if (end?.kind === 'save' && (!this._saving || answered)) {
      this._saving = true;
      this._savedAt = Infinity; // not yet
      this._saveAsked.emit();
    }
  }

  private async _lost(signedOut = false): Promise<void> {
    this._hangUp();
    // once per loss, unless nobody answered: repeated requests would keep the server from ever being idle
    const first = this._retryMs === FIRST_RETRY_MS;
    let asks = !signedOut && (first || (this._unanswered && this._retryMs < LONGEST_RETRY_MS));
    let found: Connection = signedOut ? 'signed-out' : 'lost';
    if (this._snapshot === null && !this._asked && !signedOut) {
      asks = false;
      const answer = await ask(this._parts.server);
      found = foundBy(answer);
      if (answer !== 'absent') {
        this._asked = true;
      } else if (first && this._connection !== 'absent') {
        found = 'connecting'; // a proxy that has lost its routes answers the same
        this._retryMs = RETURN_RETRY_MS;
      } else {
        this._setConnection('absent');
        return;
      }
    }
    if (this._disposed || document.hidden || this._hangUpNow !== null) {
      return; // the page is hidden, or connected again meanwhile
    }
    const before = this._connection;
    this._setConnection(before === 'signed-out' || before === 'stopped' ? before : found);
    if (asks) {
      void this._learnWhy();
    }
    const wait = this._retryMs;
    this._retryMs = Math.min(LONGEST_RETRY_MS, this._retryMs * 2);
    this._retryIn(this._connection === 'stopped' ? this._stoppedRetryMs() : wait);
  }

  /** Find out whether only this browser's session has ended, or whether the server was stopped. */
  private async _learnWhy(): Promise<void> {
    const answer = await ask(this._parts.server);
    this._unanswered = answer === 'away';
    const knows = this._connection === 'signed-out' || this._connection === 'stopped';
    if (this._disposed || (this._connection !== 'lost' && !knows)) {
      return;
    }
    if (!this._unanswered || !knows) {
      this._setConnection(foundBy(answer));
    }
    if (this._connection === 'stopped') {
      this._retryMs = LONGEST_RETRY_MS;
      this._retryIn(this._stoppedRetryMs());
    }
  }

  /** Check once a minute: most stopped servers do not start by themselves. */
  private _stoppedRetryMs(): number {
    return comesBack(this.end, this.now()) ? RETURN_RETRY_MS : LONGEST_RETRY_MS;
  }

  private _retryIn(milliseconds: number): void {
    window.clearTimeout(this._retry);
    const wait = milliseconds * (0.8 + 0.4 * Math.random());
    this._retry = window.setTimeout(() => this._connect(), wait);
  }

  private _outdated(): void {
    this._hangUp();
    this._setConnection('outdated');
  }

  private _setConnection(connection: Connection): void {
    this._connection = connection;
    this._changed.emit();
  }

  private _setKeeping(keeping: Keeping): void {
    this._keeping = keeping;
    this._changed.emit();
  }

  private _pageEvents(): [EventTarget, string, () => void][] {
    return [
      [document, 'visibilitychange', this._seen],
      [document, 'freeze', this._unseen],
      [document, 'resume', this._seen],
      [window, 'pagehide', this._unseen],
      [window, 'pageshow', this._seen],
      [window, 'online', this._seen]
    ];
  }

  private _seen = (): void => {
    if (document.hidden) {
      this._unseen();
      return;
    }
    if (this._connection === 'outdated' || this._hangUpNow !== null) {
      return; // nothing to find out, or connected already
    }
    this._retryMs = FIRST_RETRY_MS;
    this._connect();
    if (this._connection !== 'absent') {
      this._setConnection('connecting');
    }
  };

  private _unseen = (): void => {
    this._hangUp();
    if (this._connection !== 'absent' && this._connection !== 'outdated') {
      this._setConnection('hidden');
    }
  };

  private _settings: GpuSettings = DEFAULTS;
  private _snapshot: Snapshot | null = null;
  private _history: History = new Map();
  private _connection: Connection = 'connecting';
  private _keeping: Keeping = 'idle';
  private _joined = false;
  private _end: EndEvent | null = null;
  private _saving = false;
  private _savedAt = Infinity;
  private _asked = false;
  private _unanswered = false;
  private _started = false;
  private _disposed = false;
  private _serverAt = 0;
  private _sinceServer = new Stopwatch();
  private _heard = new Stopwatch();
  private _retryMs = FIRST_RETRY_MS;
  private _retry = 0;
  private _checking = 0;
  private _hangUpNow: (() => void) | null = null;
  private _changed = new Signal<IGpuModel, void>(this);
  private _saveAsked = new Signal<IGpuModel, void>(this);
}

function withNumbers(reading: GpuReading, all: Numbers[]): GpuReading {
  const numbers = all.find(one => one.uuid === reading.uuid);
  return numbers ? { ...reading, ...numbers } : reading;
}

/** The state of a lost connection that follows from who answers at the server's URL. */
function foundBy(answer: Answer): Connection {
  return answer === 'signed-out' || answer === 'stopped' ? answer : 'lost';
}
