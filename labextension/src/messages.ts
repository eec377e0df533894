// Made by scripts/generate-types.py from hub_extensions/core/messages. Change those files, not this one.
// Times are ISO 8601 in UTC; null is not known.

/** When this server stops and why. No countdown, no object. */
export interface Countdown {
  stops_at: string;
  cause: string;
  reason: Reason;
  can_keep: boolean;
  warn: boolean;
  last_warning: string | null;
  no_keep: Reason | null;
  others: OtherEnd[];
}

/** What GPM or DCGM count beside the use: each 0 to 100, of this device alone; None is not known. */
export interface Counters {
  sm_percent: number | null;
  tensor_percent: number | null;
  dram_percent: number | null;
}

/** What Jupyter Server's event stream tells every page, seen or hidden, about this server's end. */
export interface EndEvent {
  version: number;
  at: string;
  kind: string;
  countdown: Countdown | null;
  keep: Keep | null;
}

/** The use of a server's device as the service knows it from elsewhere (DCGM through Prometheus, `source` dcgm). */
export interface Figures {
  uuid: string;
  at: string;
  used_percent: number | null;
  source: string;
  counters: Counters | null;
}

/** This server's device as its own extension reads it. None is not known; `note` says why. */
export interface GpuReading {
  uuid: string;
  product: string;
  profile: string | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  used_percent: number | null;
  source: string;
  at: string;
  note: Reason | null;
  own_memory_bytes: number | null;
  limit_bytes: number | null;
  limit_source: string;
  counters: Counters | null;
  holders: Holder[] | null;
  holders_note: Reason | null;
  shared: boolean;
}

/** One of this server's own programs that holds memory of its GPU. */
export interface Holder {
  name: string;
  path: string;
  kernel: string;
  memory_bytes: number | null;
  idle_since: string | null;
}

/** The *keep* budget: minutes each adds, how many of how many are left in 24 hours. */
export interface Keep {
  minutes: number;
  left: number;
  of: number;
  of_server: boolean;
}

/** What moves of one device: all there is to say while nothing else changes. */
export interface Numbers {
  uuid: string;
  at: string;
  memory_used_bytes: number | null;
  own_memory_bytes: number | null;
  used_percent: number | null;
  counters: Counters | null;
}

/** What administrators have closed of an offer: nothing new starts there. */
export interface OfferClosing {
  count: number;
  all: boolean;
  since: string | null;
  why: string;
}

/** One offer as the form shows it. */
export interface OfferState {
  id: string;
  kind: string;
  title: string;
  description: string;
  pool: string;
  share: number;
  isolation: Record<string, string>;
  memory_bytes: number | null;
  memory_enforced: boolean;
  sm_count: number | null;
  sm_total: number | null;
  product: string;
  simulated: boolean;
  free: number | null;
  total: number | null;
  held: number;
  held_by_others: number;
  lost: number;
  waiting: number;
  wait: Wait;
  queue: string;
  name: string;
  closed: OfferClosing | null;
}

/** A cause to stop a server that stands beside the first one. */
export interface OtherEnd {
  at: string;
  cause: string;
  reason: Reason;
  ordered_by: string;
  withdrawn_by: string | null;
}

/** An error's body: what is wrong and what would be right, in which field, a stable code, and its parameters. */
export interface Problem {
  message: string;
  field: string;
  reason: string;
  params: Record<string, string | number>;
}

/** One message to the panel: only what changed since the one before. `version` is the wire's version. */
export interface Push {
  version: number;
  at: string;
  snapshot: Snapshot | null;
  history: Series[] | null;
  numbers: Numbers[];
}

/** Why, with JupyterHub's own three faces: `message` for people, `log_message` for the log, `reason` for programs. */
export interface Reason {
  reason: string;
  message: string;
  params: Record<string, string | number>;
  log_message: string;
}

/** The last ten minutes of one device, oldest first: three lists of one length, one entry a reading. */
export interface Series {
  uuid: string;
  ages_seconds: number[];
  used_percent: (number | null)[];
  memory_bytes: (number | null)[];
}

/** What the service tells a server's own extension. */
export interface ServerState {
  user: string;
  server: string;
  offer: string;
  title: string;
  uuid: string | null;
  share: number;
  memory_bytes: number | null;
  memory_enforced: boolean;
  simulated: boolean;
  lease_state: string;
  countdown: Countdown | null;
  keep: Keep | null;
  ends_at: string | null;
  save: boolean;
  warnings: Reason[];
  waits: OfferState[];
  rule: Reason | null;
  figures: Figures | null;
  drain_seconds: number;
  signs: UseSign[];
  idle_below_percent: number;
  name: string;
}

/** What the panel shows. `version` is the wire's version. */
export interface Snapshot {
  version: number;
  at: string;
  state: string;
  reason: Reason | null;
  gpus: GpuReading[];
  server: ServerState | null;
  service_note: Reason | null;
  period_seconds: number;
}

/** One sign of use. */
export interface UseSign {
  kind: string;
  value: string;
  source: string;
  at: string | null;
  decides: boolean;
}

/** A wait forecast on the wire. Seconds; None is not known. */
export interface Wait {
  now: boolean;
  p10_seconds: number | null;
  p50_seconds: number | null;
  p90_seconds: number | null;
  at_most_seconds: number | null;
  reason: Reason | null;
  as_of: string | null;
  soon: number[];
  note: string;
  wide: boolean;
}
