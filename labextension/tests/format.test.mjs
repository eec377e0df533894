// The panel's words, by node's own test runner over what tsc made. Run: npm test
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import {
  announcement,
  besideText,
  chartText,
  endText,
  freeNow,
  freeText,
  isOld,
  isReached,
  keepLeft,
  memoryOf,
  memoryPercent,
  memoryText,
  notMeasurable,
  reasonText,
  secondsLeft,
  sourceText,
  statusText,
  stopText,
  unreachedText,
  useText,
  viewOf,
  takeWords,
  waitsAgeWords,
  waitText
} from '../lib/format.js';
import { SENTENCES } from '../lib/reasons.js';
import { clock, duration, size } from '../lib/units.js';

const put = (text, values) =>
  text
    .replace(/%%/g, '%% ')
    .replace(/%(\d+)/g, (_, place) => values[place - 1])
    .replace(/%% /g, '%');
const trans = {
  __: (text, ...values) => put(text, values),
  _p: (_, text, ...values) => put(text, values),
  // JupyterLab puts the number itself in as %1, before the values
  _n: (one, many, count, ...values) => put(count === 1 ? one : many, [count, ...values])
};
/** A reason without its English text: its words come from its code. */
const because = (reason, params = {}) => ({ reason, params, message: '', log_message: '' });
/** Why a server stops that has done nothing for so many minutes. */
const idle = minutes => because('idle', { idle: 60 * minutes });
/** A catalogue with these sentences. */
const catalogue = sentences => ({
  __: (text, ...values) => put(sentences[text] ?? text, values),
  _p: (context, text, ...values) => put(sentences[`${context} ${text}`] ?? text, values),
  _n: (one, many, count, ...values) =>
    put(sentences[count === 1 ? one : many] ?? many, [count, ...values])
});
const EXAMPLES = JSON.parse(readFileSync(new URL('reasons.json', import.meta.url), 'utf8'));
const example = code => EXAMPLES.find(({ reason }) => reason === code);
const NOW = Date.parse('2026-11-21T14:00:00Z');
const GIB = 1024 ** 3;

function reading(changes = {}) {
  return {
    uuid: 'MIG-1',
    product: 'NVIDIA A100-PCIE-40GB',
    profile: '1g.5gb',
    memory_used_bytes: 3.1 * GIB,
    memory_total_bytes: 4.75 * GIB,
    used_percent: 84.2,
    source: 'nvml',
    at: '2026-11-21T13:59:59Z',
    note: null,
    own_memory_bytes: null,
    limit_bytes: null,
    limit_source: '',
    counters: null,
    holders: null,
    holders_note: null,
    shared: false,
    ...changes
  };
}

function part(changes = {}) {
  return reading({
    memory_used_bytes: 12.3 * GIB,
    memory_total_bytes: 39.5 * GIB,
    own_memory_bytes: 3.1 * GIB,
    limit_bytes: 20 * GIB,
    limit_source: 'share',
    shared: true,
    ...changes
  });
}

function snapshot(changes = {}) {
  return {
    version: 5,
    at: '2026-11-21T14:00:00Z',
    state: 'ok',
    reason: null,
    gpus: [reading()],
    server: null,
    service_note: null,
    period_seconds: 1,
    ...changes
  };
}

function countdown(changes = {}) {
  return {
    stops_at: '2026-11-21T14:09:00Z',
    cause: 'idle',
    reason: idle(21),
    can_keep: true,
    warn: true,
    ...changes
  };
}

function offer(wait, waiting = 0) {
  const unknown = {
    now: false,
    p10_seconds: null,
    p50_seconds: null,
    p90_seconds: null,
    at_most_seconds: null
  };
  return { waiting, wait: { ...unknown, reason: null, ...wait } };
}

const plain = text => text.replaceAll('\u00a0', ' ');
const n = number => number.toLocaleString(); // as this machine's language writes it
const SHOWN = { unit: 'GiB', statusBar: 'both' };
const words = (given, settings = {}, now = NOW, connection = 'open') =>
  plain(statusText(given, connection, { ...SHOWN, ...settings }, now, trans));
