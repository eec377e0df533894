/**
 * The status bar's item: one button that opens the panel.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { statusText } from './format';
import { gpuIcon } from './icon';
import { unread } from './letters';
import type { IGpuModel } from './model';
import { SeenWidget } from './seen';

export class GpuStatus extends SeenWidget {
  constructor(
    model: IGpuModel,
    trans: TranslationBundle,
    private _open: () => void
  ) {
    super(model, trans);
    this.addClass('jp-gpu-Status');
  }

  protected override render(): JSX.Element | null {
    const { snapshot, connection, settings } = this.model;
    const text = statusText(
      snapshot,
      connection,
      settings,
      this.model.now(),
      this.trans,
      unread(snapshot).length
    );
    return text === '' ? null : (
      <button type="button" title={this.trans.__('Show the GPU panel')} onClick={this._open}>
        <gpuIcon.react tag="span" className="jp-gpu-Icon" />
        {text}
      </button>
    );
  }
}
