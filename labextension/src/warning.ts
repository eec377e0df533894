/**
 * The warning before a stop as a JupyterLab notification, with the same button as in the panel.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { keepLabel, warningWords } from './format';
import type { IGpuModel } from './model';

/** Warns once a countdown; takes the warning back when the server is kept. */
export class Warning {
  constructor(
    private _model: IGpuModel,
    private _trans: TranslationBundle
  ) {
    _model.changed.connect(this._changed);
    this._changed();
  }

  private _changed = (): void => {
    const snapshot = this._model.snapshot;
    const server = snapshot?.server;
    const countdown = server?.countdown;
    // while the service is away the countdown stands still: its time would be wrong
    if (!server || !countdown?.warn || snapshot.service_note !== '') {
      this._takeBack();
      return;
    }
    const key = `${countdown.cause} ${countdown.stops_at.slice(0, 16)}`;
    if (this._key === key) {
      return;
    }
    this._takeBack();
    this._key = key;
    const actions: Notification.IAction[] = [];
    if (countdown.can_keep && server.keep && server.keep.left > 0) {
      actions.push({
        label: keepLabel(server, this._trans),
        callback: () => void this._model.keep()
      });
    }
    const words = warningWords(countdown, this._model.now(), this._trans);
    this._id = Notification.warning(words, { actions, autoClose: false });
  };

  private _takeBack(): void {
    if (this._id !== null) {
      Notification.dismiss(this._id);
    }
    this._id = null;
    this._key = '';
  }

  private _id: string | null = null;
  private _key = '';
}
