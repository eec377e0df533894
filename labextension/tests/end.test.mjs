// Which stop is warned of, by node's own test runner over what tsc made. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isSame, warnedOf } from '../lib/end.js';

const AT = Date.parse('2026-11-21T14:00:00Z');
const countdown = (seconds, changes = {}) => ({
  stops_at: new Date(AT + seconds * 1000).toISOString(),
  cause: 'idle',
  reason: { reason: 'idle', params: { idle: 1260 }, message: '', log_message: '' },
  can_keep: true,
  warn: true,
  ...changes
});
const word = (said, counted = null) => ({ kind: said, countdown: counted });

test('a countdown that warns is warned of, as the last word has it', () => {
  for (const kind of ['warn', 'save']) {
    assert.equal(warnedOf(null, word(kind, countdown(540))).stops_at, countdown(540).stops_at);
    assert.equal(
      warnedOf(countdown(540), word(kind, countdown(585))).stops_at,
      countdown(585).stops_at
    );
  }
});

test('an end that moves, or has another cause, is a new one', () => {
  const reason = { reason: 'idle', params: { idle: 1320 }, message: '', log_message: '' };
  for (const [other, same] of [
    [countdown(599, { reason }), true],
    [countdown(481), true],
    [countdown(600), false],
    [countdown(300), false],
    [countdown(540, { cause: 'lifetime' }), false],
    [null, false]
  ]) {
    assert.equal(isSame(countdown(540), other), same, other?.stops_at);
  }
});

test('only the word that it is over takes it back', () => {
  const first = countdown(540);
  assert.equal(warnedOf(first, null), first, 'the service is away');
  assert.equal(warnedOf(first, word('save')), first);
  assert.equal(warnedOf(first, word('over')), null);
});

test('giving the GPU back ends whatever was counted down before', () => {
  const given = countdown(0, { cause: 'given-back' });
  for (const kind of ['warn', 'save']) {
    assert.equal(warnedOf(countdown(540), word(kind, given)), null);
  }
});

test('a countdown that is far, and nothing, are not warned of', () => {
  assert.equal(warnedOf(null, word('save', countdown(540, { warn: false }))), null);
  assert.equal(warnedOf(null, null), null);
});
