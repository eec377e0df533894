/**
 * Saves open documents before the server stops.
 *
 * A file that was changed on disk meanwhile is not overwritten: JupyterLab asks, and without an answer it stays.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IGpuModel } from './model';

// the service waits 10 s for the report; the user has to see a failure before that
const LONGEST_SAVE_MS = 8_000;

/** Save the open documents. Report success to the service, or a failure to the user. */
export async function saveAndTell(
  model: IGpuModel,
  shell: JupyterFrontEnd.IShell,
  documents: IDocumentManager,
  trans: TranslationBundle
): Promise<void> {
  const failed = await saveOpenDocuments(shell, documents);
  if (failed.length === 0) {
    await model.saved();
    return;
  }
  model.saveEnded(); // without a report the service waits until its time limit
  const text = trans.__('Not saved before the stop: %1', failed.join(', '));
  Notification.error(text, { autoClose: false });
}

/** Save all open documents with changes; returns the paths of those that could not be saved. */
export async function saveOpenDocuments(
  shell: JupyterFrontEnd.IShell,
  documents: IDocumentManager
): Promise<string[]> {
  const failed: string[] = [];
  await Promise.all(
    [...unsavedIn(shell, documents)].map(async context => {
      if (!(await isSaved(context))) {
        failed.push(context.path);
      }
    })
  );
  return failed;
}

/** The open documents with unsaved changes that can be saved at all. */
export function unsavedIn(
  shell: JupyterFrontEnd.IShell,
  documents: IDocumentManager
): Set<DocumentRegistry.Context> {
  const contexts = new Set<DocumentRegistry.Context>();
  for (const area of ['main', 'down', 'left', 'right']) {
    for (const widget of shell.widgets(area)) {
      const context = documents.contextForWidget(widget);
      if (context?.model.dirty && context.contentsModel?.writable !== false) {
        contexts.add(context);
      }
    }
  }
  return contexts;
}

async function isSaved(context: DocumentRegistry.Context): Promise<boolean> {
  const late = new Promise<void>((_, reject) =>
    window.setTimeout(() => reject(new Error('late')), LONGEST_SAVE_MS)
  );
  try {
    await Promise.race([context.save(), late]);
  } catch {
    return false; // JupyterLab has shown the reason; we show the path
  }
  return !context.model.dirty;
}
