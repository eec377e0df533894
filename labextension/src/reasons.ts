// Made by scripts/generate-types.py from hub_extensions/core/text/reasons.py. Change that file, not this one.
import type { TranslationBundle } from '@jupyterlab/translation';

/** What a reason with parameters says: each of them with how it is written, and the sentence they are put into. */
export interface ISentence {
  params: [name: string, kind: string][];
  /** The parameter that is a number of things, where one is said in another way. */
  count?: string;
  text: (trans: TranslationBundle, parts: string[], count: number) => string;
}

/** By the reason's code. */
// prettier-ignore
export const SENTENCES = new Map<string, ISentence>([
  ['line-elsewhere', {
    params: [['queue', 'text']],
    text: (trans, parts) => trans.__('%1 hands out the GPUs here and does not say how long it takes.', ...parts)
  }],
  ['over-quota-of', {
    params: [['most', 'text'], ['what', 'text']],
    text: (trans, parts) => trans.__('The cluster\'s quota for this hub is used up: %1 of %2. It is tried again each minute, and when a server ends.', ...parts)
  }],
  ['place-ends-first', {
    params: [['hours', 'number']],
    text: (trans, parts) => trans.__('A place in line ends after %1 h, and a turn may come later than that.', ...parts)
  }],
  ['usually-end', {
    params: [['ending', 'number'], ['title', 'text'], ['total', 'number']],
    count: 'ending',
    text: (trans, parts, count) => trans._n('%2: 1 of %3 in use usually ends within the hour.', '%2: %1 of %3 in use usually end within the hour.', count, ...parts.slice(1))
  }],
  ['usually-longer', {
    params: [['title', 'text']],
    text: (trans, parts) => trans.__('%1: those in use usually go on for more than an hour.', ...parts)
  }],
  ['idle', {
    params: [['idle', 'duration']],
    text: (trans, parts) => trans.__('Idle for %1.', ...parts)
  }],
  ['idle-at-first', {
    params: [['idle', 'duration'], ['grace', 'duration']],
    text: (trans, parts) => trans.__('Idle for %1. The first %2 after a start do not count.', ...parts)
  }],
  ['idle-memory', {
    params: [['idle', 'duration']],
    text: (trans, parts) => trans.__('Its GPU holds memory and has computed nothing for %1.', ...parts)
  }],
  ['idle-never-used', {
    params: [['idle', 'duration']],
    text: (trans, parts) => trans.__('Its GPU has not been used since it started %1 ago.', ...parts)
  }],
  ['idle-promised', {
    params: [['idle', 'duration']],
    text: (trans, parts) => trans.__('Idle for %1. This server was given more time before, and keeps it.', ...parts)
  }],
  ['idle-wanted', {
    params: [['idle', 'duration']],
    text: (trans, parts) => trans.__('Idle for %1, and somebody waits for such a GPU.', ...parts)
  }],
  ['unopened', {
    params: [['since', 'duration']],
    text: (trans, parts) => trans.__('Nobody has opened it since it started %1 ago.', ...parts)
  }],
  ['lifetime', {
    params: [['limit', 'duration']],
    text: (trans, parts) => trans.__('The time limit of %1 ends.', ...parts)
  }],
  ['no-activity', {
    params: [['quiet', 'duration']],
    text: (trans, parts) => trans.__('No activity for %1.', ...parts)
  }],
  ['no-session-idle', {
    params: [['idle', 'duration']],
    text: (trans, parts) => trans.__('Idle for %1, and your sign-in service does not renew your session.', ...parts)
  }],
  ['stopped-by-admin-why', {
    params: [['why', 'text']],
    text: (trans, parts) => trans.__('An administrator stops it: %1', ...parts)
  }],
  ['from-admin', {
    params: [['at', 'time'], ['text', 'text']],
    text: (trans, parts) => trans.__('From an administrator, at %1: %2', ...parts)
  }],
  ['rule', {
    params: [['idle', 'duration'], ['warn', 'duration']],
    text: (trans, parts) => trans.__('Stops when its GPU is idle for %1 (you are warned %2 before).', ...parts)
  }],
  ['rule-at-most', {
    params: [['idle', 'duration'], ['warn', 'duration'], ['limit', 'duration']],
    text: (trans, parts) => trans.__('Stops when its GPU is idle for %1 (you are warned %2 before); it runs at most %3.', ...parts)
  }],
  ['rule-by-offer', {
    params: [['idle', 'duration'], ['longest', 'duration'], ['warn', 'duration']],
    text: (trans, parts) => trans.__('Stops when its GPU is idle for %1 to %2, depending on the offer (you are warned %3 before).', ...parts)
  }],
  ['rule-by-offer-at-most', {
    params: [['idle', 'duration'], ['longest', 'duration'], ['warn', 'duration'], ['limit', 'duration']],
    text: (trans, parts) => trans.__('Stops when its GPU is idle for %1 to %2, depending on the offer (you are warned %3 before); it runs at most %4.', ...parts)
  }],
  ['rule-wanted', {
    params: [['idle', 'duration'], ['wanted', 'duration'], ['warn', 'duration']],
    text: (trans, parts) => trans.__('Stops when its GPU is idle for %1, or for %2 while somebody waits for one (you are warned %3 before).', ...parts)
  }],
  ['rule-wanted-at-most', {
    params: [['idle', 'duration'], ['wanted', 'duration'], ['warn', 'duration'], ['limit', 'duration']],
    text: (trans, parts) => trans.__('Stops when its GPU is idle for %1, or for %2 while somebody waits for one (you are warned %3 before); it runs at most %4.', ...parts)
  }],
  ['rule-cpu', {
    params: [['quiet', 'duration']],
    text: (trans, parts) => trans.__('Stops after %1 without activity.', ...parts)
  }],
  ['keep-lifetime', {
    params: [['limit', 'duration']],
    text: (trans, parts) => trans.__('The time limit of %1 ends. That end cannot be moved.', ...parts)
  }],
  ['keep-none-left', {
    params: [['times', 'number'], ['day', 'duration'], ['wait', 'duration']],
    count: 'times',
    text: (trans, parts, count) => trans._n('You have pressed Keep once in %2, which is all; again in %3.', 'You have pressed Keep %1 times in %2, which is all; again in %3.', count, ...parts.slice(1))
  }],
  ['training-too-long', {
    params: [['ends', 'time'], ['stops', 'time']],
    text: (trans, parts) => trans.__('Your training ends about %1; this server ends at %2.', ...parts)
  }],
  ['training-too-short', {
    params: [['least', 'duration']],
    text: (trans, parts) => trans.__('There is a notice only for a training of at least %1.', ...parts)
  }],
  ['away-since', {
    params: [['since', 'time']],
    text: (trans, parts) => trans.__('The GPU service is not answering since %1.', ...parts)
  }],
  ['odd-answer', {
    params: [['status', 'text']],
    text: (trans, parts) => trans.__('The GPU service answered with %1.', ...parts)
  }],
  ['driver-silent', {
    params: [['since', 'time']],
    text: (trans, parts) => trans.__('The GPU driver is not answering since %1.', ...parts)
  }],
  ['read-failed', {
    params: [['why', 'text']],
    text: (trans, parts) => trans.__('The GPU cannot be read: %1', ...parts)
  }],
  ['figures-old', {
    params: [['since', 'time']],
    text: (trans, parts) => trans.__('Use comes from the site\'s monitoring, which has said nothing new since %1.', ...parts)
  }],
  ['nvml-other', {
    params: [['code', 'text']],
    text: (trans, parts) => trans.__('The NVIDIA driver answers with error %1. Restart the server; if that does not help, tell the administrator.', ...parts)
  }]
]);