const NUMBERS = `GPU ${n(3.1)}/${n(4.75)} GiB · 84 %`;

test('a length of time is never longer than it is, and a limit never shorter', () => {
  assert.equal(plain(duration(59.9, trans)), '59 s');
  assert.equal(plain(duration(119, trans)), '1 min');
  assert.equal(plain(duration(119, trans, true)), '2 min');
  assert.equal(plain(duration(7800, trans)), '2 h 10 min');
  assert.equal(plain(duration(3599.5, trans, true)), '1 h');
  assert.equal(plain(duration(-5, trans)), '0 s');
});

const memory = (given, unit = 'GiB') => plain(memoryText(memoryOf(given), unit, trans));

test('memory is shown against the real limit', () => {
  assert.equal(memory(reading()), `${n(3.1)} of ${n(4.75)} GiB`);
  assert.equal(Math.round(memoryPercent(memoryOf(reading()))), 65);
});

test('sizes follow the unit that was chosen', () => {
  assert.equal(memory(reading(), 'GB'), `${n(3.3)} of ${n(5.1)} GB`);
  assert.equal(size(20e9, 'GB', 1, trans), '20');
});

test('a little memory is not shown as none', () => {
  assert.equal(memory(reading({ memory_used_bytes: 0.06 * GIB })), `${n(0.06)} of ${n(4.75)} GiB`);
  assert.equal(memory(reading({ memory_used_bytes: 0 })), `0 of ${n(4.75)} GiB`);
});

test('unknown is never zero', () => {
  const unknown = reading({ memory_used_bytes: null, used_percent: null, source: 'nvml' });
  assert.equal(memoryPercent(memoryOf(unknown)), null);
  assert.equal(memory(unknown), `unknown of ${n(4.75)} GiB`);
  assert.equal(useText(unknown, trans), 'unknown');
  assert.equal(memoryPercent({ used: 1, limit: null }), null);
  assert.equal(memory(reading({ memory_total_bytes: null })), `${n(3.1)} GiB, limit unknown`);
  assert.equal(memory(part({ limit_bytes: null })), `yours ${n(3.1)} GiB, limit unknown`);
  const nothing = reading({ memory_used_bytes: null, memory_total_bytes: null });
  assert.equal(memory(nothing), 'unknown');
  assert.equal(words(snapshot({ gpus: [nothing] })), 'GPU memory unknown · 84 %');
  const limitless = snapshot({ gpus: [reading({ memory_total_bytes: null })] });
  assert.equal(words(limitless), `GPU ${n(3.1)} GiB · 84 %`);
});

test('on a part of a device the numbers are mine, and the neighbours are never counted as me', () => {
  assert.equal(memory(part()), `yours ${n(3.1)} of about 20 GiB`);
  assert.equal(Math.round(memoryPercent(memoryOf(part()))), 16);
  assert.equal(
    plain(besideText(part(), 'GiB', trans)),
    `Whole device, everybody: ${n(12.3)} of ${n(39.5)} GiB. ` +
      'Your share is by agreement: nothing holds anybody to it.'
  );
  const unknown = part({ own_memory_bytes: null });
  assert.equal(memory(unknown), 'yours unknown of about 20 GiB');
  assert.equal(memoryPercent(memoryOf(unknown)), null);
  assert.equal(words(snapshot({ gpus: [unknown] })), 'GPU memory unknown · 84 % by all users');
});

test('on a device that may be shared the device’s figures are never mine, whatever else is known', () => {
  const inDoubt = part({ limit_bytes: null, limit_source: '' });
  assert.equal(memory(inDoubt), `yours ${n(3.1)} GiB, limit unknown`);
  assert.equal(words(snapshot({ gpus: [inDoubt] })), `GPU yours ${n(3.1)} GiB · 84 % by all users`);
  assert.equal(
    plain(besideText(inDoubt, 'GiB', trans)),
    `Whole device, everybody: ${n(12.3)} of ${n(39.5)} GiB.`
  );
  const nothing = part({ own_memory_bytes: null, limit_bytes: null, limit_source: '' });
  assert.equal(memory(nothing), 'unknown');
});

