// Why a server was stopped, and where it is started again. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { awayText, lossText, starts, stopOf, stopReason, stopTitle } from '../lib/stopped.js';
import { clock } from '../lib/units.js';

const NOW = Date.parse('2026-11-21T15:16:10Z');
const STOPS = '2026-11-21T15:16:00Z';
const trans = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, at) => String(values[at - 1])),
  _p: (_, code) => code
};
const plain = text => text.replaceAll('\u00a0', ' ');
const because = (reason, params = {}) => ({ reason, params, message: reason, log_message: '' });

/** What a page knows of a server whose GPU was idle for 2 min, told so four seconds before its end. */
function known(changes = {}, countdown = {}) {
  const counted = {
    stops_at: STOPS,
    cause: 'idle',
    reason: because('idle', { idle: 120 }),
    can_keep: true,
    warn: true,
    ...countdown
  };
  const server = { rule: because('rule', { idle: 180, warn: 60 }), user: 'ada', server: '' };
  return {
    connection: 'stopped',
    end: { version: 5, at: '2026-11-21T15:15:56Z', kind: 'warn', countdown: counted, keep: null },
    snapshot: { server },
    ...changes
  };
}

const said = (given, now = NOW) => {
  const stop = stopOf(given, now);
  return stop && plain(stopReason(stop, now, trans));
};

test('a stop that was counted down is told with its time, and why', () => {
  const stop = stopOf(known(), NOW);
  assert.equal(stopTitle(stop, NOW, trans), `Your server was stopped at ${clock(STOPS, NOW)}`);
  assert.equal(said(known()), 'Its GPU was idle for 3 min.', 'the limit at least');
  const kept = { reason: because('idle', { idle: 1860 }) };
  assert.equal(said(known({}, kept)), 'Its GPU was idle for 31 min.', 'kept for a while');
});

test('after the reason stands what the service said about the size of the GPU', () => {
  const given = known();
  given.snapshot.server.size = 'A small GPU (4.75 GiB) would have been enough.';
  assert.equal(
    said(given),
    'Its GPU was idle for 3 min. A small GPU (4.75 GiB) would have been enough.'
  );
});

for (const [cause, reason, params, text] of [
  [
    'idle',
    'idle-wanted',
    { idle: 300 },
    'Its GPU was idle for 5 min, and somebody waited for one.'
  ],
  ['idle', 'idle-memory', { idle: 300 }, 'Its GPU held memory and computed nothing for 5 min.'],
  ['idle', 'idle-never-used', { idle: 300 }, 'Its GPU was never used.'],
  ['unopened', 'unopened', { since: 900 }, 'Nobody had opened it.'],
  ['lifetime', 'lifetime', { limit: 43200 }, 'Its time limit of 12 h was over.'],
  ['signed-out', 'signed-out', {}, 'signed-out'],
  ['given-back', 'given-back', {}, 'You gave its GPU back.'],
  ['admin', 'stopped-by-admin', {}, 'An administrator stopped it.'],
  [
    'admin',
    'stopped-by-admin-why',
    { why: 'the course begins' },
    'An administrator stopped it: the course begins'
  ],
  ['some-new-cause', 'some-new-reason', {}, 'some-new-reason']
]) {
  test(`a stop is explained by what it was for: ${reason}`, () => {
    assert.equal(said(known({}, { cause, reason: because(reason, params) })), text);
  });
}

test('nothing is guessed: not confirmed, not due, taken back, or never told', () => {
  for (const connection of ['open', 'lost', 'hidden', 'connecting', 'signed-out', 'absent']) {
    assert.equal(stopOf(known({ connection }), NOW), null, connection);
  }
  const early = Date.parse(STOPS) - 60_000;
  assert.equal(stopOf(known(), early), null, 'stopped by somebody else, before its time');
  assert.equal(stopOf(known({ end: null }), NOW), null, 'the service was away');
  const over = { ...known().end, kind: 'over', countdown: null };
  assert.equal(stopOf(known({ end: over }), NOW), null, 'kept');
});

test('a stop that has begun is known before its time, and one after a sign-out without the hub', () => {
  const saving = known({ end: { ...known().end, kind: 'save' } });
  assert.equal(stopOf(saving, Date.parse(STOPS) - 60_000).at, Date.parse(STOPS) - 60_000);
  const out = { cause: 'signed-out', reason: because('signed-out') };
  assert.equal(stopOf(known({ connection: 'signed-out' }, out), NOW).at, Date.parse(STOPS));
});

test('what is not saved is named', () => {
  assert.equal(lossText([], trans), 'Your notebooks are saved; variables are lost.');
  assert.equal(
    lossText(['a.ipynb', 'b.py'], trans),
    'Not saved, and still open on this page: a.ipynb, b.py. Variables are lost.'
  );
});

test('the panel says it in one text, and else what it knows', () => {
  const at = clock(STOPS, NOW);
  assert.equal(
    plain(awayText(known(), NOW, trans)),
    `Your server was stopped at ${at}. Its GPU was idle for 3 min.`
  );
  assert.equal(awayText(known({ end: null }), NOW, trans), 'This server does not run any more.');
  assert.equal(awayText(known({ connection: 'open' }), NOW, trans), '');
});

test('it is started again by the hub’s form, with the same offer or without a GPU', () => {
  const hub = { hubHost: '', hubPrefix: '/hub/' };
  const server = { user: 'ada lovelace', server: 'thesis', offer: 'mig-1g.5gb' };
  const form = '/hub/spawn/ada%20lovelace/thesis';
  const next = '&next=%2Fuser%2Fada%2Flab';
  assert.deepEqual(starts(hub, server, '/user/ada/lab'), [
    { kind: 'again', url: `${form}?opt-offer=mig-1g.5gb${next}` },
    { kind: 'cpu', url: `${form}?opt-offer=cpu${next}` }
  ]);
  const cpu = { user: 'ada', server: '', offer: 'cpu' };
  assert.deepEqual(
    starts(hub, cpu, '/').map(({ kind }) => kind),
    ['again']
  );
  assert.deepEqual(starts(hub, null, '/'), [{ kind: 'again', url: '/hub/spawn' }]);
  assert.deepEqual(starts({}, server, '/'), [], 'no hub');
});
