/**
 * The panel in the right sidebar: chooses the view and arranges its parts (`device.tsx`, `server.tsx`, `waits.tsx`).
 *
 * It shows the state of the model and sends no requests.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Devices } from './device';
import { COMES_BACK, warnedOf } from './end';
import {
  announcement,
  freeNow,
  isReached,
  offerName,
  reasonText,
  stopText,
  viewOf,
  warningsOf
} from './format';
import { canGiveBack } from './give-back';
import { lettersOf } from './letters';
import type { Countdown } from './messages';
import type { IGpuModel } from './model';
import { type IShown, SeenWidget } from './seen';
import { Server } from './server';
import { awayText, helpUrl, type IHub, lossText, startLabel, starts, stopOf } from './stopped';
import { Examples, Trainings } from './training';
import { type ILate, lateOf } from './training-end';
import { Waits } from './waits';

/** What the panel needs beside the model. */
export interface IAround {
  hub: IHub;
  giveBack: () => void;
  /** Opens a copy of a notebook that shows how a training reports its progress. */
  example: (name: string) => void;
  /** The paths of open documents with changes that are not saved. */
  unsaved: () => string[];
}

export class GpuPanel extends SeenWidget {
  constructor(
    model: IGpuModel,
    trans: TranslationBundle,
    private _around: IAround
  ) {
    super(model, trans);
    this.addClass('jp-gpu-Panel');
  }

  protected override render(): JSX.Element {
    const { model, trans } = this;
    const { snapshot } = model;
    const shown = this.shown();
    const reached = snapshot !== null && isReached(snapshot, model.connection, shown.now);
    const server = reached ? snapshot.server : null;
    const note = reached ? snapshot.service_note : null;
    const help = helpUrl(this._around.hub);
    const late = reached ? lateOf(snapshot, shown.now, trans) : null;
    if (late?.run !== this._late?.run) {
      this._late = late;
    }
    return (
      <section role="region" aria-label={trans.__('GPU of this server')}>
        <div className="jp-gpu-Columns">
          <div>
            <Top model={model} reached={reached} around={this._around} {...shown} />
          </div>
          <div>
            {reached ? (
              <Trainings snapshot={snapshot} late={late} model={model} {...shown} />
            ) : null}
            <Server
              server={server}
              note={note}
              keeping={model.keeping}
              keep={() => void model.keep()}
              giveBack={canGiveBack(model) ? this._around.giveBack : null}
              {...shown}
            />
            {server && note === null ? (
              <Waits offers={server.waits} hasGpu={server.share > 0} {...shown} />
            ) : null}
            {reached && !snapshot.trainings?.length ? (
              <Examples open={this._around.example} trans={trans} />
            ) : null}
            {help === '' ? null : (
              <p>
                <a href={help} target="_blank" rel="noreferrer">
                  {trans.__('How this works')}
                </a>
              </p>
            )}
          </div>
        </div>
        <div className="jp-gpu-Heard" aria-live="polite">
          {awayText(model, shown.now, trans)}{' '}
          {announcement(snapshot, model.keeping === 'kept', shown.now, trans)} {this._late?.text}
        </div>
        <div className="jp-gpu-Heard" role="alert">
          {this._alertText(shown.now)}
        </div>
      </section>
    );
  }

  /** The alert for screen readers. The text stays the same for a countdown, so that it is read out once. */
  private _alertText(now: number): string {
    const warned = warnedOf(this._warned, this.model.end);
    if (warned !== this._warned) {
      this._warned = warned;
      this._alert = warned === null ? '' : stopText(warned.stops_at, now, this.trans);
    }
    return this._alert;
  }

  private _warned: Countdown | null = null;
  /** As it was said first: it is not read out again when its times change. */
  private _late: ILate | null = null;
  private _alert = '';
}

/** The devices of this server, or one sentence that explains why none is shown. */
function Top({
  model,
  reached,
  around,
  ...shown
}: IShown & { model: IGpuModel; reached: boolean; around: IAround }): JSX.Element {
  const { snapshot, connection } = model;
  const { trans, now } = shown;
  const server = snapshot?.server ?? null;
  const view = viewOf(snapshot, connection);
  // there is no snapshot, or the last one is outdated
  const nothing = view === 'lost' || view === 'outdated' || view === 'stopped';
  const said = reasonText(snapshot?.reason ?? null, now, trans);
  const unreached = awayText(model, now, trans);
  const sentences = {
    loading: trans.__('Reading the GPU of this server.'),
    absent: trans.__(
      'The GPU part of this server is not installed or not switched on. Whoever runs this hub can change that.'
    ),
    outdated: unreached,
    stopped: unreached,
    lost: unreached,
    cpu: said,
    problem: said || trans.__('Nothing is known about the GPU of this server.')
  };
  return (
    <>
      <header>
        <h2>{trans.__('GPU')}</h2>
        {server && server.share > 0 && view !== 'outdated' ? (
          <span>{offerName(server, trans)}</span>
        ) : null}
        {server?.name && view !== 'outdated' ? (
          <span className="jp-gpu-Detail">{server.title}</span>
        ) : null}
        {server?.simulated ? (
          <span className="jp-gpu-Simulated">{trans.__('simulated GPU')}</span>
        ) : null}
      </header>
      {unreached && !nothing ? <p className="jp-gpu-Warning">{unreached}</p> : null}
      {connection === 'signed-out' ? (
        <p>
          <a href={model.signInUrl} target="_blank" rel="noreferrer">
            {trans.__('Sign in again')}
          </a>
        </p>
      ) : null}
      {(nothing ? lettersOf : warningsOf)(snapshot).map(warning => (
        <p className="jp-gpu-Warning" key={warning.message}>
          {reasonText(warning, now, trans)}
        </p>
      ))}
      {view === 'gpu' && snapshot ? (
        <Devices model={model} snapshot={snapshot} said={said} {...shown} />
      ) : (
        <p className={view === 'problem' || view === 'stopped' ? 'jp-gpu-Warning' : undefined}>
          {view === 'gpu' ? '' : sentences[view]}
        </p>
      )}
      {view === 'stopped' && stopOf(model, now) !== null ? (
        <p>{lossText(around.unsaved(), trans)}</p>
      ) : null}
      {view === 'stopped' ? <Starts model={model} hub={around.hub} {...shown} /> : null}
      {view === 'cpu' && server && server.waits.length > 0 && reached ? (
        <p>
          {freeNow(server.waits, trans)}{' '}
          {trans.__('To get a GPU: stop this server and start it with another choice.')}
        </p>
      ) : null}
    </>
  );
}

/** Links that start a stopped server again; none while the server starts by itself. */
function Starts({
  model,
  hub,
  trans,
  now
}: IShown & { model: IGpuModel; hub: IHub }): JSX.Element | null {
  const found = starts(hub, model.snapshot?.server ?? null, window.location.pathname);
  const returns = stopOf(model, now)?.countdown.reason.reason === COMES_BACK;
  return found.length === 0 || returns ? null : (
    <p className="jp-gpu-Keep">
      {found.map(({ kind, url }) => (
        <a key={kind} className="jp-gpu-Small" href={url} target="_blank" rel="noreferrer">
          {startLabel(kind, trans)}
        </a>
      ))}
    </p>
  );
}
