/**
 * What is said of a training run: how far it is, how long it still takes, how it ended. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { Training } from './messages';
import { clock, duration, number, secondsSince } from './units.js';

/** A running training that does not report for so long is shown with the time of its last report. */
const SILENT_SECONDS = 120;
/** Steps may be longer than that. */
const STEPS_OF_SILENCE = 3;
/** Up to this percentage, the earlier runs are shown beside the forecast. */
const BEGINNING = 10;
/** A shorter run gives no notice at its end. */
export const NOTICE_MS = 600_000;

export function isRunning({ state }: Training): boolean {
  return state === 'running';
}

/** The trainings of a snapshot: the one with the most time left first, then the ended ones, the newest first. */
export function sorted(trainings: Training[], now: number): Training[] {
  const key = (one: Training): number => (isRunning(one) ? (secondsLeft(one, now) ?? -1) : -2);
  const at = (one: Training): number => Date.parse(one.at);
  return [...trainings].sort((one, two) => key(two) - key(one) || at(two) - at(one));
}

/** Seconds that a run still takes, counted down since its report; null if it is not known. */
export function secondsLeft({ left_seconds, at }: Training, now: number): number | null {
  return left_seconds === null ? null : Math.max(0, left_seconds - secondsSince(at, now));
}

/** Whole percents of the steps that are done; null if their number is not known. */
export function donePercent({ steps, total_steps }: Training): number | null {
  return total_steps ? Math.min(100, Math.floor((100 * steps) / total_steps)) : null;
}

/** "mnist · epoch 14 of 20"; "" if nothing of it is known. */
export function headText(training: Training, trans: TranslationBundle): string {
  const { name, epoch, epochs, outside } = training;
  const parts = [
    name,
    epoch === null
      ? ''
      : epochs === null
        ? trans.__('epoch %1', epoch)
        : trans.__('epoch %1 of %2', epoch, epochs),
    outside ? trans.__('from outside this server') : ''
  ];
  return parts.filter(part => part !== '').join(' · ');
}

/** "25 min left", "at least 12 min left", "at most 2 h left"; "" if it is not known. */
export function leftText(training: Training, now: number, trans: TranslationBundle): string {
  const left = secondsLeft(training, now);
  if (left === null) {
    return '';
  }
  if (training.bound === 'at-least') {
    return trans.__('at least %1 left', duration(left, trans));
  }
  if (left < 60) {
    return trans.__('less than 1\u00a0min left');
  }
  return training.bound === 'at-most'
    ? trans.__('at most %1 left', duration(left, trans, true))
    : trans.__('%1 left', duration(left + 30, trans));
}

/** "likely done at 21:40 (21:20–22:05)", or what the bound means; "" if the end is not known. */
export function likelyText(training: Training, now: number, trans: TranslationBundle): string {
  const left = secondsLeft(training, now);
  if (left === null) {
    return '';
  }
  const { at, bound, low_seconds, high_seconds } = training;
  if (bound === 'at-least') {
    return trans.__('How long a validation takes is not known yet.');
  }
  const done = clock(now + 1000 * left, now);
  if (bound === 'at-most') {
    return trans.__('done at %1 at the latest; it may stop early', done);
  }
  const [low, high] = [low_seconds, high_seconds].map(seconds =>
    seconds === null ? done : clock(Math.max(now, Date.parse(at) + 1000 * seconds), now)
  );
  return low === high
    ? trans.__('likely done at %1', done)
    : trans.__('likely done at %1 (%2–%3)', done, low, high);
}

/** "13,600 of 20,000 steps, 0.31 s each"; "1,240 steps, 0.31 s each" if the end is not known. */
export function stepsText(training: Training, trans: TranslationBundle): string {
  const { steps, total_steps, step_seconds } = training;
  const counted =
    total_steps === null
      ? trans._n('%2 step', '%2 steps', steps, number(steps))
      : trans.__('%1 of %2 steps', number(steps), number(total_steps));
  return step_seconds === null
    ? counted
    : trans.__('%1, %2 each', counted, precise(step_seconds, trans));
}

/** "Slower than before: 0.9 s per step instead of 0.4 s."; "" if it is not. */
export function paceText(training: Training, trans: TranslationBundle): string {
  const { step_seconds, usual_step_seconds } = training;
  return step_seconds === null || usual_step_seconds === null
    ? ''
    : trans.__(
        'Slower than before: %1 per step instead of %2.',
        precise(step_seconds, trans),
        precise(usual_step_seconds, trans)
      );
}

/** "Your last 4 runs took 12 min here.", as long as the forecast is young; "" after that, and without such runs. */
export function usualText(training: Training, trans: TranslationBundle): string {
  const { usual_seconds, usual_runs, bound } = training;
  const young = bound !== 'about' || (donePercent(training) ?? 0) < BEGINNING;
  return usual_seconds === null || !young
    ? ''
    : trans._n(
        'Your last run took %2 here.',
        'Your last %1 runs took %2 here.',
        usual_runs,
        duration(usual_seconds, trans)
      );
}

/** Since when a running training has not reported; "" while it reports. */
export function silentText(training: Training, now: number, trans: TranslationBundle): string {
  const { at, step_seconds } = training;
  const silent = secondsSince(at, now);
  return silent > Math.max(SILENT_SECONDS, STEPS_OF_SILENCE * (step_seconds ?? 0))
    ? trans.__('No report for %1, since %2.', duration(silent, trans), clock(at, now))
    : '';
}

/** "Done at 15:38.": how a run ended, and when. */
export function endedText(training: Training, now: number, trans: TranslationBundle): string {
  const at = clock(training.ended_at ?? training.at, now);
  switch (training.state) {
    case 'done':
      return trans.__('Done at %1.', at);
    case 'failed':
      return trans.__('Failed at %1.', at);
    case 'left':
      return trans.__('Left before its end, at %1.', at);
    default:
      return trans.__('Ended unexpectedly at %1.', at);
  }
}

/** The end of a run in one sentence, outside of its section: "mnist: Done at 15:38." */
export function noticeText(training: Training, now: number, trans: TranslationBundle): string {
  return `${training.name || trans.__('Training')}: ${endedText(training, now, trans)}`;
}

/** A run in one line: "mnist · epoch 3 of 20 · 15 % · 25 min left", "eda · Done at 15:38." */
export function lineText(training: Training, now: number, trans: TranslationBundle): string {
  return [headText(training, trans) || trans.__('Training'), stateText(training, now, trans)].join(
    ' · '
  );
}

/** The status bar: "training 68 % · 25 min left"; "" if none runs. */
export function statusPart(trainings: Training[], now: number, trans: TranslationBundle): string {
  const [first] = sorted(trainings.filter(isRunning), now);
  return first ? trans.__('training %1', stateText(first, now, trans)) : '';
}

function stateText(training: Training, now: number, trans: TranslationBundle): string {
  if (!isRunning(training)) {
    return endedText(training, now, trans);
  }
  const done = donePercent(training);
  const parts = [
    done === null ? stepsText(training, trans) : trans.__('%1\u00a0%', done),
    silentText(training, now, trans) || leftText(training, now, trans)
  ];
  return parts.filter(part => part !== '').join(' · ');
}

/** The length of a step with two significant digits: "0.31 s". */
function precise(seconds: number, trans: TranslationBundle): string {
  return seconds >= 60
    ? duration(seconds, trans)
    : trans.__('%1\u00a0s', number(Number(seconds.toPrecision(2)), 9));
}
