/**
 * Terms that need an explanation, each a button that shows one sentence; and the button for more time.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { Keeping } from './model';

/** The button that gives this server more time; disabled while the service is asked. */
export function More({
  label,
  keeping,
  ask
}: {
  label: string;
  keeping: Keeping;
  ask: () => void;
}): JSX.Element {
  return (
    <button
      type="button"
      className="jp-mod-styled jp-mod-accept"
      disabled={keeping === 'asking'}
      onClick={ask}
    >
      {label}
    </button>
  );
}

/** A term and its explanation, opened and closed by the browser itself (popover). */
export function Word({ word, sentence }: { word: string; sentence: string }): JSX.Element {
  const id = React.useId();
  // React 18 does not know these attributes and passes them on unchanged
  const opens: Record<string, string> = { popovertarget: id };
  const opened: Record<string, string> = { popover: 'auto' };
  return (
    <>
      <button type="button" className="jp-gpu-Word" aria-describedby={id} {...opens}>
        {word}
      </button>
      <span id={id} className="jp-gpu-Help" {...opened}>
        {sentence}
      </span>
    </>
  );
}

/** A text in which known terms get their explanation, each once. */
export function Explained({
  text,
  trans
}: {
  text: string;
  trans: TranslationBundle;
}): JSX.Element {
  const sentences: Record<string, string> = {
    [trans.__('is idle')]: trans.__(
      'No program of yours computes on the GPU; a cell that uses it starts the time anew.'
    ),
    [trans.__('likely')]: trans.__('Eight waits of ten are as long as this. It is no promise.'),
    [trans.__('at most')]: trans.__('A limit that is enforced: it does not take longer.'),
    [trans.__('Keep:')]: trans.__(
      'Each press gives this server more time before it stops for being idle.'
    )
  };
  const parts = Object.entries(sentences).reduce<(string | JSX.Element)[]>(
    (found, [word, sentence]) => {
      const place = found.findIndex(each => typeof each === 'string' && each.includes(word));
      const part = found[place];
      if (typeof part !== 'string') {
        return found;
      }
      const at = part.indexOf(word);
      return [
        ...found.slice(0, place),
        part.slice(0, at),
        <Word key={word} word={word} sentence={sentence} />,
        part.slice(at + word.length),
        ...found.slice(place + 1)
      ];
    },
    [text]
  );
  return <>{parts}</>;
}
