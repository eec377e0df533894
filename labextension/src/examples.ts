/**
 * Opens a copy of a notebook of ours in the user's folder. A file that is there already is never overwritten.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { errorText, example } from './api';

/** So many copies are numbered; a further one keeps the name that JupyterLab gives a new notebook. */
const MOST_COPIES = 20;

/** @param folder - where the copy is made, as the contents manager names it. */
export async function openExample(
  { commands, serviceManager }: JupyterFrontEnd,
  trans: TranslationBundle,
  name: string,
  folder = ''
): Promise<void> {
  const { contents, serverSettings } = serviceManager;
  try {
    const content = await example(serverSettings, name);
    let { path } = await contents.newUntitled({ path: folder, type: 'notebook' });
    await contents.save(path, { type: 'notebook', format: 'json', content });
    for (let copy = 0; copy < MOST_COPIES; copy++) {
      const wanted = PathExt.join(folder, `${name}${copy ? `-${copy}` : ''}.ipynb`);
      try {
        ({ path } = await contents.rename(path, wanted)); // refused if there is such a file
        break;
      } catch {
        continue;
      }
    }
    await commands.execute('docmanager:open', { path });
  } catch (error) {
    const text = trans.__('The example was not opened: %1', errorText(error));
    Notification.error(text, { autoClose: false });
  }
}
