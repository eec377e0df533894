/** The panel's icon: a card with a fan. */
import { LabIcon } from '@jupyterlab/ui-components';

export const gpuIcon = new LabIcon({
  name: 'jupyterhub-gpu:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" fill-rule="evenodd"
    d="M2 4h2v2h18v11H10v2H5v-2H4v4H2V4zm13 3.5a4 4 0 1 0 0 8 4 4 0 0 0 0-8zm0 2a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM6 9v1.5h3V9H6zm0 3.5V14h3v-1.5H6z"/>
</svg>`
});
