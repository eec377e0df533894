// Made by scripts/generate-types.py from hub_extensions/core/messages. Change those files, not this one.
// Times are ISO 8601 in UTC; null is not known.

/** When and why this server stops. There is one only if the server is to stop. */
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

/** Further counters of GPM or DCGM, NVIDIA's performance counters, of this device alone. None if not known. */
export interface Counters {
  sm_percent: number | null;
  tensor_percent: number | null;
  dram_percent: number | null;
}

/** An event about the end of this server, for every page that follows Jupyter Server's event stream. */
export interface EndEvent {
  version: number;
  at: string;
  kind: string;
  countdown: Countdown | null;
  keep: Keep | null;
}

/** The use of a server's device as the service knows it from elsewhere (DCGM through Prometheus, `source` `dcgm`). */
export interface Figures {
  uuid: string;
  at: string;
  used_percent: number | null;
  source: string;
  counters: Counters | null;
}

/** This server's device as read by the server extension. `None` means not known, and `note` explains why. */
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

/** A program of this server that holds memory of its GPU. */
export interface Holder {
  name: string;
  path: string;
  kernel: string;
  memory_bytes: number | null;
  idle_since: string | null;
}

/** The number of times that the user may still press *keep*, which postpones the stop of the server. */
export interface Keep {
  minutes: number;
  left: number;
  of: number;
  of_server: boolean;
}

/** The figures of one device that change with each reading, sent while nothing else changes. */
export interface Numbers {
  uuid: string;
  at: string;
  memory_used_bytes: number | null;
  own_memory_bytes: number | null;
  used_percent: number | null;
  counters: Counters | null;
}

/** The part of an offer that administrators have closed for new starts. */
export interface OfferClosing {
  count: number;
  all: boolean;
  since: string | null;
  why: string;
}

/** One offer as the form shows it. A user receives only offers that the user's groups may choose. */
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

/** A further cause to stop a server, beside the first one. */
export interface OtherEnd {
  at: string;
  cause: string;
  reason: Reason;
  ordered_by: string;
  withdrawn_by: string | null;
}

/** An error as JSON: what is wrong and what would be right. */
export interface Problem {
  message: string;
  field: string;
  reason: string;
  params: Record<string, string | number>;
}

/** One message to the panel, with only what changed since the previous one. */
export interface Push {
  version: number;
  at: string;
  snapshot: Snapshot | null;
  history: Series[] | null;
  numbers: Numbers[];
}

/** An explanation for people, the log and programs: why a server waits or stops, why a request is refused. */
export interface Reason {
  reason: string;
  message: string;
  params: Record<string, string | number>;
  log_message: string;
}

/** The last ten minutes of one device, oldest first: three lists of equal length with one entry for each reading. */
export interface Series {
  uuid: string;
  ages_seconds: number[];
  used_percent: (number | null)[];
  memory_bytes: (number | null)[];
}

/** The state of a server, as the service reports it to the server's own extension. */
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
  extend: Keep | null;
  can_notify: boolean;
  size: string;
}

/** Everything that the panel shows. */
export interface Snapshot {
  version: number;
  at: string;
  state: string;
  reason: Reason | null;
  gpus: GpuReading[];
  server: ServerState | null;
  service_note: Reason | null;
  period_seconds: number;
  trainings: Training[];
}

/** A training run in this server, as its program reports it. `None` means not known. */
export interface Training {
  run: string;
  name: string;
  library: string;
  state: string;
  outside: boolean;
  started: string;
  at: string;
  steps: number;
  total_steps: number | null;
  epoch: number | null;
  epochs: number | null;
  step_seconds: number | null;
  left_seconds: number | null;
  low_seconds: number | null;
  high_seconds: number | null;
  bound: string;
  usual_step_seconds: number | null;
  usual_seconds: number | null;
  usual_runs: number;
  ended_at: string | null;
  notify: boolean;
}

/** One fact about whether a server is in use, such as GPU use or running kernels. */
export interface UseSign {
  kind: string;
  value: string;
  source: string;
  at: string | null;
  decides: boolean;
}

/** A wait forecast. Durations are in seconds; `None` means not known. */
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
