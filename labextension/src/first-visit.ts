/**
 * Opens the panel by itself once, at the first visit to a server with a GPU; the user's settings remember it.
 */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { IGpuModel } from './model';
import { readSettings, SETTINGS_OF } from './settings.js';

/** Open it as soon as a GPU is known, but for who has had it opened before. */
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
    if ((model.snapshot?.gpus.length ?? 0) === 0) {
      return;
    }
    model.changed.disconnect(look);
    open();
    void settings.set('opened', true).catch(() => undefined);
  };
  model.changed.connect(look);
  look();
}