test('a limit of HAMi is enforced, and named', () => {
  const limited = part({ limit_source: 'hami', limit_bytes: 10 * GIB });
  assert.equal(memory(limited), `yours ${n(3.1)} of 10 GiB`);
  assert.match(besideText(limited, 'GiB', trans), /Your limit is set by HAMi\./);
});

test('a limit of HAMi on a device of one’s own is what memory stands against', () => {
  const limited = reading({ limit_source: 'hami', limit_bytes: 4 * GIB });
  assert.equal(memory(limited), `${n(3.1)} of 4 GiB`);
  assert.equal(besideText(limited, 'GiB', trans), 'Your limit is set by HAMi.');
  assert.equal(besideText(reading(), 'GiB', trans), '');
});

test('a card that cannot tell its use says so', () => {
  assert.equal(
    useText(reading({ used_percent: null, source: 'none' }), trans),
    'not measurable on this card'
  );
  assert.equal(plain(useText(reading({ used_percent: 0 }), trans)), '0 %');
});

test('what is not known now is not called unmeasurable', () => {
  for (const source of ['nvml', 'gpm', 'dcgm', 'simulated']) {
    const silent = reading({ used_percent: null, source });
    assert.equal(useText(silent, trans), 'unknown');
    assert.equal(notMeasurable(silent), false);
  }
  assert.ok(notMeasurable(reading({ used_percent: null, source: 'none' })));
});

test('where the use comes from is said, and how old it is when it comes from elsewhere', () => {
  assert.match(sourceText(reading(), null, NOW, trans), /NVML/);
  assert.match(sourceText(reading({ source: 'gpm' }), null, NOW, trans), /GPM/);
  const figures = { uuid: 'MIG-1', at: '2026-11-21T13:59:35Z' };
  assert.equal(
    plain(sourceText(reading({ source: 'dcgm' }), { figures }, NOW, trans)),
    "Use is measured by the cluster's monitoring (DCGM), 25 s ago."
  );
  const newer = { ...figures, at: '2026-11-21T14:00:20Z' };
  assert.match(
    plain(sourceText(reading({ source: 'dcgm' }), { figures: newer }, NOW + 25_000, trans)),
    / 5 s ago/
  );
  assert.equal(sourceText(reading({ source: 'none' }), null, NOW, trans), '');
});

test('waits say now, a likely range, an enforced limit, or that they are unknown', () => {
  assert.equal(waitText(offer({ now: true }), trans), 'starts now');
  assert.equal(
    plain(waitText(offer({ at_most_seconds: 7800 }, 2), trans)),
    '2 in line, wait at most 2 h 10 min'
  );
  const likely = offer({ p10_seconds: 1500, p90_seconds: 4200, at_most_seconds: null });
  assert.equal(plain(waitText(likely, trans)), 'likely 25 min to 1 h 10 min');
  const narrow = offer({ p10_seconds: 300, p90_seconds: 299, at_most_seconds: null });
  assert.equal(plain(waitText(narrow, trans)), 'likely about 5 min');
  assert.equal(waitText(offer({}), trans), 'wait unknown');
  assert.equal(waitText(offer({ now: true }, 1), trans), 'starts now');
});

test('a likely wait that begins at once has one figure, and a rough one says so', () => {
  const soon = { p10_seconds: 0, p90_seconds: 300 };
  assert.equal(plain(waitText(offer(soon), trans)), 'likely within 5 min');
  assert.equal(
    plain(waitText(offer({ p10_seconds: 0, p90_seconds: 0 }), trans)),
    'likely within 1 min'
  );
  assert.equal(
    plain(waitText(offer({ ...soon, note: 'rough' }), trans)),
    'likely within 5 min (rough)'
  );
});

