/**
 * When this server stops, why, and *keep*.
 */
import * as React from 'react';

import {
  alsoTexts,
  endText,
  keepLabel,
  keepLeft,
  reasonText,
  refusalText,
  secondsLeft,
  standsText
} from './format';
import type { Reason, ServerState } from './messages';
import type { Keeping } from './model';
import type { IShown } from './seen';
import { signWords } from './signs';
import { clock, duration } from './units';
import { Explained, More } from './words';

interface IServer extends IShown {
  server: ServerState | null;
  /** Why the service is away; what is known of the end may be wrong then. Null if it is not. */
  note: Reason | null;
  keeping: Keeping;
  keep: () => void;
  /** Asks how to give the GPU back; null if there is none, or the service is away. */
  giveBack: (() => void) | null;
}

export function Server(props: IServer): JSX.Element | null {
  const { server, note, trans, now } = props;
  if (server === null && note === null) {
    return null;
  }
  return (
    <>
      <h3>{trans.__('This server')}</h3>
      {note !== null ? (
        <>
          <p>{reasonText(note, now, trans)}</p>
          {server ? (
            // an outage moves every end by its length, so any time shown now would be wrong
            <p>{standsText(trans)}</p>
          ) : null}
        </>
      ) : null}
      {server && note === null ? <Stop {...props} server={server} /> : null}
    </>
  );
}

function Stop({
  server,
  keeping,
  keep,
  giveBack,
  trans,
  now
}: IServer & { server: ServerState }): JSX.Element {
  const { countdown } = server;
  const left = secondsLeft(countdown, now);
  const ends = endText(server, now, trans);
  return (
    <>
      {countdown && left !== null ? (
        <p className={countdown.warn ? 'jp-gpu-Warning' : undefined}>
          {reasonText(countdown.reason, now, trans)} {reasonText(countdown.no_keep, now, trans)}{' '}
          {left > 0 ? (
            <>
              {trans.__('Stops in %1', duration(left, trans))} (
              <time dateTime={countdown.stops_at}>{clock(countdown.stops_at, now)}</time>
              ).
            </>
          ) : (
            trans.__('Stopping now.')
          )}
        </p>
      ) : null}
      {(countdown ? alsoTexts(countdown, now, trans) : []).map(text => (
        <p key={text}>{text}</p>
      ))}
      {countdown?.can_keep && server.keep ? (
        <p className="jp-gpu-Keep">
          {server.keep.left > 0 ? (
            <More label={keepLabel(server, trans)} keeping={keeping} ask={keep} />
          ) : null}
          <span>
            <Explained text={keepLeft(server.keep, trans)} trans={trans} />
          </span>
        </p>
      ) : null}
      {typeof keeping === 'object' ? (
        <p className="jp-gpu-Warning">{refusalText(keeping.refused, now, trans)}</p>
      ) : null}
      {ends === '' ? null : (
        <p>
          <Explained text={ends} trans={trans} />
        </p>
      )}
      {giveBack ? (
        <p>
          <button type="button" className="jp-gpu-Small" onClick={giveBack}>
            {trans.__('Give the GPU back …')}
          </button>
        </p>
      ) : null}
      {server.signs?.length ? (
        <details>
          <summary>{trans.__('What is known of its use')}</summary>
          <dl>
            {server.signs.map((sign, _, signs) => {
              const { name, text } = signWords(sign, signs, now, trans);
              return (
                <div className="jp-gpu-Row" key={sign.kind}>
                  <dt>{name}</dt>
                  <dd>{text}</dd>
                </div>
              );
            })}
          </dl>
        </details>
      ) : null}
    </>
  );
}
