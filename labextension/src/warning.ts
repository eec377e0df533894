/**
 * The two warnings before a stop as JupyterLab notifications, with the same button as in the panel.
 *
 * They follow the model's end events, which also arrive while the page is hidden.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { isPast, isSame, lastWarning, warnedOf } from './end.js';
import {
  isAway,
  keepLabel,
  lastWarningText,
  reasonText,
  refusalText,
  standsText,
  unreachedText,
  warningText
} from './format.js';
import type { Countdown, Keep } from './messages';
import type { IGpuModel } from './model';

const MINUTE_MS = 60_000;
const STEP_MS = 10_000;
/** Code of the reason for a server that started again without its GPU. */
const WITHOUT_GPU = 'runs-without-gpu';

/** Run an order from outside the panel. A refusal is a notification, because the panel may be closed. */
export async function doAndTell(
  model: IGpuModel,
  trans: TranslationBundle,
  order: () => Promise<void>
): Promise<void> {
  await order();
  const { keeping } = model;
  if (typeof keeping === 'object') {
    const text = refusalText(keeping.refused, model.now(), trans);
    Notification.error(text, { autoClose: false });
  }
}

/** The warnings of a countdown that were shown. */
enum Given {
  none,
  first,
  last
}

/** Warns twice per countdown, even if the user closes the first warning; closes it when the server is kept. */
export class Warning {
  constructor(
    private _model: IGpuModel,
    private _trans: TranslationBundle
  ) {
    _model.changed.connect(this._changed);
    this._changed();
  }

  private _changed = (): void => {
    const { end, settings, snapshot, connection } = this._model;
    const back = snapshot?.server?.warnings.find(one => one.reason === WITHOUT_GPU);
    if (back && !this._isBack) {
      this._isBack = true;
      const text = reasonText(back, this._model.now(), this._trans);
      Notification.info(text, { autoClose: false });
    }
    if (connection !== 'signed-out') {
      Notification.dismiss(this._signedOut);
      this._signedOut = '';
    } else if (this._signedOut === '') {
      // also while the panel is closed: open documents cannot be saved any more
      const callback = (): void => void window.open(this._model.signInUrl);
      this._signedOut = Notification.warning(unreachedText(connection, null, 0, this._trans), {
        actions: [{ label: this._trans.__('Sign in again'), callback }],
        autoClose: false
      });
    }
    const before = this._countdown;
    const countdown = (this._countdown = warnedOf(before, end));
    // many small changes may add up to a large difference from the end that was shown
    if (countdown === null || !isSame(countdown, this._warned ?? before)) {
      if (end?.kind === 'over' && this._warned?.cause === 'admin') {
        Notification.info(this._trans.__('An administrator took the stop back.'));
      }
      this._takeBack();
    }
    const past = countdown !== null && isPast(countdown, this._model.now());
    if (connection === 'stopped' || (past && isAway(connection))) {
      this._dismiss(); // the server has stopped as announced: there is nothing to keep
    }
    const stands = end === null; // it is not known whether it still applies
    const moved = countdown?.stops_at !== before?.stops_at;
    if (this._stands !== stands || moved || countdown?.can_keep !== before?.can_keep) {
      this._stands = stands;
      this._refresh();
    }
    if (countdown === null || this._given === Given.last || stands) {
      return; // nothing to show, or shown already
    }
    window.clearTimeout(this._timer);
    const now = this._model.now();
    const early = (settings.warnMinutes ?? Infinity) * MINUTE_MS;
    const first = Date.parse(countdown.stops_at) - early;
    const last = lastWarning(countdown) ?? Infinity;
    const due = last <= now ? Given.last : first <= now ? Given.first : Given.none;
    if (due > this._given) {
      this._dismiss();
      this._given = due;
      this._keep = end.keep ?? snapshot?.server?.keep ?? null;
      this._warn(countdown);
    }
    const next = Math.min(...[first, last].filter(at => at > now));
    if (next < Infinity) {
      this._timer = window.setTimeout(this._changed, next - now);
    }
  };

  private _actions(countdown: Countdown): Notification.IAction[] {
    const { _model: model, _trans: trans, _keep: keep } = this;
    const callback = (): void => void doAndTell(model, trans, () => model.keep());
    return countdown.can_keep && keep?.left && this._left(countdown) > 0
      ? [{ label: keepLabel({ keep }, trans), callback }]
      : [];
  }

  private _warn(countdown: Countdown): void {
    const actions = this._actions(countdown);
    this._id = Notification.warning(this._words(countdown), { actions, autoClose: false });
    this._warned = countdown;
    this._model.warned();
    this._countDown(countdown);
  }

  /** Update the notification that is shown. One that the user has closed stays closed. */
  private _refresh = (): void => {
    const countdown = this._countdown;
    if (countdown === null) {
      return;
    }
    if (document.getElementById(this._id)) {
      const [message, actions] = [this._words(countdown), this._actions(countdown)];
      Notification.update({ id: this._id, message, actions });
    }
    this._countDown(countdown);
  };

  private _words(countdown: Countdown): string {
    if (this._stands) {
      return standsText(this._trans);
    }
    const text = this._given === Given.last ? lastWarningText : warningText;
    // rounded to the second: a timer fires some milliseconds late
    return text(countdown, Date.parse(countdown.stops_at) - this._left(countdown), this._trans);
  }

  /** The last warning shows the remaining time, each minute and then each ten seconds, also to screen readers. */
  private _countDown(countdown: Countdown): void {
    window.clearTimeout(this._ticking);
    const left = this._left(countdown);
    if (this._given === Given.last && left > 0 && !this._stands) {
      const step = left > MINUTE_MS ? MINUTE_MS : STEP_MS;
      this._ticking = window.setTimeout(this._refresh, left % step || step);
    }
  }

  /** Time until the stop in ms, in whole seconds. */
  private _left(countdown: Countdown): number {
    return 1000 * Math.round((Date.parse(countdown.stops_at) - this._model.now()) / 1000);
  }

  private _takeBack(): void {
    window.clearTimeout(this._timer);
    this._dismiss();
    this._given = Given.none;
    this._warned = null;
  }

  private _dismiss(): void {
    Notification.dismiss(this._id);
    this._id = '';
    window.clearTimeout(this._ticking);
  }

  private _id = '';
  private _countdown: Countdown | null = null;
  private _given = Given.none;
  private _isBack = false;
  private _keep: Keep | null = null;
  private _signedOut = '';
  private _warned: Countdown | null = null;
  private _stands = false;
  private _timer = 0;
  private _ticking = 0;
}
