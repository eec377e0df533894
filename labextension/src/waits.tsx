/**
 * The waits for other offers that are full, and why. If none is full, the free offers in a closed disclosure.
 * It shows numbers of people, never names.
 */
import * as React from 'react';

import { freeText, offerName, reasonText, takeWords, waitsAgeWords, waitText } from './format';
import type { OfferState } from './messages';
import type { IShown } from './seen';
import { Explained } from './words';

export function Waits({
  offers,
  hasGpu,
  trans,
  now
}: IShown & { offers: OfferState[]; hasGpu: boolean }): JSX.Element | null {
  const full = offers.filter(offer => !offer.wait.now);
  // without a GPU, the top of the panel already shows what is free
  const take = hasGpu ? takeWords(offers, trans) : '';
  if (full.length === 0) {
    // nothing to wait for: other choices are shown on request
    return take === '' ? null : (
      <details>
        <summary>{trans.__('Another GPU instead')}</summary>
        <p>{take}</p>
      </details>
    );
  }
  const age = waitsAgeWords(offers, now, trans);
  return (
    <>
      <h3>{trans.__('Waits now')}</h3>
      {take === '' ? null : <p>{take}</p>}
      <dl>
        {full.map((offer, place) => (
          <div className="jp-gpu-Wait" key={offer.id}>
            <dt className="jp-gpu-Row">
              <strong>{offerName(offer, trans)}</strong> <span>{freeText(offer, trans)}</span>
            </dt>
            <dd>
              {place === 0 ? (
                <Explained text={waitText(offer, trans)} trans={trans} />
              ) : (
                waitText(offer, trans)
              )}
            </dd>
            {offer.wait.reason === null || offer.wait.reason.reason === offer.wait.note ? null : (
              <dd className="jp-gpu-Detail">{reasonText(offer.wait.reason, now, trans)}</dd>
            )}
          </div>
        ))}
      </dl>
      {age === '' ? null : <p className="jp-gpu-Detail">{age}</p>}
    </>
  );
}