test('a wide likely wait says so', () => {
  const wide = offer({ p10_seconds: 900, p90_seconds: 7200, wide: true });
  assert.equal(plain(waitText(wide, trans)), 'likely roughly 15 min to 2 h');
  const soon = offer({ p10_seconds: 0, p90_seconds: 2700, wide: true, note: 'rough' });
  assert.equal(plain(waitText(soon, trans)), 'likely within roughly 45 min');
});

test('a wait that is wide and rough says so once, in each language', () => {
  const told = {
    fi_FI: 'todennäköisesti karkeasti 15 min–2 h',
    ja_JP: 'おそらく おおよそ 15 分～2 時間'
  };
  for (const [language, words] of Object.entries(told)) {
    const file = `../../hub_extensions/locale/${language}/LC_MESSAGES/jupyterhub_gpu.json`;
    const { '': _, ...read } = JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
    const sentences = Object.fromEntries(Object.entries(read).map(([id, [text]]) => [id, text]));
    const wide = offer({ p10_seconds: 900, p90_seconds: 7200, wide: true, note: 'rough' });
    assert.equal(plain(waitText(wide, catalogue(sentences))), words);
  }
});

test('"not enough data yet" is said instead of a range, beside a limit that is enforced', () => {
  const few = { note: 'few-data' };
  assert.equal(waitText(offer(few, 1), trans), '1 in line, not enough data yet');
  assert.equal(
    plain(waitText(offer({ ...few, at_most_seconds: 7800 }), trans)),
    'not enough data yet, wait at most 2 h 10 min'
  );
});

test('another choice that could be had now is named, else the one that is likely soonest', () => {
  const full = (title, p90) => ({
    title,
    share: 1,
    ...offer({ p10_seconds: 300, p90_seconds: p90, note: '' })
  });
  const free = { title: 'MIG 1g.5gb', name: 'Small GPU', share: 1, ...offer({ now: true }) };
  const cpu = { title: 'CPU only', share: 0, ...offer({ now: true }) };
  const [slow, quick] = [full('GPU', 7200), full('MIG 2g.10gb', 900)];
  assert.equal(
    takeWords([slow, free, cpu], trans),
    'Free now: Small GPU. To have one instead, stop this server and choose it on the start page.'
  );
  assert.equal(
    plain(takeWords([slow, quick, cpu], trans)),
    'Soonest: MIG 2g.10gb, likely 5 min to 15 min.'
  );
  assert.equal(takeWords([{ ...slow, ...offer({}) }, cpu], trans), '');
});

test('likely waits have the time of the oldest of them', () => {
  const of = as_of => ({ wait: { as_of } });
  const found = waitsAgeWords(
    [of('2026-11-21T14:00:00Z'), of(null), of('2026-11-21T13:59:00Z')],
    NOW,
    trans
  );
  assert.equal(found, `Likely waits as of ${clock('2026-11-21T13:59:00Z', NOW)}.`);
  assert.equal(waitsAgeWords([of(null)], NOW, trans), '');
});

test('what is free is counted only where it is known', () => {
  assert.equal(freeText({ free: 2, total: 5 }, trans), '2 of 5 free');
  assert.equal(freeText({ free: null, total: 5 }, trans), '');
  assert.equal(freeText({ free: 0, total: 5 }, trans), 'full');
  assert.equal(freeText({ free: 0, total: 0 }, trans), 'none there now');
});

test('what is free now is named with how many, and CPU only is not a GPU', () => {
  const now = { now: true };
  const offers = [
    { title: 'MIG 1g.5gb', name: 'Small GPU', share: 1, free: 2, total: 5, wait: now },
    { title: 'MIG 2g.10gb', share: 1, free: 0, total: 1, wait: { now: false } },
    { title: 'CPU only', share: 0, free: null, total: null, wait: now }
  ];
  assert.equal(freeNow(offers, trans), 'Free now: Small GPU (2 of 5 free).');
  assert.equal(freeNow(offers.slice(1), trans), '');
});

