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
  }]
]);
