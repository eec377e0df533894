/**
 * All requests of the panel to its own server.
 *
 * The websocket is one-way: a proxy counts every byte from the browser as activity, so the panel never sends any.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { PartialJSONObject } from '@lumino/coreutils';

import type { EndEvent, Problem, Push, ServerState } from './messages';

/** The version of the messages that this panel reads. */
export const PROTOCOL_VERSION = 5;

/** The schema of our events in Jupyter Server's event stream. */
export const END_EVENT = 'https://jupyterhub-gpu.invalid/events/server-end/v1';

/** The code with which our server closes the connection of a session that has ended. */
const SIGNED_OUT = 4401;

/** The server waits 5 s for the service. */
const ANSWER_MS = 10_000;

const KINDS = new Set<unknown>(['warn', 'over', 'save']);

/** The server refused a request. */
export class Refusal extends Error {
  /** @param problem - the reason; null if a hub or a proxy refused in the place of a server that is gone. */
  constructor(readonly problem: Problem | null) {
    super(problem?.message);
  }
}

/** What an error says. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Receives the events of a connection. */
export interface IListener {
  taken(push: Push): void;
  /** The server sends another version of the messages, which this panel cannot read. */
  outdated(): void;
  /** Called once, when the connection ends, cannot be opened, or delivers something that is not a message. */
  ended(signedOut: boolean): void;
}

/**
 * Who answers at our URL of the server. ``absent``: the server extension is not installed; ``signed-out``: the server
 * refuses this browser; ``stopped``: the hub answers because the server does not run; ``away``: there is no answer, or
 * a proxy cannot reach the server.
 */
export type Answer = 'there' | 'absent' | 'signed-out' | 'stopped' | 'away';

/** The HTTP status with which the hub answers in the place of a server that does not run. */
const NOT_RUNNING = 424;

/** Find out who answers: a websocket that cannot be opened does not give the reason. */
export async function ask(settings: ServerConnection.ISettings): Promise<Answer> {
  let answer: Response;
  try {
    // without this header the hub answers with HTML, and redirects to the page of a stop that is pending
    answer = await request(settings, 'snapshot', { headers: { Accept: 'application/json' } });
  } catch {
    return 'away';
  }
  const { status, redirected } = answer;
  if (status === NOT_RUNNING) {
    return 'stopped'; // after a redirect from the server's URL to the hub's
  }
  if (status === 404) {
    return 'absent';
  }
  if (status === 401 || status === 403 || redirected) {
    return 'signed-out'; // the hub redirects a browser without a session to its login
  }
  return status >= 500 ? 'away' : 'there';
}

/**
 * Keep this server, give it a longer lifetime, or give its GPU back: the server stops, or with `cpu` starts again
 * without a GPU.
 */
export type Order = 'keep' | 'extend' | 'give-back' | 'give-back?cpu=1';

/**
 * Send an order to the service.
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
 * Report that the open notebooks are saved.
 * @throws Refusal if the report does not reach the service.
 */
export async function saved(settings: ServerConnection.ISettings): Promise<void> {
  await post(settings, 'saved');
}

/**
 * Wish for a notice at the end of a training, or do without it.
 * @throws Refusal with the reason.
 */
export async function notify(
  settings: ServerConnection.ISettings,
  run: string,
  on: boolean
): Promise<void> {
  await post(settings, `training-notice?run=${encodeURIComponent(run)}&on=${on ? 1 : 0}`);
}

/**
 * Read a notebook that comes with the server extension.
 * @throws Refusal if it is not there.
 */
export async function example(
  settings: ServerConnection.ISettings,
  name: string
): Promise<PartialJSONObject> {
  const response = await checked(await request(settings, `examples/${name}`, {}));
  return (await response.json()) as PartialJSONObject;
}

/**
 * Open the websocket.
 *
 * @param every - seconds between two messages; the server limits the value.
 * @returns a function that closes the connection; the listener is not called after it.
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
 * The end event in an emission of Jupyter Server's event stream; null for another schema or an unknown kind.
 *
 * Its version is part of the schema id and independent of the messages' version, so a page that is older than its
 * server is still warned.
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
    return null; // a proxy on the way answered
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
 * Report that a warning of a stop was shown.
 *
 * The request has no body and is answered with 304, because a proxy counts neither as activity of the server.
 */
export async function warned(settings: ServerConnection.ISettings): Promise<void> {
  await request(settings, 'warned', { method: 'POST' });
}

/** Send a request to our handlers, with a time limit: a connection may have died without an error. */
function request(
  settings: ServerConnection.ISettings,
  what: string,
  init: RequestInit
): Promise<Response> {
  const url = URLExt.join(settings.baseUrl, 'gpu') + `/${what}`;
  const signal = AbortSignal.timeout(ANSWER_MS);
  return ServerConnection.makeRequest(url, { ...init, signal }, settings);
}

async function post(settings: ServerConnection.ISettings, what: string): Promise<Response> {
  return checked(await request(settings, what, { method: 'POST', body: '{}' }));
}

async function checked(response: Response): Promise<Response> {
  if (response.ok) {
    return response;
  }
  throw new Refusal(await refusalIn(response));
}

/** The refusal in a response; null if the response is not from our server extension. */
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
