/**
 * Gives the GPU back early: asks once, then the service stops the server like any other.
 */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { isReached } from './format';
import type { IGpuModel } from './model';
import { doAndTell } from './warning';

/** Whether there is a GPU to give back, and the service is reached. */
export function canGiveBack(model: IGpuModel): boolean {
  const { snapshot, connection, keeping } = model;
  if (snapshot === null || !isReached(snapshot, connection, model.now())) {
    return false;
  }
  const { server, service_note } = snapshot;
  const held = server !== null && server.share > 0 && server.lease_state === 'running';
  return held && !server.save && service_note === null && keeping !== 'asking';
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
