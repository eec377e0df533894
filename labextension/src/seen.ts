/**
 * A widget that renders only while it is visible, and the properties that every view gets.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IGpuModel } from './model';
import type { Unit } from './units';

/** Interval after which a view renders again, so that its times move. */
const TICK_MS = 1000;

export interface IShown {
  trans: TranslationBundle;
  /** The server's time, in ms. */
  now: number;
  unit: Unit;
}

export abstract class SeenWidget extends ReactWidget {
  constructor(
    protected model: IGpuModel,
    protected trans: TranslationBundle
  ) {
    super();
    model.changed.connect(this._draw);
    this._timer = window.setInterval(() => {
      if (performance.now() - this._drawn > 0.9 * TICK_MS) {
        this._draw();
      }
    }, TICK_MS);
  }

  override dispose(): void {
    window.clearInterval(this._timer);
    this.model.changed.disconnect(this._draw);
    super.dispose();
  }

  protected shown(): IShown {
    return { trans: this.trans, now: this.model.now(), unit: this.model.settings.unit };
  }

  protected override onAfterShow(): void {
    this._draw();
  }

  private _draw = (): void => {
    if (this.isVisible && !document.hidden) {
      this._drawn = performance.now();
      this.update();
    }
  };

  private _drawn = 0;
  private _timer: number;
}
