/**
 * Opens the panel by itself once, at the first visit to a server with a GPU; the user's settings remember it.
 */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { IGpuModel } from './model';
import { readSettings, SETTINGS_OF } from './settings.js';

/** Narrower, the panel would be cut off, or leave no room for what is worked on. */
const WIDE_ENOUGH = 1000;

/** Open it as soon as a GPU is known and there is room, but for who has had it opened before. */
export async function openOnce(
  model: IGpuModel,
  registry: Pick<ISettingRegistry, 'load'>,
  open: () => void
): Promise<void> {
  let settings: ISettingRegistry.ISettings;
  try {
    settings = await registry.load(SETTINGS_OF);
  } catch {
    return; // what cannot be read cannot be remembered, and it would open each time
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
