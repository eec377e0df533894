/**
 * JupyterLab's plugins. Each can be disabled by itself, except the model, which the others require.
 */
import {
  IConnectionLost,
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  type JupyterFrontEndPlugin,
  JupyterLab
} from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';

import { addCommands, confirmEnd, OPEN_COMMAND, PANEL_ID } from './commands';
import { ServerGone } from './connection';
import { openExample } from './examples';
import { openOnce } from './first-visit';
import { askAndGiveBack } from './give-back';
import { gpuIcon } from './icon';
import { Letters } from './letters';
import { GpuModel, IGpuModel } from './model';
import { GpuPanel } from './panel';
import { saveAndTell, unsavedIn } from './save';
import { followSettings } from './settings';
import { GpuStatus } from './status';
import { TrainingNotices } from './training-notices';
import { speak } from './units';
import { Warning } from './warning';
import '../style/index.js';

const SETTINGS_MS = 5000;

function words(translator: ITranslator | null): TranslationBundle {
  const spoken = translator ?? nullTranslator;
  speak(spoken.languageCode, navigator.languages);
  return spoken.load('jupyterhub_gpu');
}

function unsavedPaths(app: JupyterFrontEnd, manager: IDocumentManager | null): string[] {
  return manager ? [...unsavedIn(app.shell, manager)].map(({ path }) => path) : [];
}

const model: JupyterFrontEndPlugin<IGpuModel> = {
  id: 'jupyterhub-gpu:model',
  autoStart: true,
  provides: IGpuModel,
  optional: [ITranslator, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    registry: ISettingRegistry | null
  ): IGpuModel => {
    const { serverSettings, events, sessions, kernels } = app.serviceManager;
    const trans = words(translator);
    const model = new GpuModel({
      server: serverSettings,
      events,
      sessions,
      kernels,
      trans,
      confirmEnd: holder => confirmEnd(holder, trans)
    });
    const unreadable = (): void => {
      const text = trans.__(
        'Your settings of the GPU panel cannot be read. Its defaults are used until the file is corrected.'
      );
      // before that, JupyterLab shows no notification
      void app.restored.then(() => Notification.warning(text, { autoClose: false }));
    };
    const read = registry && followSettings(registry, it => model.use(it), unreadable);
    void Promise.resolve(read).finally(() => model.start());
    window.setTimeout(() => model.start(), SETTINGS_MS); // with the defaults, if the settings have not been read by then
    return model;
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: 'jupyterhub-gpu:panel',
  autoStart: true,
  requires: [IGpuModel, JupyterFrontEnd.IPaths],
  optional: [ITranslator, ILayoutRestorer, ILabShell, ISettingRegistry, IDocumentManager],
  activate: (
    app: JupyterFrontEnd,
    gpu: IGpuModel,
    paths: JupyterFrontEnd.IPaths,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    shell: ILabShell | null,
    registry: ISettingRegistry | null,
    manager: IDocumentManager | null
  ): void => {
    const trans = words(translator);
    const widget = new GpuPanel(gpu, trans, {
      hub: paths.urls,
      giveBack: () => void askAndGiveBack(gpu, trans),
      example: name => void openExample(app, trans, name),
      unsaved: () => unsavedPaths(app, manager)
    });
    widget.id = PANEL_ID;
    widget.title.icon = gpuIcon;
    widget.title.caption = trans.__('GPU of this server');
    app.shell.add(widget, 'right', { rank: 900 });
    restorer?.add(widget, PANEL_ID);
    if (shell && registry) {
      const open = (): void => shell.activateById(PANEL_ID);
      void app.restored.then(() => openOnce(gpu, registry, open));
    }
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'jupyterhub-gpu:status',
  autoStart: true,
  requires: [IGpuModel],
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    gpu: IGpuModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null
  ): void => {
    if (statusBar === null) {
      return; // Jupyter Notebook has none
    }
    const item = new GpuStatus(gpu, words(translator), () => {
      if (app.commands.hasCommand(OPEN_COMMAND)) {
        void app.commands.execute(OPEN_COMMAND);
      }
    });
    statusBar.registerStatusItem('jupyterhub-gpu:status', {
      item,
      align: 'left',
      rank: 100
    });
  }
};

const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyterhub-gpu:commands',
  autoStart: true,
  requires: [IGpuModel],
  optional: [ITranslator, ICommandPalette, ILabShell, ILauncher],
  activate: (
    app: JupyterFrontEnd,
    gpu: IGpuModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    launcher: ILauncher | null
  ): void => addCommands(app, gpu, words(translator), palette, labShell, launcher)
};

const warning: JupyterFrontEndPlugin<void> = {
  id: 'jupyterhub-gpu:warning',
  autoStart: true,
  requires: [IGpuModel],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, gpu: IGpuModel, translator: ITranslator | null): void => {
    // before that, JupyterLab shows no notification
    void app.restored.then(() => {
      const trans = words(translator);
      new Letters(gpu, trans);
      new Warning(gpu, trans);
      new TrainingNotices(gpu, trans);
    });
  }
};

const save: JupyterFrontEndPlugin<void> = {
  id: 'jupyterhub-gpu:save',
  autoStart: true,
  requires: [IGpuModel],
  optional: [IDocumentManager, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    gpu: IGpuModel,
    manager: IDocumentManager | null,
    translator: ITranslator | null
  ): void => {
    if (manager === null) {
      return; // without it, no document can be open
    }
    const trans = words(translator);
    gpu.saveAsked.connect(() => void saveAndTell(gpu, app.shell, manager, trans));
  }
};

const gone: JupyterFrontEndPlugin<IConnectionLost> = {
  id: 'jupyterhub-gpu:gone',
  autoStart: true,
  provides: IConnectionLost,
  requires: [IGpuModel, JupyterFrontEnd.IPaths],
  optional: [ITranslator, JupyterLab.IInfo, IDocumentManager],
  activate: (
    app: JupyterFrontEnd,
    gpu: IGpuModel,
    paths: JupyterFrontEnd.IPaths,
    translator: ITranslator | null,
    info: JupyterLab.IInfo | null,
    manager: IDocumentManager | null
  ): IConnectionLost => {
    const server = new ServerGone({
      model: gpu,
      trans: words(translator),
      lab: (translator ?? nullTranslator).load('jupyterlab'),
      hub: paths.urls,
      status: info,
      unsaved: () => unsavedPaths(app, manager),
      restart: () => void app.commands.execute('hub:restart')
    });
    return server.connectionLost;
  }
};

export { IGpuModel } from './model';
export default [model, panel, status, commands, warning, save, gone];
