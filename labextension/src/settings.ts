/**
 * The user's settings of the panel (`schema/panel.json`). A setting that cannot be read has its default.
 */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { Unit } from './units';

/** The plugin that the schema belongs to. */
export const SETTINGS_OF = 'jupyterhub-gpu:panel';

/** The user's settings. */
export interface GpuSettings {
  /** Seconds between two updates, 1 to 60. */
  intervalSeconds: number;
  unit: Unit;
  statusBar: 'both' | 'memory' | 'use' | 'nothing';
  /** Warn only when at most this many minutes are left; null: when the service warns. */
  warnMinutes: number | null;
  /** Whether the panel has opened by itself already, or shall not. */
  opened: boolean;
  /** Whether the end of a training of 10 min or more is a notification. */
  trainingNotice: boolean;
}

export const DEFAULTS: GpuSettings = {
  intervalSeconds: 1,
  unit: 'GiB',
  statusBar: 'both',
  warnMinutes: null,
  opened: false,
  trainingNotice: true
};

const UNITS: readonly Unit[] = ['GiB', 'GB'];
const IN_STATUS_BAR: readonly GpuSettings['statusBar'][] = ['both', 'memory', 'use', 'nothing'];

/** The settings in what JupyterLab read. It does not check an admin's overrides, so each value is checked here. */
export function readSettings(composite: ReadonlyPartialJSONObject): GpuSettings {
  const { interval, unit, statusBar, warnBefore, opened, trainingNotice } = composite;
  return {
    intervalSeconds: within(interval, 1, 60) ?? DEFAULTS.intervalSeconds,
    unit: UNITS.find(one => one === unit) ?? DEFAULTS.unit,
    statusBar: IN_STATUS_BAR.find(one => one === statusBar) ?? DEFAULTS.statusBar,
    warnMinutes: within(warnBefore, 1, 60),
    opened: opened === true,
    trainingNotice: trainingNotice !== false
  };
}

/**
 * Follow the user's settings for the lifetime of the page.
 * @param use - called with the settings, at once and after every change.
 * @param unreadable - called if the settings cannot be read; `use` gets the defaults then.
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
    unreadable(); // JupyterLab has logged the reason to the console
    use(DEFAULTS);
  }
}

/** For a file that does not match the schema, JupyterLab's server returns an empty object and only logs it. */
function wasEmptied(
  plugin: (ISettingRegistry.IPlugin & { last_modified?: unknown }) | undefined
): boolean {
  return plugin?.raw === '{}' && Boolean(plugin.last_modified);
}

function within(value: unknown, least: number, most: number): number | null {
  return typeof value === 'number' && value >= least && value <= most ? value : null;
}
