/**
 * The user's choices for the panel, as `schema/panel.json` describes them. What cannot be read is the default, and said.
 */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { Unit } from './units';

/** The plugin whose schema it is. */
export const SETTINGS_OF = 'jupyterhub-gpu:panel';

/** What the user chose. */
export interface GpuSettings {
  /** Seconds between two numbers, 1 to 60. */
  intervalSeconds: number;
  unit: Unit;
  statusBar: 'both' | 'memory' | 'use' | 'nothing';
  /** Warn only when at most so many minutes are left; null: when the service warns. */
  warnMinutes: number | null;
  /** The panel has opened by itself, or need not. */
  opened: boolean;
}

export const DEFAULTS: GpuSettings = {
  intervalSeconds: 1,
  unit: 'GiB',
  statusBar: 'both',
  warnMinutes: null,
  opened: false
};

const UNITS: readonly Unit[] = ['GiB', 'GB'];
const IN_STATUS_BAR: readonly GpuSettings['statusBar'][] = ['both', 'memory', 'use', 'nothing'];

/** The choices in what JupyterLab read; an admin's overrides are not checked by it, so each is checked here. */
export function readSettings(composite: ReadonlyPartialJSONObject): GpuSettings {
  const { interval, unit, statusBar, warnBefore, opened } = composite;
  return {
    intervalSeconds: within(interval, 1, 60) ?? DEFAULTS.intervalSeconds,
    unit: UNITS.find(one => one === unit) ?? DEFAULTS.unit,
    statusBar: IN_STATUS_BAR.find(one => one === statusBar) ?? DEFAULTS.statusBar,
    warnMinutes: within(warnBefore, 1, 60),
    opened: opened === true
  };
}

/**
 * Follow the user's choices for as long as the page lives.
 * @param use - called with the choices, at once and after every change.
 * @param unreadable - called when they cannot be read; then `use` has the defaults.
 */
export async function followSettings(
  registry: ISettingRegistry,
  use: (settings: GpuSettings) => void,
  unreadable: () => void
): Promise<void> {
  try {
    const settings = await registry.load(SETTINGS_OF);
    settings.changed.connect(() => use(readSettings(settings.composite)));
    use(readSettings(settings.composite));
    if (wasEmptied(registry.plugins[SETTINGS_OF])) {
      unreadable();
    }
  } catch {
    unreadable(); // JupyterLab has said in the console what is wrong with them
    use(DEFAULTS);
  }
}

/** JupyterLab's server gives an empty object for a file that does not fit the schema, and tells its own log only. */
function wasEmptied(
  plugin: (ISettingRegistry.IPlugin & { last_modified?: unknown }) | undefined
): boolean {
  return plugin?.raw === '{}' && Boolean(plugin.last_modified);
}

function within(value: unknown, least: number, most: number): number | null {
  return typeof value === 'number' && value >= least && value <= most ? value : null;
}
