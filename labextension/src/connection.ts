/**
 * Replaces JupyterLab's handling of a lost server: our dialog if the reason of the stop is known, else the dialog of
 * the hub extension. JupyterLab's own requests pause until the server runs again.
 *
 * Whether the server runs is decided in `model.ts`, why it was stopped in `stopped.ts`.
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

/** Time limit for the hub's answer whether the server runs. */
const ANSWER_MS = 5000;

/** What the dialogs need of the page. */
export interface IPage {
  model: IGpuModel;
  trans: TranslationBundle;
  /** JupyterLab's own translations. */
  lab: TranslationBundle;
  hub: IHub;
  /** JupyterLab sends no requests while `isConnected` is false; null outside of JupyterLab. */
  status: Pick<JupyterLab.IInfo, 'isConnected'> | null;
  /** The paths of open documents with changes that are not saved. */
  unsaved: () => string[];
  /** The hub extension's command that starts this server. */
  restart: () => void;
}

/** Shows one dialog per stop, ours or the hub's, and closes it when the server runs again. */
export class ServerGone {
  constructor(private _page: IPage) {
    _page.model.changed.connect(this._changed);
    this._changed();
  }

  /** Called by JupyterLab when a request failed. */
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
    // if the server does not run, its dialog is open by now; if it is connected again, none is needed
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
      hasClose: false // a click beside the dialog does not close it
    });
    const chosen = found.find(({ kind }) => startLabel(kind, trans) === button?.label);
    if (chosen) {
      window.open(chosen.url, open.length > 0 ? '_blank' : '_self'); // keep this page: it has unsaved changes
    }
  }

  /** The dialog of JupyterLab's own hub extension, in its words: our plugin replaces it and cannot call it. */
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

  /** Show a dialog in the place of an earlier one. Return null if it was closed without an answer. */
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
  /** The end of the stop whose dialog was shown; "" for a stop without a known reason, null if none was shown. */
  private _told: string | null = null;
  private _asks = false;
}

/** Wait until it is known whether the server runs, or until the time limit. */
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
