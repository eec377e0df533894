/**
 * Makes the end event, as the event stream would send it, from a snapshot or from an answer of the service.
 */
import { PROTOCOL_VERSION } from './api.js';
import type { EndEvent, ServerState, Snapshot } from './messages';

/** The end event of a snapshot; null while the service is away, because its countdown is paused then. */
export function endIn(snapshot: Snapshot): EndEvent | null {
  if (snapshot.server === null || snapshot.service_note !== null) {
    return null;
  }
  const { countdown, save } = snapshot.server;
  return countdown?.warn || save ? wordOf(snapshot.server, snapshot.at) : over(snapshot.at);
}

/** The end event of this state of the server. */
export function wordOf(server: ServerState, at: string): EndEvent {
  const { countdown, keep } = server;
  return { version: PROTOCOL_VERSION, at, kind: server.save ? 'save' : 'warn', countdown, keep };
}

/** The event that the server does not end soon. */
export function over(at: string): EndEvent {
  return { version: PROTOCOL_VERSION, at, kind: 'over', countdown: null, keep: null };
}