test('the status bar has the numbers, and the countdown only when it is near', () => {
  assert.equal(words(snapshot()), NUMBERS);
  const near = snapshot({ server: { countdown: countdown() } });
  assert.equal(words(near), `${NUMBERS} · stops in 9 min`);
  const far = snapshot({ server: { countdown: countdown({ stops_at: '2026-11-21T14:10:00Z' }) } });
  assert.equal(words(far), NUMBERS);
});

test('the status bar shows what was chosen', () => {
  assert.equal(words(snapshot(), { statusBar: 'memory' }), `GPU ${n(3.1)}/${n(4.75)} GiB`);
  assert.equal(words(snapshot(), { statusBar: 'use' }), 'GPU 84 %');
  assert.equal(words(snapshot(), { statusBar: 'nothing' }), '');
  const unknown = snapshot({ gpus: [reading({ used_percent: null })] });
  assert.equal(words(unknown, { statusBar: 'use' }), 'GPU use unknown');
  assert.equal(words(unknown), `GPU ${n(3.1)}/${n(4.75)} GiB`);
});

test('several GPUs are summed, and not where one of them is unknown', () => {
  const two = [reading({ used_percent: 40 }), reading({ uuid: 'MIG-2', used_percent: 80 })];
  assert.equal(words(snapshot({ gpus: two })), `2 GPUs ${n(6.2)}/${n(9.5)} GiB · 60 %`);
  const one = [two[0], reading({ uuid: 'MIG-2', used_percent: null, memory_used_bytes: null })];
  assert.equal(words(snapshot({ gpus: one })), '2 GPUs memory unknown');
});

test('a part of a device is never shown as if its use was its own', () => {
  const half = snapshot({ gpus: [part()] });
  assert.equal(words(half), `GPU yours ${n(3.1)} of 20 GiB · 84 % by all users`);
  assert.equal(words(half, { statusBar: 'use' }), 'GPU 84 % by all users');
  const whole = snapshot({ server: { share: 0.5, memory_bytes: 20 * GIB } });
  assert.equal(words(whole), NUMBERS, 'the server alone says what is shared');
});

test('one line says when a server ends, and "no end" only where there is none', () => {
  const { message, ...rule } = example('rule');
  const server = changes => ({
    rule,
    ends_at: '2026-11-21T22:10:00Z',
    countdown: null,
    ...changes
  });
  const said = changes => plain(endText(server(changes), NOW, trans));
  const latest = `Ends at ${plain(clock('2026-11-21T22:10:00Z', NOW))} at the latest`;
  const params = { idle: 180, warn: 60 };
  const idle = 'or when its GPU is idle for 3 min';
  const warned = '(you are warned 1 min before).';
  assert.equal(said({ rule: because('rule-at-most', params) }), `${latest}, ${idle} ${warned}`);
  assert.equal(
    said({ rule: because('rule-wanted', { ...params, wanted: 90 }) }),
    `${latest}, ${idle}, or for 1 min 30 s while somebody waits for one ${warned}`
  );
  assert.equal(said({ countdown: countdown() }), `${latest}.`, 'the countdown says the rest');
  assert.equal(said({ countdown: countdown(), ends_at: null }), '');
  assert.equal(said({ rule: null }), `${latest}.`);
  assert.equal(said({ ends_at: null }), message);
  assert.equal(said({ ends_at: null, rule: null }), 'No end is planned.');
});

