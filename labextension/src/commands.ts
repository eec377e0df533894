/**
 * The commands for the palette, the menu and shortcuts, and the question before a kernel is shut down.
 *
 * The menu is in `schema/panel.json`. No shortcut is preset; users can assign one in JupyterLab's settings.
 */
import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, type ICommandPalette } from '@jupyterlab/apputils';
import type { ILauncher } from '@jupyterlab/launcher';
import type { TranslationBundle } from '@jupyterlab/translation';

import { openExample } from './examples';
import { keepLength } from './format';
import { askable, askAndGiveBack, canGiveBack } from './give-back';
import { gpuIcon } from './icon';
import type { Holder } from './messages';
import type { IGpuModel } from './model';
import { doAndTell } from './warning';

export const PANEL_ID = 'jupyterhub-gpu-panel';
export const OPEN_COMMAND = 'jupyterhub-gpu:open';
const KEEP_COMMAND = 'jupyterhub-gpu:keep';
const GIVE_BACK_COMMAND = 'jupyterhub-gpu:give-back';
const TEST_COMMAND = 'jupyterhub-gpu:test';
/** The notebook that this command opens a copy of. */
const TEST_NOTEBOOK = 'test-my-gpu';
const SETTINGS_COMMAND = 'jupyterhub-gpu:settings';
const SETTINGS_EDITOR = 'settingeditor:open';
/**
 * Narrower, JupyterLab pushes the right sidebar out of the window while the left one is open: each has at least 250 px
 * and a bar of tabs beside it, and the main area between them 120 px.
 */
const ROOM_FOR_BOTH_SIDES = 702;

/** Show the panel, and close the left sidebar where the window has no room for both. */
function openPanel(shell: JupyterFrontEnd.IShell, labShell: ILabShell | null): void {
  if (window.innerWidth < ROOM_FOR_BOTH_SIDES) {
    labShell?.collapseLeft();
  }
  shell.activateById(PANEL_ID);
}

/** Add the commands. Each is enabled only while it has an effect. */
export function addCommands(
  app: JupyterFrontEnd,
  model: IGpuModel,
  trans: TranslationBundle,
  palette: ICommandPalette | null,
  labShell: ILabShell | null,
  launcher: ILauncher | null
): void {
  const { commands, shell } = app;
  commands.addCommand(OPEN_COMMAND, {
    label: trans.__('Show the GPU Panel'),
    caption: trans.__('Memory and use of this server’s GPU, and when the server stops'),
    isEnabled: () => [...shell.widgets('right')].some(widget => widget.id === PANEL_ID),
    execute: () => openPanel(shell, labShell)
  });
  commands.addCommand(KEEP_COMMAND, {
    label: () => keepCommandText(model, trans),
    caption: trans.__('Put off the stop that is counted down now'),
    isEnabled: () => canKeep(model),
    execute: () => doAndTell(model, trans, () => model.keep())
  });
  commands.addCommand(GIVE_BACK_COMMAND, {
    label: trans.__('Give the GPU Back …'),
    caption: trans.__('Stop this server, or go on without a GPU'),
    isEnabled: () => canGiveBack(model),
    execute: () => askAndGiveBack(model, trans)
  });
  commands.addCommand(SETTINGS_COMMAND, {
    label: trans.__('Settings of the GPU Panel'),
    caption: trans.__('Interval, unit, status bar and warning'),
    isEnabled: () => commands.hasCommand(SETTINGS_EDITOR),
    execute: () => commands.execute(SETTINGS_EDITOR, { query: 'GPU' })
  });
  commands.addCommand(TEST_COMMAND, {
    label: trans.__('Test my GPU'),
    caption: trans.__('Open a notebook that computes on the GPU for ten seconds'),
    icon: gpuIcon,
    execute: ({ cwd }) => openExample(app, trans, TEST_NOTEBOOK, cwd as string | undefined)
  });
  const category = trans.__('GPU');
  for (const command of [
    OPEN_COMMAND,
    KEEP_COMMAND,
    GIVE_BACK_COMMAND,
    TEST_COMMAND,
    SETTINGS_COMMAND
  ]) {
    palette?.addItem({ command, category });
  }
  launcher?.add({ command: TEST_COMMAND, category });
  const state = (): string =>
    [keepCommandText(model, trans), canKeep(model), canGiveBack(model)].join();
  let shown = state();
  model.changed.connect(() => {
    const now = state();
    if (now !== shown) {
      shown = now;
      commands.notifyCommandChanged(); // not with every number: JupyterLab renders its palette again
    }
  });
}

/** Ask the user whether the kernel of this holder shall be shut down. */
export async function confirmEnd(holder: Holder, trans: TranslationBundle): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Shut down the kernel of %1?', holder.name),
    body: trans.__(
      'Its GPU memory becomes free. Its variables are lost, and what it runs ends. The notebook file stays.'
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Shut Down Kernel') })
    ]
  });
  return answer.button.accept;
}

function keepCommandText(model: IGpuModel, trans: TranslationBundle): string {
  const server = model.snapshot?.server;
  return server?.keep
    ? trans.__('Keep This Server for %1', keepLength(server, trans))
    : trans.__('Keep This Server');
}

function canKeep(model: IGpuModel): boolean {
  const server = askable(model);
  return server?.countdown?.can_keep === true && (server.keep?.left ?? 0) > 0;
}
