// What is known of a server's use, in words. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { belowText, decidedBelow, signWords } from '../lib/signs.js';

const NOW = Date.parse('2026-11-21T14:00:00Z');
const trans = { __: (text, ...words) => text.replace(/%(\d)/g, (_, at) => String(words[at - 1])) };
const sign = (changes = {}) => ({
  kind: 'gpu',
  value: 'idle',
  source: 'nvml',
  at: new Date(NOW - 3000).toISOString(),
  decides: true,
  ...changes
});

for (const [changes, name, text] of [
  [{}, 'GPU', 'idle · NVML, 3\u00a0s ago (this decides)'],
  [{ value: 'unknown', source: 'none', at: null }, 'GPU', 'unknown · nobody measures it'],
  [
    { kind: 'report', value: 'busy', source: 'report', decides: false },
    'GPU, as this server says',
    'busy · this server, 3\u00a0s ago'
  ],
  [{ kind: 'activity', source: 'hub' }, 'Activity', 'idle · the hub, 3\u00a0s ago (this decides)'],
  [
    { kind: 'training', source: 'report', value: 'busy', decides: false },
    'Training',
    'busy · this server, 3\u00a0s ago'
  ],
  [
    { kind: 'newer', value: 'odd', source: 'other' },
    'newer',
    'odd · OTHER, 3\u00a0s ago (this decides)'
  ]
]) {
  test(`a sign is written with value, source and age: ${text}`, () => {
    const one = sign(changes);
    assert.deepEqual(signWords(one, [one], NOW, trans), { name, text });
  });
}

test('of several that decide none decides alone, and one that is unknown decides nothing', () => {
  const kinds = ['activity', 'kernels', 'terminals'];
  const said = (...values) => {
    const signs = values.map((value, at) => sign({ kind: kinds[at], value }));
    return signs.map(each => /\((.*)\)$/.exec(signWords(each, signs, NOW, trans).text)?.[1]);
  };
  assert.deepEqual(said('idle', 'busy', 'idle'), Array(3).fill('this counts'));
  assert.deepEqual(said('idle', 'unknown', 'unknown'), ['this decides', undefined, undefined]);
});

test('a curve decides where it is of the source that the server is judged by', () => {
  const server = (...signs) => ({ signs, idle_below_percent: 5 });
  const reading = { source: 'nvml' };
  assert.equal(decidedBelow(reading, server(sign())), 5);
  assert.equal(decidedBelow(reading, server(sign({ source: 'dcgm' }))), null);
  assert.equal(decidedBelow(reading, server(sign({ decides: false }))), null);
  assert.equal(decidedBelow(reading, server()), null);
  assert.equal(decidedBelow(reading, { idle_below_percent: 5 }), null); // of an older service
  assert.equal(decidedBelow(reading, null), null);
  assert.match(belowText(5, trans), /^Below 5.*idle: this curve decides\.$/);
});
