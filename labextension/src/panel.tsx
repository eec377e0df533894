/**
 * The panel in the right sidebar. It shows what the model knows and asks nothing itself.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import {
  age,
  announcement,
  clock,
  duration,
  isShared,
  keepLabel,
  keepLeft,
  localTimes,
  memoryPercent,
  memoryWords,
  ruleWords,
  secondsLeft,
  shareWords,
  STALE_SECONDS,
  statusWords,
  useWords,
  viewOf,
  waitWords
} from './format';
import type { GpuReading, OfferState, ServerState, Snapshot } from './messages';
import type { IGpuModel, Keeping } from './model';

const TICK_MS = 1000;

interface IShown {
  trans: TranslationBundle;
  now: number;
}

/** Draws only while it can be seen; the clock in it ticks by itself. */
abstract class SeenWidget extends ReactWidget {
  constructor(
    protected model: IGpuModel,
    protected trans: TranslationBundle
  ) {
    super();
    model.changed.connect(this._changed);
    this._timer = window.setInterval(() => this._changed(), TICK_MS);
  }

  override dispose(): void {
    window.clearInterval(this._timer);
    this.model.changed.disconnect(this._changed);
    super.dispose();
  }

  protected override onAfterShow(): void {
    this.update();
  }

  private _changed = (): void => {
    if (this.isVisible && !document.hidden) {
      this.update();
    }
  };

  private _timer: number;
}

export class GpuPanel extends SeenWidget {
  constructor(model: IGpuModel, trans: TranslationBundle) {
    super(model, trans);
    this.addClass('jp-gpu-Panel');
  }

  protected override render(): JSX.Element {
    const { model, trans } = this;
    const shown = { trans, now: model.now() };
    return (
      <section aria-label={trans.__('GPU of this server')}>
        <Top model={model} {...shown} />
        <Note sentence={localTimes(model.snapshot?.service_note ?? '', shown.now)} />
        {model.snapshot?.server ? (
          <>
            <Server
              server={model.snapshot.server}
              away={model.snapshot.service_note !== ''}
              keeping={model.keeping}
              keep={() => void model.keep()}
              {...shown}
            />
            {model.snapshot.service_note === '' ? (
              <Waits offers={model.snapshot.server.waits} {...shown} />
            ) : null}
          </>
        ) : null}
        <div className="jp-gpu-Announcement" aria-live="polite">
          {announcement(model.snapshot, model.keeping === 'kept', shown.now, trans)}
        </div>
      </section>
    );
  }
}

/** The status bar's item: one button that opens the panel. */
export class GpuStatus extends SeenWidget {
  constructor(
    model: IGpuModel,
    trans: TranslationBundle,
    private _open: () => void
  ) {
    super(model, trans);
    this.addClass('jp-gpu-Status');
  }

  protected override render(): JSX.Element {
    const text = statusWords(this.model.snapshot, this.model.now(), this.trans);
    return (
      <button type="button" title={this.trans.__('Show the GPU panel')} onClick={this._open}>
        {text}
      </button>
    );
  }
}

function Top({ model, trans, now }: IShown & { model: IGpuModel }): JSX.Element {
  const { snapshot, connection } = model;
  const server = snapshot?.server ?? null;
  const sentences = {
    loading: trans.__('Reading the GPU of this server.'),
    absent: trans.__('The GPU part of this server is not installed or not switched on.'),
    lost: trans.__('This page cannot reach its server. It keeps trying.'),
    cpu: snapshot?.sentence ?? '',
    problem: snapshot?.sentence ?? ''
  };
  const view = viewOf(snapshot, connection);
  return (
    <>
      <header>
        <h2>{trans.__('GPU')}</h2>
        {server && server.uuid !== null ? (
          <span className="jp-gpu-Title">{server.title}</span>
        ) : null}
        {server?.simulated ? (
          <span className="jp-gpu-Simulated">{trans.__('simulated GPU')}</span>
        ) : null}
      </header>
      {view === 'gpu' && snapshot ? (
        snapshot.gpus.map(reading => (
          <Device
            key={reading.uuid}
            reading={reading}
            snapshot={snapshot}
            lost={connection === 'lost'}
            trans={trans}
            now={now}
          />
        ))
      ) : (
        <Note sentence={localTimes(view === 'gpu' ? '' : sentences[view], now)} />
      )}
      {(server?.warnings ?? []).map(warning => (
        <p className="jp-gpu-Warning" key={warning}>
          {localTimes(warning, now)}
        </p>
      ))}
    </>
  );
}

