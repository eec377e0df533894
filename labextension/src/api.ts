/**
 * What the panel asks its own server. Nothing else in the panel sends a request.
 *
 * The connection is one-way: a proxy counts every byte from the browser as use of the server, so nothing is ever sent.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Problem, ServerState, Snapshot } from './messages';

/** The wire's version that this panel reads. */
const WIRE_VERSION = 1;

/** The server said no; the message is for the user. */
export class Refusal extends Error {}

/** Whether the server has our extension: false when it answers that there is no such page. */
export async function isThere(settings: ServerConnection.ISettings): Promise<boolean> {
  const url = URLExt.join(settings.baseUrl, 'gpu', 'snapshot');
  const response = await ServerConnection.makeRequest(url, {}, settings);
  return response.status !== 404;
}

/**
 * Ask to keep this server.
 * @throws Refusal with the service's own sentence.
 */
export async function keep(settings: ServerConnection.ISettings): Promise<ServerState> {
  const response = await post(settings, 'keep');
  return (await response.json()) as ServerState;
}

/**
 * Tell that the open notebooks are saved.
 * @throws Refusal when the service cannot be told.
 */
export async function saved(settings: ServerConnection.ISettings): Promise<void> {
  await post(settings, 'saved');
}

/**
 * Listen to the snapshots.
 *
 * @param watching - false for a page nobody sees: it is told changes of its server's state, and numbers every 10 s.
 * @param taken - called with every snapshot.
 * @param ended - called once, when the connection ends or cannot be made.
 * @returns a function that ends it (without `ended`).
 */
export function listen(
  settings: ServerConnection.ISettings,
  watching: boolean,
  taken: (snapshot: Snapshot) => void,
  ended: () => void
): () => void {
  const socket = new settings.WebSocket(liveUrl(settings, watching));
  socket.onmessage = event => {
    const snapshot = JSON.parse(String(event.data)) as Snapshot;
    if (snapshot.version === WIRE_VERSION) {
      taken(snapshot);
    }
  };
  socket.onclose = ended;
  return () => {
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  };
}

function liveUrl(settings: ServerConnection.ISettings, watching: boolean): string {
  const url = URLExt.join(settings.wsUrl, 'gpu', 'live');
  const query: Record<string, string> = { watching: watching ? '1' : '0' };
  if (settings.appendToken && settings.token !== '') {
    query.token = settings.token;
  }
  return url + URLExt.objectToQueryString(query);
}

async function post(
  settings: ServerConnection.ISettings,
  what: 'keep' | 'saved'
): Promise<Response> {
  const url = URLExt.join(settings.baseUrl, 'gpu', what);
  const response = await ServerConnection.makeRequest(
    url,
    { method: 'POST', body: '{}' },
    settings
  );
  if (response.ok) {
    return response;
  }
  let message = '';
  try {
    message = ((await response.json()) as Problem).message;
  } catch {
    message = response.statusText; // not our answer: a proxy's page
  }
  throw new Refusal(message);
}
