/**
 * Saves what is open and not saved yet, because the server is about to stop.
 *
 * A file that somebody else changed meanwhile is not overwritten: JupyterLab asks, and where nobody answers it stays.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IGpuModel } from './model';

// the service waits 10 s for "saved": the user has to hear of a failure before that
const LONGEST_SAVE_MS = 8_000;

/** Save what is open, and tell the service, or the user what could not be saved. */
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
  model.saveEnded(); // the service is not told "saved": it gives the time it has
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

/** The open documents with changes that can be saved at all. */
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
    return false; // JupyterLab has told the user why; the path is told by us
  }
  return !context.model.dirty;
}
