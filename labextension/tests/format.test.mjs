// The panel's words, by node's own test runner over what tsc made. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  announcement,
  clock,
  duration,
  isShared,
  keepLeft,
  localTimes,
  memoryPercent,
  memoryWords,
  ruleWords,
  secondsLeft,
  shareWords,
  statusWords,
  useWords,
  viewOf,
  waitWords
} from '../lib/format.js';

const trans = {
  __: (text, ...values) =>
    text.replace(/%(\d)/g, (found, place) => String(values[place - 1] ?? found))
};
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
    note: '',
    ...changes
  };
}

function snapshot(changes = {}) {
  return {
    version: 1,
    at: '2026-11-21T14:00:00Z',
    state: 'ok',
    sentence: '',
    gpus: [reading()],
    server: null,
    service_note: '',
    ...changes
  };
}

function countdown(changes = {}) {
  return {
    stops_at: '2026-11-21T14:09:00Z',
    cause: 'idle',
    reason: 'Idle for 21 min.',
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
  return { waiting, wait: { ...unknown, reason: '', ...wait } };
}

const plain = text => text.replaceAll('\u00a0', ' ');
const n = number => number.toLocaleString(); // as this machine's language writes it
const NUMBERS = `GPU ${n(3.1)}/${n(4.75)} GiB · 84 %`;

test('a length of time is never longer than it is, and a limit never shorter', () => {
  assert.equal(plain(duration(59.9, trans)), '59 s');
  assert.equal(plain(duration(119, trans)), '1 min');
  assert.equal(plain(duration(119, trans, true)), '2 min');
  assert.equal(plain(duration(7800, trans)), '2 h 10 min');
  assert.equal(plain(duration(3599.5, trans, true)), '1 h');
  assert.equal(plain(duration(-5, trans)), '0 s');
});

test('memory is shown against the real limit', () => {
  assert.equal(memoryWords(reading(), trans), `${n(3.1)} of ${n(4.75)} GiB`);
  assert.equal(Math.round(memoryPercent(reading())), 65);
});

test('a little memory is not shown as none', () => {
  assert.equal(
    memoryWords(reading({ memory_used_bytes: 0.06 * GIB }), trans),
    `${n(0.06)} of ${n(4.75)} GiB`
  );
  assert.equal(memoryWords(reading({ memory_used_bytes: 0 }), trans), `0 of ${n(4.75)} GiB`);
});

test('unknown is never zero', () => {
  const unknown = reading({ memory_used_bytes: null, used_percent: null, source: 'nvml' });
  assert.equal(memoryPercent(unknown), null);
  assert.equal(memoryWords(unknown, trans), `unknown of ${n(4.75)} GiB`);
  assert.equal(useWords(unknown, trans), 'unknown');
  assert.equal(memoryPercent(reading({ memory_total_bytes: null })), null);
});

test('a card that cannot tell its use says so', () => {
  assert.equal(
    useWords(reading({ used_percent: null, source: 'none' }), trans),
    'not measurable on this card'
  );
  assert.equal(useWords(reading({ used_percent: 0 }), trans), '0 %');
});

test('waits say now, a likely range, an enforced limit, or that they are unknown', () => {
  assert.equal(waitWords(offer({ now: true }), trans), 'now');
  assert.equal(
    plain(waitWords(offer({ at_most_seconds: 7800 }, 2), trans)),
    '2 in line, at most 2 h 10 min'
  );
  const likely = offer({ p10_seconds: 1500, p90_seconds: 4200, at_most_seconds: null });
  assert.equal(plain(waitWords(likely, trans)), 'likely 25 min to 1 h 10 min');
  assert.equal(waitWords(offer({}), trans), 'wait unknown');
});

test('the status bar has the numbers, and the countdown only when it is near', () => {
  assert.equal(plain(statusWords(snapshot(), NOW, trans)), NUMBERS);
  const near = snapshot({ server: { countdown: countdown() } });
  assert.equal(plain(statusWords(near, NOW, trans)), `${NUMBERS} · stops in 9 min`);
  const far = snapshot({ server: { countdown: countdown({ stops_at: '2026-11-21T14:10:00Z' }) } });
  assert.equal(plain(statusWords(far, NOW, trans)), NUMBERS);
});

test('a part of a device is never shown as if its numbers were its own', () => {
  const half = snapshot({ server: { share: 0.5, memory_bytes: 2.4 * GIB } });
  assert.ok(isShared(half));
  assert.equal(
    plain(statusWords(half, NOW, trans)),
    `GPU, all users: ${n(3.1)}/${n(4.75)} GiB · 84 %`
  );
  assert.equal(
    shareWords(half.server, trans),
    `Your share is about ${n(2.4)} GiB, without a wall. ` +
      'The numbers are of the whole device, with everybody on it.'
  );
  assert.ok(!shareWords({ share: 0.5, memory_bytes: null }, trans).includes('unknown'));
  assert.equal(isShared(snapshot({ server: { share: 1 } })), false);
  assert.equal(isShared(snapshot()), false);
});

test('without a countdown the rule is said, and "no end" only where there is none', () => {
  const rule = 'Stops when its GPU is idle for 30 min (you are warned 10 min before).';
  assert.equal(ruleWords({ rule }, trans), rule);
  assert.equal(ruleWords({ rule: '' }, trans), 'No end is planned.');
});

test('what is left of keep is of 24 hours, not of a day', () => {
  assert.equal(plain(keepLeft({ minutes: 30, left: 1, of: 2 }, trans)), '1 of 2 left in 24 h');
});

test('a countdown that stands still is not shown as running', () => {
  const away = snapshot({
    server: { countdown: countdown() },
    service_note: 'The GPU service is not answering.'
  });
  assert.equal(plain(statusWords(away, NOW, trans)), NUMBERS);
  assert.equal(
    announcement(
      { ...away, server: { countdown: countdown(), warnings: [] } },
      false,
      NOW,
      trans
    ).includes('stops'),
    false
  );
});

test('old numbers are not shown as if they were new', () => {
  assert.equal(statusWords(snapshot(), NOW + 60_000, trans), 'GPU not answering');
});

test('without a snapshot or a GPU the status bar says nothing', () => {
  assert.equal(statusWords(null, NOW, trans), '');
  assert.equal(statusWords(snapshot({ gpus: [], state: 'no-gpu' }), NOW, trans), '');
});

test('every state has its view', () => {
  assert.equal(viewOf(null, 'connecting'), 'loading');
  assert.equal(viewOf(null, 'absent'), 'absent');
  assert.equal(viewOf(null, 'lost'), 'lost');
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
  const one = snapshot({ server: { countdown: countdown(), warnings: ['The GPU is gone.'] } });
  const other = { ...one, gpus: [reading({ used_percent: 3 })] };
  assert.equal(announcement(one, false, NOW, trans), announcement(other, false, NOW + 1000, trans));
  assert.match(announcement(one, false, NOW, trans), /This server stops at .* The GPU is gone\./);
  assert.match(
    announcement(snapshot({ server: { countdown: null, warnings: [] } }), true, NOW, trans),
    /kept/
  );
});

test("the server's times are written in the reader's time", () => {
  const here = clock('2026-11-21T13:30:00Z', NOW);
  assert.equal(
    localTimes('Not answering since 2026-11-21T13:30:00Z.', NOW),
    `Not answering since ${here}.`
  );
  assert.equal(
    localTimes('Idle for 1 h 21 min, 3 mines.', NOW),
    'Idle for 1\u00a0h 21\u00a0min, 3 mines.'
  );
  assert.ok(clock('2026-11-23T13:30:00Z', NOW).length > here.length); // with its weekday
});
