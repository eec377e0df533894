/**
 * Shows messages from administrators as notifications that stay until they are closed.
 *
 * They are also shown while the panel is closed, after a reload, and after the server has stopped.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { reasonText } from './format.js';
import type { Reason, Snapshot } from './messages';
import type { IGpuModel } from './model';

const FROM_ADMIN = 'from-admin';
/** Key of the browser's storage for the letters that were closed. */
const READ = 'jupyterhub-gpu:letters';

const nameOf = ({ message }: Reason): string => message + '\n';
const read = (): string => localStorage.getItem(READ) ?? '';

/** The letters of a snapshot, newest first. */
export function lettersOf(snapshot: Snapshot | null): Reason[] {
  return (snapshot?.server?.warnings ?? []).filter(({ reason }) => reason === FROM_ADMIN);
}

/** The letters that were not closed in this browser. */
export function unread(snapshot: Snapshot | null): Reason[] {
  return lettersOf(snapshot).filter(each => !read().includes(nameOf(each)));
}

/** Shows each letter once per page. */
export class Letters {
  constructor(
    private _model: IGpuModel,
    private _trans: TranslationBundle
  ) {
    _model.changed.connect(this._changed);
    this._changed();
  }

  private _changed = (): void => {
    for (const letter of unread(this._model.snapshot).reverse()) {
      const name = nameOf(letter);
      if (!this._shown.includes(name)) {
        this._shown += name;
        Notification.info(reasonText(letter, this._model.now(), this._trans), {
          actions: [
            {
              label: this._trans.__('Close'),
              callback: () => localStorage.setItem(READ, read() + name)
            }
          ],
          autoClose: false
        });
      }
    }
  };

  private _shown = '';
}