test('what is left of keep is of 24 hours, not of a day', () => {
  assert.equal(
    plain(keepLeft({ minutes: 30, left: 1, of: 2 }, trans)),
    'Keep: 1 of 2 left in 24 h'
  );
  const extension = { minutes: 120, left: 1, of: 2, of_server: true };
  assert.equal(plain(keepLeft(extension, trans)), 'Keep: 1 of 2 left');
  assert.equal(plain(keepLeft({ ...extension, left: 0 }, trans)), 'Keep is used up: 2 of 2.');
  assert.equal(
    plain(keepLeft({ minutes: 30, left: 0, of: 2 }, trans)),
    'Keep is used up: 2 of 2 in 24 h.'
  );
});

test('a countdown that stands still is not shown as running', () => {
  const away = snapshot({
    server: { countdown: countdown(), warnings: [] },
    service_note: because('away')
  });
  assert.equal(words(away), NUMBERS);
});

test('numbers older than three periods are not shown as if they were new', () => {
  assert.equal(words(snapshot(), {}, NOW + 60_000), 'GPU not answering');
  const at = seconds => NOW + (seconds - 1) * 1000; // the reading is a second old
  assert.equal(isOld(reading(), snapshot(), at(3)), false);
  assert.equal(isOld(reading(), snapshot(), at(3.1)), true);
  assert.equal(isOld(reading(), snapshot({ period_seconds: 10 }), at(29)), false);
  assert.equal(isOld(reading(), snapshot({ period_seconds: 0.5 }), at(2.9)), false);
});

test('a server that is not reached says nothing about its GPU, and nothing runs to an old end', () => {
  const near = snapshot({ server: { countdown: countdown() } });
  assert.equal(words(near, {}, NOW, 'lost'), 'GPU: server not reached');
  assert.equal(words(near, {}, NOW + 60_000, 'lost'), 'GPU: server not reached');
  assert.equal(words(near, {}, NOW, 'outdated'), 'GPU: reload this page');
  assert.equal(words(near, {}, NOW, 'signed-out'), 'GPU: signed out');
  assert.equal(words(near, {}, NOW, 'stopped'), 'GPU: server stopped');
  assert.equal(words(near, {}, NOW, 'connecting'), `${NUMBERS} · stops in 9 min`);
  assert.equal(words(near, {}, NOW + 60_000, 'connecting'), 'GPU: server not reached');
  assert.equal(words(near, {}, NOW + 60_000, 'open'), 'GPU not answering · stops in 8 min');
  assert.equal(words(null, {}, NOW, 'lost'), '');
  assert.equal(words(snapshot({ gpus: [] }), {}, NOW, 'lost'), '');
  assert.equal(words(near, { statusBar: 'nothing' }, NOW, 'lost'), '');
});

test('what the server said last holds while it is heard, and a moment longer', () => {
  assert.equal(isReached(snapshot(), 'open', NOW + 600_000), true);
  assert.equal(isReached(snapshot(), 'hidden', NOW + 1_000), true);
  assert.equal(isReached(snapshot(), 'connecting', NOW + 60_000), false);
  assert.equal(isReached(snapshot(), 'lost', NOW), false);
  assert.equal(isReached(snapshot(), 'stopped', NOW), false);
  assert.equal(isReached(snapshot(), 'outdated', NOW), false);
});

test('without a snapshot or a GPU the status bar says nothing', () => {
  assert.equal(words(null), '');
  assert.equal(words(snapshot({ gpus: [], state: 'no-gpu' })), '');
});

test('every state has its view', () => {
  assert.equal(viewOf(null, 'connecting'), 'loading');
  assert.equal(viewOf(null, 'absent'), 'absent');
  assert.equal(viewOf(null, 'lost'), 'lost');
  assert.equal(viewOf(null, 'signed-out'), 'lost');
  assert.equal(viewOf(null, 'stopped'), 'stopped');
  assert.equal(viewOf(snapshot(), 'stopped'), 'stopped', 'its numbers are nobody’s any more');
  assert.equal(viewOf(null, 'hidden'), 'loading');
  assert.equal(viewOf(snapshot(), 'outdated'), 'outdated');
  assert.equal(viewOf(snapshot({ gpus: [], state: 'starting' }), 'open'), 'loading');
  assert.equal(viewOf(snapshot({ gpus: [], state: 'no-gpu' }), 'open'), 'cpu');
  assert.equal(viewOf(snapshot({ gpus: [], state: 'driver-not-loaded' }), 'open'), 'problem');
  assert.equal(viewOf(snapshot({ state: 'not-answering' }), 'lost'), 'gpu');
});

