/**
 * What a person can do by the palette, the menu or a shortcut, and the question before a kernel is shut down.
 */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { Holder } from './messages';

/** Ask whether the kernel of this holder is to be shut down. */
export async function confirmEnd(holder: Holder, trans: TranslationBundle): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Shut down the kernel of %1?', holder.name),
    body: trans.__(
      'Its GPU memory becomes free. Its variables are lost, and what it is running ends. The notebook file stays.'
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Shut Down Kernel') })
    ]
  });
  return answer.button.accept;
}
