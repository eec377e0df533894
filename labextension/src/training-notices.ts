/**
 * Notifications in JupyterLab: that the server ends before a training, once per run, and that a training has ended.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { isReached } from './format.js';
import type { IGpuModel } from './model';
import { canExtend, extendLabel, lateOf } from './training-end.js';
import { isRunning, NOTICE_MS, noticeText } from './training-text.js';
import { doAndTell } from './warning.js';

/** Key of the browser's storage for the last runs whose server ends too early, so that a reload does not repeat it. */
const WARNED = 'jupyterhub-gpu:late-trainings';
const MAX_KEPT = 400;

export class TrainingNotices {
  constructor(
    private _model: IGpuModel,
    private _trans: TranslationBundle
  ) {
    _model.changed.connect(this._changed);
    this._changed();
  }

  private _changed = (): void => {
    const { _model: model, _trans: trans } = this;
    const { snapshot, connection, settings } = model;
    const now = model.now();
    if (snapshot === null || !isReached(snapshot, connection, now)) {
      return;
    }
    const late = lateOf(snapshot, now, trans);
    const warned = localStorage.getItem(WARNED) ?? '';
    if (late === null) {
      Notification.dismiss(this._id);
      this._id = '';
    } else if (!warned.includes(`${late.run}\n`)) {
      localStorage.setItem(WARNED, `${warned}${late.run}\n`.slice(-MAX_KEPT));
      const { server } = snapshot;
      const callback = (): void => void doAndTell(model, trans, () => model.extend());
      this._id = Notification.warning(late.text, {
        actions:
          server && canExtend(server) ? [{ label: extendLabel(server, trans), callback }] : [],
        autoClose: false
      });
    }
    for (const training of snapshot.trainings ?? []) {
      const { run, started, ended_at, at } = training;
      if (isRunning(training)) {
        this._running.add(run);
      } else if (this._running.delete(run) && settings.trainingNotice) {
        if (Date.parse(ended_at ?? at) - Date.parse(started) >= NOTICE_MS) {
          Notification.info(noticeText(training, now, trans), { autoClose: false });
        }
      }
    }
  };

  private _running = new Set<string>();
  private _id = '';
}
