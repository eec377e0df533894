/**
 * What administrators wrote to this server's user: a notification each, which stays until it is closed.
 *
 * It is shown with the panel closed too, after a reload, and after the server has stopped.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { reasonText } from './format.js';
import type { Reason, Snapshot } from './messages';
import type { IGpuModel } from './model';

const FROM_ADMIN = 'from-admin';
/** Where the browser keeps which letters were closed. */
const READ = 'jupyterhub-gpu:letters';

const nameOf = ({ message }: Reason): string => message + '\n';
const read = (): string => localStorage.getItem(READ) ?? '';

/** Those of a snapshot, the newest first. */
export function lettersOf(snapshot: Snapshot | null): Reason[] {
  return (snapshot?.server?.warnings ?? []).filter(({ reason }) => reason === FROM_ADMIN);
}

/** Those that were not closed in this browser. */
export function unread(snapshot: Snapshot | null): Reason[] {
  return lettersOf(snapshot).filter(each => !read().includes(nameOf(each)));
}

/** Shows each letter once a page. */
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
