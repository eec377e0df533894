/**
 * Opens the panel by itself once, at the first visit to a server with a GPU; the user's settings remember it.
 */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { IGpuModel } from './model';
import { readSettings, SETTINGS_OF } from './settings.js';

/** Minimum width of the window: in a narrower one the panel would be cut off or leave no room for the notebook. */
const WIDE_ENOUGH = 1000;

/** Open the panel once a GPU is known and the window is wide enough, unless it was opened in an earlier visit. */
export async function openOnce(
  model: IGpuModel,
  registry: Pick<ISettingRegistry, 'load'>,
  open: () => void
): Promise<void> {
  let settings: ISettingRegistry.ISettings;
  try {
    settings = await registry.load(SETTINGS_OF);
  } catch {
    return; // without settings it cannot be remembered, and the panel would open at each visit
  }
  if (readSettings(settings.composite).opened) {
    return;
  }
  const look = (): void => {
    if ((model.snapshot?.gpus.length ?? 0) === 0 || window.innerWidth < WIDE_ENOUGH) {
      return;
    }
    model.changed.disconnect(look);
    open();
    void settings.set('opened', true).catch(() => undefined);
  };
  model.changed.connect(look);
  look();
}