test('a countdown ends at zero', () => {
  assert.equal(secondsLeft(countdown(), NOW), 540);
  assert.equal(secondsLeft(countdown(), NOW + 3_600_000), 0);
  assert.equal(secondsLeft(null, NOW), null);
});

test('a screen reader hears states, never numbers that move', () => {
  const one = snapshot({
    server: { countdown: countdown(), warnings: [example('gpu-lost'), example('other-program')] },
    state: 'lost',
    reason: example('gpu-lost'),
    service_note: example('server-not-known')
  });
  const other = { ...one, gpus: [reading({ used_percent: 3 })] };
  const said =
    'The GPU of this server is gone from the machine. Save your work and stop the server. ' +
    'The GPU service does not know this server yet. ' +
    'A program of another server uses this GPU. The administrators see it too.';
  assert.equal(announcement(one, false, NOW, trans), said);
  assert.equal(announcement(other, false, NOW + 1000, trans), said);
  assert.match(announcement(one, true, NOW, trans), /kept/);
  assert.equal(announcement(snapshot(), false, NOW, trans), '');
});

test('the deadline interrupts once: its words do not count down', () => {
  const later = countdown({ reason: idle(25) });
  assert.match(stopText(countdown().stops_at, NOW, trans), /^This server stops at [^.]*\.$/);
  assert.equal(
    stopText(countdown().stops_at, NOW, trans),
    stopText(later.stops_at, NOW + 240_000, trans)
  );
});

test('a chart is one sentence for who does not see it', () => {
  const written = value => `${value} %`;
  assert.equal(
    chartText('In use', '84 %', false, { lowest: 2, highest: 97 }, written, trans),
    'In use in the last 10 min: now 84 %, lowest 2 %, highest 97 %.'
  );
  assert.match(
    chartText('In use', '84 %', true, { lowest: 2, highest: 97 }, written, trans),
    /last known 84 %/
  );
  assert.match(chartText('In use', 'unknown', false, null, written, trans), /no numbers/);
});

test("every reason says in English what the server's own text says", () => {
  const made = EXAMPLES.filter(({ params }) => Object.keys(params).length > 0);
  assert.ok(made.length > 10);
  for (const { reason, params, message } of made) {
    const expected = message.replace(/\d{4}-\d\d-\d\dT[\d:]+Z/g, at => clock(at, NOW));
    assert.equal(plain(reasonText(because(reason, params), NOW, trans)), plain(expected), reason);
  }
  assert.deepEqual([...new Set(made.map(({ reason }) => reason))], [...SENTENCES.keys()]);
  for (const one of EXAMPLES.filter(({ params }) => Object.keys(params).length === 0)) {
    assert.equal(reasonText(one, NOW, trans), one.message);
  }
});

test('a reason without parameters is translated by its code, whatever its English text is', () => {
  const finnish = catalogue({ 'reason one-free': 'Yksi on vapaana.', 'one-free': 'not this' });
  const reason = { ...because('one-free'), message: 'There is a free one.' };
  assert.equal(reasonText(reason, NOW, finnish), 'Yksi on vapaana.');
  assert.equal(reasonText({ ...reason, reason: 'two-free' }, NOW, finnish), reason.message);
  assert.equal(reasonText({ ...reason, reason: '' }, NOW, finnish), reason.message);
});

