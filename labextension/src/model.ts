/**
 * What the page knows: the last snapshot, how the connection stands, and how the last *keep* went.
 *
 * One connection a page. A page nobody sees listens too (its notebooks may have to be saved), but does not make the
 * server sample every second.
 */
import type { ServerConnection } from '@jupyterlab/services';
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { isThere, keep, listen, Refusal, saved } from './api';
import type { ServerState, Snapshot } from './messages';

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 60_000;

export type Connection = 'connecting' | 'open' | 'lost' | 'absent';

/** How the last *keep* went. */
export type Keeping = 'idle' | 'asking' | 'kept' | { refused: string };

export interface IGpuModel {
  /** The last snapshot; it stays when the connection is lost. */
  readonly snapshot: Snapshot | null;
  readonly connection: Connection;
  readonly keeping: Keeping;
  /** Something of the above changed. */
  readonly changed: ISignal<IGpuModel, void>;
  /** The service asks to save the open notebooks; emitted once a request. */
  readonly saveAsked: ISignal<IGpuModel, void>;
  /** The server's time now, in ms: the browser's clock may be wrong. */
  now(): number;
  keep(): Promise<void>;
  /** The open notebooks are saved: tell the service, now or when it asks again. */
  saved(): Promise<void>;
}

export const IGpuModel = new Token<IGpuModel>(
  'jupyterhub-gpu:IGpuModel',
  "This server's GPU, and when the server stops."
);

export class GpuModel implements IGpuModel, IDisposable {
  constructor(settings: ServerConnection.ISettings) {
    this._settings = settings;
    document.addEventListener('visibilitychange', this._seen);
    this._connect();
  }

  get snapshot(): Snapshot | null {
    return this._snapshot;
  }

  get connection(): Connection {
    return this._connection;
  }

  get keeping(): Keeping {
    return this._keeping;
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
    return Date.now() + this._serverAhead;
  }

  async keep(): Promise<void> {
    if (this._keeping === 'asking') {
      return;
    }
    this._setKeeping('asking');
    try {
      this._takeServer(await keep(this._settings));
      this._setKeeping('kept');
    } catch (error) {
      this._setKeeping({
        refused: error instanceof Refusal ? error.message : ''
      });
    }
  }

  async saved(): Promise<void> {
    try {
      await saved(this._settings);
    } catch {
      this._saving = false; // not told: the next snapshot that asks is a new request
    }
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    document.removeEventListener('visibilitychange', this._seen);
    this._hangUp();
    Signal.clearData(this);
  }

  private _connect(): void {
    this._hangUp();
    this._end = listen(
      this._settings,
      !document.hidden,
      snapshot => this._take(snapshot),
      () => void this._lost()
    );
  }

  private _hangUp(): void {
    window.clearTimeout(this._retry);
    this._end?.();
    this._end = null;
  }

  private _take(snapshot: Snapshot): void {
    const counted = this._snapshot?.server?.countdown ?? null;
    this._serverAhead = Date.parse(snapshot.at) - Date.now();
    this._retryMs = FIRST_RETRY_MS;
    this._connection = 'open';
    this._snapshot = snapshot;
    if (snapshot.server?.countdown && !counted && this._keeping !== 'asking') {
      this._keeping = 'idle'; // a new countdown: what was said about the one before is over
    }
    this._changed.emit();
    const asked = snapshot.server?.save ?? false;
    if (asked && !this._saving) {
      this._saveAsked.emit();
    }
    this._saving = asked;
  }

  private _takeServer(server: ServerState): void {
    if (this._snapshot !== null) {
      this._snapshot = { ...this._snapshot, server };
    }
  }

  private async _lost(): Promise<void> {
    this._end = null;
    if (this._snapshot === null && this._connection === 'connecting') {
      // asked once only: a request that is repeated would keep the server from ever being idle
      const there = await isThere(this._settings).catch(() => true);
      if (!there) {
        this._setConnection('absent');
        return;
      }
    }
    if (this._disposed) {
      return;
    }
    this._setConnection('lost');
    const wait = this._retryMs * (0.8 + 0.4 * Math.random());
    this._retryMs = Math.min(LONGEST_RETRY_MS, this._retryMs * 2);
    this._retry = window.setTimeout(() => this._connect(), wait);
  }

  private _setConnection(connection: Connection): void {
    this._connection = connection;
    this._changed.emit();
  }

  private _setKeeping(keeping: Keeping): void {
    this._keeping = keeping;
    this._changed.emit();
  }

  private _seen = (): void => {
    if (this._connection === 'absent') {
      return;
    }
    this._retryMs = FIRST_RETRY_MS;
    this._connect();
  };

  private _settings: ServerConnection.ISettings;
  private _snapshot: Snapshot | null = null;
  private _connection: Connection = 'connecting';
  private _keeping: Keeping = 'idle';
  private _saving = false;
  private _serverAhead = 0;
  private _retryMs = FIRST_RETRY_MS;
  private _retry = 0;
  private _end: (() => void) | null = null;
  private _disposed = false;
  private _changed = new Signal<IGpuModel, void>(this);
  private _saveAsked = new Signal<IGpuModel, void>(this);
}
