// Which stop is warned of, by node's own test runner over what tsc made. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { warnedOf } from '../lib/end.js';

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

test('a countdown that warns is warned of, and the same one stays the same', () => {
  const first = warnedOf(null, word('warn', countdown(540)));
  assert.equal(first.stops_at, countdown(540).stops_at);
  assert.equal(
    warnedOf(
      first,
      word(
        'warn',
        countdown(585, {
          reason: { reason: 'idle', params: { idle: 1320 }, message: '', log_message: '' }
        })
      )
    ),
    first
  );
  assert.equal(warnedOf(first, word('save', countdown(540))), first);
});

test('an end that moves, or has another cause, is a new one', () => {
  const first = countdown(540);
  assert.notEqual(warnedOf(first, word('warn', countdown(300))), first);
  assert.notEqual(warnedOf(first, word('warn', countdown(540, { cause: 'lifetime' }))), first);
});

test('only the word that it is over takes it back', () => {
  const first = countdown(540);
  assert.equal(warnedOf(first, null), first, 'the service is away');
  assert.equal(warnedOf(first, word('save')), first);
  assert.equal(warnedOf(first, word('over')), null);
});

test('a countdown that is far, and nothing, are not warned of', () => {
  assert.equal(warnedOf(null, word('save', countdown(540, { warn: false }))), null);
  assert.equal(warnedOf(null, null), null);
});
