/**
 * The word about the end that a snapshot or an answer of the service holds, as the event stream would say it.
 */
import { PROTOCOL_VERSION } from './api.js';
import type { EndEvent, ServerState, Snapshot } from './messages';

/** What a snapshot says about the end; null while the service is away: its countdown stands still then. */
export function endIn(snapshot: Snapshot): EndEvent | null {
  if (snapshot.server === null || snapshot.service_note !== null) {
    return null;
  }
  const { countdown, save } = snapshot.server;
  return countdown?.warn || save ? wordOf(snapshot.server, snapshot.at) : over(snapshot.at);
}

/** What this state of the server says of its end. */
export function wordOf(server: ServerState, at: string): EndEvent {
  const { countdown, keep } = server;
  return { version: PROTOCOL_VERSION, at, kind: server.save ? 'save' : 'warn', countdown, keep };
}

/** It does not end soon. */
export function over(at: string): EndEvent {
  return { version: PROTOCOL_VERSION, at, kind: 'over', countdown: null, keep: null };
}
