/**
 * The user's choices for the panel, as `schema/panel.json` describes them.
 */

/** What the user chose. */
export interface GpuSettings {
  /** Seconds between two numbers, 1 to 60. */
  intervalSeconds: number;
  unit: 'GiB' | 'GB';
  statusBar: 'both' | 'memory' | 'use' | 'nothing';
  /** Warn only when at most so many minutes are left; null: when the service warns. */
  warnMinutes: number | null;
}

export const DEFAULTS: GpuSettings = {
  intervalSeconds: 1,
  unit: 'GiB',
  statusBar: 'both',
  warnMinutes: null
};
