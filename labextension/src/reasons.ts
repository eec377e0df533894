// Made by scripts/generate-types.py from hub_extensions/core/reasons.py. Change that file, not this one.
import type { TranslationBundle } from '@jupyterlab/translation';

/** What a reason says: each of its parameters with how it is written, and the sentence they are put into. */
export interface ISentence {
  params: [name: string, kind: string][];
  /** The parameter that is a number of things, where one is said in another way. */
  count?: string;
  words: (trans: TranslationBundle, parts: string[], count: number) => string;
}

/** By the reason's code. */
// prettier-ignore
export const SENTENCES = new Map<string, ISentence>([
  ['one-free', {
    params: [],
    words: trans => trans.__('One is free.')
  }],
  ['starts-now', {
    params: [],
    words: trans => trans.__('It starts now.')
  }],
  ['not-known-which-free', {
    params: [],
    words: trans => trans.__('It is not known which GPUs are free.')
  }],
  ['others-start', {
    params: [],
    words: trans => trans.__('Other servers are starting; this takes a minute or two.')
  }],
  ['line-elsewhere', {
    params: [['queue', 'text']],
    words: (trans, parts) => trans.__('%1 hands out the GPUs here and does not say how long it takes.', ...parts)
  }],
  ['cut-as-asked', {
    params: [],
    words: trans => trans.__('GPUs are cut as they are asked for here: it depends on what others ask for.')
  }],
  ['free-one-taken-outside', {
    params: [],
    words: trans => trans.__('Something outside this hub took the GPU that was free.')
  }],
  ['parts-differ', {
    params: [],
    words: trans => trans.__('Parts of different sizes are handed out here: it depends on how they fit.')
  }],
  ['no-limit', {
    params: [],
    words: trans => trans.__('How long others keep their GPU has no limit here.')
  }],
  ['one-without-limit', {
    params: [],
    words: trans => trans.__('It depends on a server or program that has no time limit.')
  }],
  ['limits-ahead', {
    params: [],
    words: trans => trans.__('The servers ahead end by their time limit at the latest.')
  }],
  ['limits-ahead-unless-outside', {
    params: [],
    words: trans => trans.__('The servers ahead end by their time limit at the latest, unless others in the cluster come first.')
  }],
  ['idle', {
    params: [['idle', 'duration']],
    words: (trans, parts) => trans.__('Idle for %1.', ...parts)
  }],
  ['unopened', {
    params: [['since', 'duration']],
    words: (trans, parts) => trans.__('Nobody has opened it since it started %1 ago.', ...parts)
  }],
  ['lifetime', {
    params: [['limit', 'duration']],
    words: (trans, parts) => trans.__('The time limit of %1 ends.', ...parts)
  }],
  ['no-activity', {
    params: [['quiet', 'duration']],
    words: (trans, parts) => trans.__('No activity for %1.', ...parts)
  }],
  ['gpu-in-use', {
    params: [],
    words: trans => trans.__('Its GPU is in use.')
  }],
  ['gpu-used-just-now', {
    params: [],
    words: trans => trans.__('Its GPU was used just now.')
  }],
  ['use-not-known', {
    params: [],
    words: trans => trans.__('The use of its GPU is not known, so it is not stopped for idleness.')
  }],
  ['rule', {
    params: [['idle', 'duration'], ['warn', 'duration']],
    words: (trans, parts) => trans.__('Stops when its GPU is idle for %1 (you are warned %2 before).', ...parts)
  }],
  ['rule-at-most', {
    params: [['idle', 'duration'], ['warn', 'duration'], ['limit', 'duration']],
    words: (trans, parts) => trans.__('Stops when its GPU is idle for %1 (you are warned %2 before); at most %3.', ...parts)
  }],
  ['rule-by-offer', {
    params: [['idle', 'duration'], ['longest', 'duration'], ['warn', 'duration']],
    words: (trans, parts) => trans.__('Stops when its GPU is idle for %1 to %2, depending on the offer (you are warned %3 before).', ...parts)
  }],
  ['rule-by-offer-at-most', {
    params: [['idle', 'duration'], ['longest', 'duration'], ['warn', 'duration'], ['limit', 'duration']],
    words: (trans, parts) => trans.__('Stops when its GPU is idle for %1 to %2, depending on the offer (you are warned %3 before); at most %4.', ...parts)
  }],
  ['rule-cpu', {
    params: [['quiet', 'duration']],
    words: (trans, parts) => trans.__('Stops after %1 without activity.', ...parts)
  }],
  ['rule-use-not-known', {
    params: [],
    words: trans => trans.__('The use of its GPU is not known now, so it is not stopped for being idle.')
  }]
]);
