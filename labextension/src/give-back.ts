/**
 * Gives the GPU back early: asks once, then the service stops the server like any other.
 */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { isReached } from './format';
import type { ServerState } from './messages';
import type { IGpuModel } from './model';
import { doAndTell } from './warning';

/** The server, if the service can be asked for something now; null if it is away or has not answered yet. */
export function askable(model: IGpuModel): ServerState | null {
  const { snapshot, connection, keeping } = model;
  const reached = snapshot && isReached(snapshot, connection, model.now());
  return reached && !snapshot.service_note && keeping !== 'asking' ? snapshot.server : null;
}

/** Whether there is a GPU to give back, and the service is reached. */
export function canGiveBack(model: IGpuModel): boolean {
  const server = askable(model);
  return server !== null && server.share > 0 && server.lease_state === 'running' && !server.save;
}

/** Ask how to give the GPU back, and do it. A refusal is a notification, because the panel may be closed. */
export async function askAndGiveBack(model: IGpuModel, trans: TranslationBundle): Promise<void> {
  const cpu = Dialog.createButton({ label: trans.__('Go On as CPU Only') });
  const stop = Dialog.warnButton({ label: trans.__('Stop the Server') });
  const { button } = await showDialog({
    title: trans.__('Give the GPU back?'),
    body: trans.__(
      'Somebody else can use it then. Your notebooks are saved; variables are lost, and what runs ends.'
    ),
    buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), cpu, stop],
    defaultButton: 0
  });
  if (button.label !== cpu.label && button.label !== stop.label) {
    return;
  }
  await doAndTell(model, trans, () => model.giveBack(button.label === cpu.label));
}
