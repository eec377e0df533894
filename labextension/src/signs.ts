/**
 * The signs of use of this server in words, one by one. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { GpuReading, ServerState, UseSign } from './messages';
import { duration, percent, secondsSince } from './units.js';

/**
 * One line: "GPU", "idle · NVML, 3 s ago", and whether the server is judged by it.
 *
 * If several signs count (`signs`), none decides alone; an unknown one decides nothing.
 */
export function signWords(
  sign: UseSign,
  signs: UseSign[],
  now: number,
  trans: TranslationBundle
): { name: string; text: string } {
  const names: Record<string, string> = {
    gpu: trans.__('GPU'),
    report: trans.__('GPU, as this server says'),
    kernels: trans.__('Kernels'),
    terminals: trans.__('Terminals'),
    activity: trans.__('Activity'),
    training: trans.__('Training')
  };
  const values: Record<string, string> = {
    busy: trans.__('busy'),
    idle: trans.__('idle'),
    unknown: trans.__('unknown')
  };
  const sources: Record<string, string> = {
    simulated: trans.__('simulated'),
    report: trans.__('this server'),
    hub: trans.__('the hub'),
    none: trans.__('nobody measures it')
  };
  const source = sources[sign.source] ?? sign.source.toUpperCase();
  const by =
    sign.at === null
      ? source
      : trans.__('%1, %2 ago', source, duration(secondsSince(sign.at, now), trans));
  const text = `${values[sign.value] ?? sign.value} · ${by}`;
  const decides = (each: UseSign): boolean => each.decides && each.value !== 'unknown';
  const alone = signs.filter(decides).length < 2;
  const judged = alone ? trans.__('%1 (this decides)', text) : trans.__('%1 (this counts)', text);
  return { name: names[sign.kind] ?? sign.kind, text: decides(sign) ? judged : text };
}

/** Use in percent below which this device counts as idle; null if its use does not decide. */
export function decidedBelow(reading: GpuReading, server: ServerState | null): number | null {
  const decides = server?.signs?.some(
    sign => sign.kind === 'gpu' && sign.decides && sign.source === reading.source
  );
  return decides ? (server?.idle_below_percent ?? null) : null;
}

/** Explains the line in the chart of use. */
export function belowText(below: number, trans: TranslationBundle): string {
  return trans.__('Below %1 it counts as idle: this curve decides.', percent(below, trans));
}
