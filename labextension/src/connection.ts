/**
 * What JupyterLab does once its server is gone: our box where it is known why, else the hub's own; and no questions
 * beside ours until the server is there again.
 *
 * Not here: whether the server runs and why it was stopped (`model.ts`, `stopped.ts`).
 */
import { ConnectionLost, type IConnectionLost, type JupyterLab } from '@jupyterlab/application';
import { Dialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { COMES_BACK } from './end';
import type { IGpuModel } from './model';
import {
  type IHub,
  type IStop,
  lossText,
  startLabel,
  starts,
  stopOf,
  stopReason,
  stopTitle
} from './stopped';

/** So long the hub may take to say whether the server runs. */
const ANSWER_MS = 5000;

/** What a page has of its server's end. */
export interface IPage {
  model: IGpuModel;
  trans: TranslationBundle;
  /** JupyterLab's own words. */
  lab: TranslationBundle;
  hub: IHub;
  /** JupyterLab asks its server nothing while this says that it is not connected; null: not in JupyterLab. */
  status: Pick<JupyterLab.IInfo, 'isConnected'> | null;
  /** The paths of what is open and not saved. */
  unsaved: () => string[];
  /** The hub's own way to start this server. */
  restart: () => void;
}

/** One box once a stop: ours or the hub's. It goes when the server is there again. */
export class ServerGone {
  constructor(private _page: IPage) {
    _page.model.changed.connect(this._changed);
    this._changed();
  }

  /** What JupyterLab calls when a request failed. */
  readonly connectionLost: IConnectionLost = async (manager, error, translator) => {
    const { model, hub } = this._page;
    if (!hub.hubPrefix) {
      return ConnectionLost(manager, error, translator);
    }
    if (this._asks) {
      return;
    }
    this._asks = true;
    this._connected(false);
    await verdict(model);
    // of a server that does not run the box is there by then, and where we hear it again there is nothing to say
    if (model.connection !== 'stopped' && model.connection !== 'open') {
      await this._hubBox();
    }
    this._connected(model.connection !== 'stopped');
    this._asks = false;
  };

  private _changed = (): void => {
    const { model } = this._page;
    const { connection } = model;
    if (connection === 'open') {
      if (this._told !== null) {
        this._connected(true);
      }
      this._box?.dispose();
      this._box = this._told = null;
      return;
    }
    const stop = stopOf(model, model.now());
    if (connection === 'stopped') {
      this._connected(false);
    } else if (stop === null) {
      return;
    }
    const told = stop?.countdown.stops_at ?? '';
    if (told === this._told) {
      return;
    }
    this._told = told;
    if (stop === null) {
      void this._hubBox();
    } else if (stop.countdown.reason.reason !== COMES_BACK) {
      void this._stopBox(stop);
    }
  };

  private async _stopBox(stop: IStop): Promise<void> {
    const { model, trans, hub, unsaved } = this._page;
    const now = model.now();
    const open = unsaved();
    const found = starts(hub, model.snapshot?.server ?? null, window.location.pathname).reverse();
    const buttons = found.map(({ kind }) => {
      const label = startLabel(kind, trans);
      return kind === 'again' ? Dialog.okButton({ label }) : Dialog.cancelButton({ label });
    });
    const button = await this._launch({
      title: stopTitle(stop, now, trans),
      body: `${stopReason(stop, now, trans)} ${lossText(open, trans)}`,
      buttons: [Dialog.cancelButton({ label: trans.__('Close') }), ...buttons],
      defaultButton: buttons.length,
      hasClose: false // a click beside it is no answer
    });
    const chosen = found.find(({ kind }) => startLabel(kind, trans) === button?.label);
    if (chosen) {
      window.open(chosen.url, open.length > 0 ? '_blank' : '_self'); // what is not saved stays on this page
    }
  }

  /** The box of JupyterLab's own hub extension, in its own words: ours takes its place and cannot call it. */
  private async _hubBox(): Promise<void> {
    const { model, lab, hub, restart } = this._page;
    if (!hub.hubPrefix) {
      return;
    }
    const button = await this._launch({
      title: lab.__('Server unavailable or unreachable'),
      body: lab.__(
        'Your server at %1 is not running.\nWould you like to restart it?',
        model.signInUrl
      ),
      buttons: [
        Dialog.okButton({ label: lab.__('Restart') }),
        Dialog.cancelButton({ label: lab.__('Dismiss') })
      ]
    });
    if (button?.accept) {
      restart();
    }
  }

  /** Show this box in the place of another of ours; null: it went without an answer. */
  private async _launch(
    options: Partial<Dialog.IOptions<unknown>>
  ): Promise<Dialog.IButton | null> {
    this._box?.dispose();
    const box = new Dialog(options);
    this._box = box;
    try {
      return (await box.launch()).button;
    } catch {
      return null;
    }
  }

  private _connected(connected: boolean): void {
    const { status } = this._page;
    if (status) {
      status.isConnected = connected;
    }
  }

  private _box: Dialog<unknown> | null = null;
  /** Of which stop; "": of one that nobody gave a reason for; null: none. */
  private _told: string | null = null;
  private _asks = false;
}

/** Wait until it is known whether the server runs, for a while. */
async function verdict(model: IGpuModel): Promise<void> {
  const open = (): boolean => ['connecting', 'open', 'lost'].includes(model.connection);
  await new Promise<void>(resolve => {
    const changed = (): void => {
      if (!open()) {
        done();
      }
    };
    const done = (): void => {
      window.clearTimeout(timer);
      model.changed.disconnect(changed);
      resolve();
    };
    const timer = window.setTimeout(done, ANSWER_MS);
    model.changed.connect(changed);
    changed();
  });
}