function Device({
  reading,
  snapshot,
  lost,
  trans,
  now
}: IShown & {
  reading: GpuReading;
  snapshot: Snapshot;
  lost: boolean;
}): JSX.Element {
  const old = age(reading, now) > STALE_SECONDS;
  const why = lost
    ? trans.__('This page cannot reach its server. It keeps trying.')
    : localTimes(snapshot.sentence, now);
  const server = snapshot.server;
  const shared = isShared(snapshot);
  return (
    <div className={old ? 'jp-gpu-Device jp-mod-stale' : 'jp-gpu-Device'}>
      <Meter
        label={shared ? trans.__('Memory, all users') : trans.__('Memory')}
        text={memoryWords(reading, trans)}
        percent={memoryPercent(reading)}
      />
      <Meter
        label={shared ? trans.__('In use, all users') : trans.__('In use')}
        text={useWords(reading, trans)}
        percent={reading.used_percent}
      />
      {shared && server ? <Note sentence={shareWords(server, trans)} /> : null}
      {old ? (
        <Note
          sentence={
            trans.__('Numbers from %1 ago.', duration(age(reading, now), trans)) + ' ' + why
          }
        />
      ) : (
        <Note sentence={why || (reading.memory_used_bytes === null ? reading.note : '')} />
      )}
      <p className="jp-gpu-Detail">
        {[reading.product, reading.profile].filter(Boolean).join(' · ')}
      </p>
    </div>
  );
}

function Meter({
  label,
  text,
  percent
}: {
  label: string;
  text: string;
  percent: number | null;
}): JSX.Element {
  const row = (
    <div className="jp-gpu-Row">
      <span className="jp-gpu-Label">{label}</span>
      <span>{text}</span>
    </div>
  );
  if (percent === null) {
    return row; // an empty bar would say zero
  }
  return (
    <>
      {row}
      <div
        className="jp-gpu-Meter"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(percent)}
        aria-valuetext={text}
      >
        <div style={{ width: `${percent}%` }} />
      </div>
    </>
  );
}

function Server({
  server,
  away,
  keeping,
  keep,
  trans,
  now
}: IShown & {
  server: ServerState;
  away: boolean;
  keeping: Keeping;
  keep: () => void;
}): JSX.Element {
  const { countdown, ends_at } = server;
  const left = secondsLeft(countdown, now);
  const heading = <h3>{trans.__('This server')}</h3>;
  if (away) {
    // an outage moves every end by its length: no time shown now would be right
    return (
      <>
        {heading}
        <p>{trans.__('Its countdown and its end stand still until the service answers again.')}</p>
      </>
    );
  }
  return (
    <>
      {heading}
      {countdown && left !== null ? (
        <p className={countdown.warn ? 'jp-gpu-Warning' : undefined}>
          {localTimes(countdown.reason, now)} {trans.__('Stops in %1', duration(left, trans))} (
          <time dateTime={countdown.stops_at}>{clock(countdown.stops_at, now)}</time>
          ).
        </p>
      ) : null}
      {countdown ? null : <p>{localTimes(ruleWords(server, trans), now)}</p>}
      {countdown?.can_keep && server.keep ? (
        <p className="jp-gpu-Keep">
          <button
            type="button"
            className="jp-mod-styled jp-mod-accept"
            disabled={server.keep.left < 1 || keeping === 'asking'}
            onClick={keep}
          >
            {keepLabel(server, trans)}
          </button>
          <span>{keepLeft(server.keep, trans)}</span>
        </p>
      ) : null}
      {typeof keeping === 'object' ? (
        <p className="jp-gpu-Warning">
          {keeping.refused || trans.__('The server did not answer. Nothing was changed.')}
        </p>
      ) : null}
      {ends_at !== null ? (
        <p>
          {trans.__('Ends at the latest at')} <time dateTime={ends_at}>{clock(ends_at, now)}</time>.
        </p>
      ) : null}
    </>
  );
}

function Waits({ offers, trans }: IShown & { offers: OfferState[] }): JSX.Element | null {
  if (offers.length === 0) {
    return null;
  }
  return (
    <>
      <h3>{trans.__('Waits now')}</h3>
      <dl>
        {offers.map(offer => (
          <div className="jp-gpu-Row" key={offer.id} title={offer.wait.reason}>
            <dt>{offer.title}</dt>
            <dd>{waitWords(offer, trans)}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function Note({ sentence }: { sentence: string }): JSX.Element | null {
  return sentence === '' ? null : <p className="jp-gpu-Note">{sentence}</p>;
}