test('a reason is translated with its parameters, and one that is not known stays as it came', () => {
  const reason = {
    reason: 'line-elsewhere',
    params: { queue: 'Kueue' },
    message: 'Kueue says no more.',
    log_message: ''
  };
  const finnish = catalogue({
    '%1 hands out the GPUs here and does not say how long it takes.': '%1 jakaa.'
  });
  assert.equal(reasonText(reason, NOW, finnish), 'Kueue jakaa.');
  assert.equal(reasonText({ ...reason, params: {} }, NOW, finnish), reason.message);
  assert.equal(reasonText({ ...reason, reason: 'constructor' }, NOW, finnish), reason.message);
  assert.equal(reasonText(null, NOW, finnish), '');
});

test("a reason's times and lengths are written in the reader's time and language", () => {
  const since = at => reasonText(because('away-since', { since: at }), NOW, trans);
  const here = clock('2026-11-21T13:30:00Z', NOW);
  assert.equal(since('2026-11-21T13:30:00Z'), `The GPU service is not answering since ${here}.`);
  const later = clock('2026-11-23T13:30:00Z', NOW);
  assert.ok(later.length > here.length, 'with its weekday');
  assert.equal(since('2026-11-23T13:30:00Z'), `The GPU service is not answering since ${later}.`);
  assert.equal(reasonText(idle(81), NOW, trans), 'Idle for 1\u00a0h 21\u00a0min.');
});

test('a reason is looked up without its numbers, and by how many there are', () => {
  const finnish = catalogue({
    'Idle for %1.': 'Joutilaana %1.',
    'You have pressed Keep %1 times in %2, which is all; again in %3.':
      'Pidetty %1 kertaa (%2); taas: %3.'
  });
  for (const minutes of [21, 22]) {
    assert.equal(plain(reasonText(idle(minutes), NOW, finnish)), `Joutilaana ${minutes} min.`);
  }
  const kept = times => because('keep-none-left', { times, day: 86_400, wait: 5_400 });
  assert.equal(
    plain(reasonText(kept(2), NOW, finnish)),
    'Pidetty 2 kertaa (24 h); taas: 1 h 30 min.'
  );
  assert.equal(
    plain(reasonText(kept(1), NOW, trans)),
    'You have pressed Keep once in 24 h, which is all; again in 1 h 30 min.'
  );
});

test("a text of the server's comes out as it went in, whole or as a part of a reason", () => {
  for (const text of [
    '',
    'MIG 1g.5gb on gpu-3 (10.0.0.7): 100% of 12 %, %1 and 50%%2.',
    'Code 15, driver 570.86.15, pid 4711, 1.',
    '2026-11-21T13:30:00Z, 21 min and 4.75 GiB.'
  ]) {
    const newer = { ...because('of-a-newer-version'), message: text };
    assert.equal(reasonText(newer, NOW, trans), text);
    const failed = because('read-failed', { why: text });
    assert.equal(reasonText(failed, NOW, trans), `The GPU cannot be read: ${text}`);
  }
});

test('a refusal is translated by its code, as any reason', () => {
  const { message, reason, params } = example('keep-lifetime');
  const problem = { message: 'No.', field: 'keep', reason, params };
  assert.equal(plain(reasonText(problem, NOW, trans)), message);
  assert.equal(reasonText({ ...problem, reason: 'bad-input' }, NOW, trans), 'No.');
});

test('a page that lost its server says what the server was about to do', () => {
  const end = {
    version: 5,
    at: '2026-11-21T13:58:00Z',
    kind: 'warn',
    countdown: {
      stops_at: '2026-11-21T13:59:00Z',
      cause: 'idle',
      reason: idle(21),
      can_keep: true,
      warn: true
    },
    keep: null
  };
  assert.match(unreachedText('lost', end, NOW, trans), /^This server was to stop at /);
  assert.match(
    unreachedText('lost', end, NOW - 120_000, trans),
    /^This page cannot reach its server/
  );
  assert.match(unreachedText('lost', null, NOW, trans), /^This page cannot reach its server/);
  assert.equal(unreachedText('open', end, NOW, trans), '');
  assert.match(unreachedText('signed-out', end, NOW, trans), /^You are signed out\. Sign in again/);
});
