/**
 * What the panel asks its own server. Nothing else in the panel sends a request.
 *
 * The connection is one-way: a proxy counts every byte from the browser as use of the server, so nothing is ever sent.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { EndEvent, Problem, Push, ServerState } from './messages';

/** The wire's version that this panel reads. */
export const PROTOCOL_VERSION = 5;

/** The schema of our events in Jupyter Server's event stream. */
export const END_EVENT = 'https://jupyterhub-gpu.invalid/events/server-end/v1';

/** The code with which our server closes the connection of a session that has ended. */
const SIGNED_OUT = 4401;

/** The server waits 5 s for the service. */
const ANSWER_MS = 10_000;

const KINDS = new Set<unknown>(['warn', 'over', 'save']);

/** The server said no. */
export class Refusal extends Error {
  /** @param problem - why; null where somebody else refused: a hub or a proxy whose server is gone. */
  constructor(readonly problem: Problem | null) {
    super(problem?.message);
  }
}

/** What a connection tells. */
export interface IListener {
  taken(push: Push): void;
  /** The server speaks another version of the wire: nothing it says can be read. */
  outdated(): void;
  /** Called once, when the connection ends, cannot be made, or says what is no message. */
  ended(signedOut: boolean): void;
}

/**
 * What answers at our page of the server: ``absent``: there is none; ``signed-out``: not to this browser; ``stopped``:
 * the hub, in the place of a server that does not run; ``away``: nobody, or a proxy that cannot reach it.
 */
export type Answer = 'there' | 'absent' | 'signed-out' | 'stopped' | 'away';

/** The hub's status for what is asked of a server that does not run. */
const NOT_RUNNING = 424;

/** Ask it: a connection that cannot be made does not say why. */
export async function ask(settings: ServerConnection.ISettings): Promise<Answer> {
  let answer: Response;
  try {
    // without that the hub answers with pages, and leads to the one of a stop that is under way
    answer = await request(settings, 'snapshot', { headers: { Accept: 'application/json' } });
  } catch {
    return 'away';
  }
  const { status, redirected } = answer;
  if (status === NOT_RUNNING) {
    return 'stopped'; // by a redirect from the server's address to the hub's
  }
  if (status === 404) {
    return 'absent';
  }
  if (status === 401 || status === 403 || redirected) {
    return 'signed-out'; // a hub leads a browser that it does not know to its login
  }
  return status >= 500 ? 'away' : 'there';
}

/** Keep this server, or give its GPU back: it stops, or with `cpu` comes back without one. */
export type Order = 'keep' | 'give-back' | 'give-back?cpu=1';

/**
 * Ask for it.
 * @throws Refusal with the service's own reason.
 */
export async function order(
  settings: ServerConnection.ISettings,
  what: Order
): Promise<ServerState> {
  const response = await post(settings, what);
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
 * Listen to the messages.
 *
 * @param every - seconds between two of them; the server bounds it.
 * @returns a function that ends it; the listener hears nothing after it.
 */
export function listen(
  settings: ServerConnection.ISettings,
  every: number,
  listener: IListener
): () => void {
  const socket = new settings.WebSocket(liveUrl(settings, every));
  const end = (): void => {
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  };
  socket.onmessage = event => {
    const push = messageIn(String(event.data));
    if (push === null) {
      end();
      listener.ended(false);
    } else if (push.version !== PROTOCOL_VERSION) {
      end();
      listener.outdated();
    } else {
      listener.taken(push);
    }
  };
  socket.onclose = event => listener.ended(event.code === SIGNED_OUT);
  return end;
}

/**
 * Our event in what the event stream emitted; null: somebody else's, or a kind not known here.
 *
 * Its version is in the schema's id, and not the wire's: also a page older than its server is warned.
 */
export function endEventIn(emission: { schema_id: string }): EndEvent | null {
  const event = emission as { schema_id: string } & Partial<EndEvent>;
  const ours = event.schema_id === END_EVENT && event.at;
  return ours && KINDS.has(event.kind) ? (event as EndEvent) : null;
}

function messageIn(text: string): Push | null {
  try {
    const message = JSON.parse(text) as Partial<Push> | null;
    return typeof message?.version === 'number' ? (message as Push) : null;
  } catch {
    return null; // not ours: something on the way answered
  }
}

function liveUrl(settings: ServerConnection.ISettings, every: number): string {
  const url = URLExt.join(settings.wsUrl, 'gpu', 'live');
  const query: Record<string, string> = { every: String(every) };
  if (settings.appendToken && settings.token !== '') {
    query.token = settings.token;
  }
  return url + URLExt.objectToQueryString(query);
}

/**
 * Tell that a warning of a stop was shown; nobody waits for the answer.
 *
 * Without a body, and answered by 304: a proxy counts neither as use of the server.
 */
export async function warned(settings: ServerConnection.ISettings): Promise<void> {
  await request(settings, 'warned', { method: 'POST' });
}

/** A request for something of ours; over a connection that has died nobody answers, nor says so. */
function request(
  settings: ServerConnection.ISettings,
  what: string,
  init: RequestInit
): Promise<Response> {
  const url = URLExt.join(settings.baseUrl, 'gpu') + `/${what}`;
  const signal = AbortSignal.timeout(ANSWER_MS);
  return ServerConnection.makeRequest(url, { ...init, signal }, settings);
}

async function post(
  settings: ServerConnection.ISettings,
  what: Order | 'saved'
): Promise<Response> {
  const response = await request(settings, what, { method: 'POST', body: '{}' });
  if (response.ok) {
    return response;
  }
  throw new Refusal(await refusalIn(response));
}

/** Our own refusal; null where it is somebody else's. */
async function refusalIn(response: Response): Promise<Problem | null> {
  try {
    const {
      message = '',
      field,
      reason = '',
      params = {}
    } = (await response.json()) as Partial<Problem>;
    return typeof field === 'string' ? { message, field, reason, params } : null;
  } catch {
    return null;
  }
}
