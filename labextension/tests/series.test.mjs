// What the charts draw and the tables say, by node's own test runner over what tsc made. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { COLUMNS, HEIGHT, minutes, paths, range, SPAN_MS, topOf, WIDTH } from '../lib/series.js';

const NOW = Date.parse('2026-11-21T14:00:00Z');

/** Points so many seconds apart up to now, of these values of use. */
function points(values, seconds = 1) {
  return values.map((used, place) => ({
    at: NOW - (values.length - 1 - place) * seconds * 1000,
    used,
    memory: used === null ? null : used * 1000
  }));
}

const drawn = values => paths(points(values), 'used', NOW, 100).line;
const lines = line => line.split('M').length - 1;
const numbers = line => line.match(/[\d.]+/g).map(Number);

test('a line ends at the right edge now, and begins ten minutes ago', () => {
  const all = paths(points([0, 50, 100], 300), 'used', NOW, 100).line;
  assert.deepEqual(numbers(all), [0, HEIGHT, WIDTH / 2, HEIGHT / 2, WIDTH, 0]);
});

test('what is not known breaks the line, and is no line at zero', () => {
  assert.equal(lines(drawn([10, 10, null, null, 20, 20])), 2);
  assert.equal(drawn([null, null, null]), '');
  assert.ok(!numbers(drawn([50, null, 50])).includes(HEIGHT));
});

test('zero is a line at zero', () => {
  assert.equal(lines(drawn([0, 0])), 1);
  assert.ok(numbers(drawn([0, 0])).includes(HEIGHT));
});

test('a reading alone is a dot', () => {
  assert.match(drawn([null, 40]), /^M\d+ \d+h0$/);
});

test('what is older than ten minutes is not drawn, and not counted', () => {
  const old = [{ at: NOW - SPAN_MS - 1000, used: 100, memory: 1 }, ...points([5, 6])];
  assert.equal(lines(paths(old, 'used', NOW, 100).line), 1);
  assert.deepEqual(range(old, 'used', NOW), { lowest: 5, highest: 6 });
});

test('a peak of one second is still seen among six hundred readings', () => {
  const values = Array.from({ length: 600 }, (_, place) => (place === 300 ? 100 : 10));
  const ys = numbers(drawn(values)).filter((_, place) => place % 2 === 1);
  assert.equal(Math.min(...ys), 0);
  assert.ok(ys.length <= 2 * (COLUMNS + 1), `${ys.length} points in ${COLUMNS} columns`);
});

test('every column keeps its lowest and its highest', () => {
  const values = Array.from({ length: 600 }, (_, place) => (place * 7919) % 101);
  const ys = numbers(drawn(values)).filter((_, place) => place % 2 === 1);
  assert.equal(Math.min(...ys), 0);
  assert.equal(Math.max(...ys), HEIGHT);
});

test('more than the limit is drawn at the edge, not beyond it', () => {
  assert.ok(numbers(drawn([150, 150])).every(value => value >= 0));
});

test('the lowest and the highest of nothing are not known', () => {
  assert.equal(range(points([null, null]), 'used', NOW), null);
  assert.equal(range([], 'memory', NOW), null);
});

test('the table has one row a minute, the newest first, and unknown where nothing was known', () => {
  const rows = minutes(points([5, null, 80, 20], 60), NOW);
  assert.deepEqual(
    rows.map(row => row.used),
    [{ lowest: 20, highest: 20 }, { lowest: 80, highest: 80 }, null, { lowest: 5, highest: 5 }]
  );
  assert.deepEqual(rows[0].memory, { lowest: 20_000, highest: 20_000 });
});

test('a chart reads each of its readings a few times, however many there are', () => {
  const read = length => {
    let times = 0;
    const counted = points(Array.from({ length }, (_, place) => (place * 7919) % 101)).map(
      point => new Proxy(point, { get: (of, name) => ((times += 1), of[name]) })
    );
    paths(counted, 'used', NOW, 100);
    range(counted, 'used', NOW);
    return times / length;
  };
  assert.ok(read(600) <= 8, `${read(600)} times`);
  assert.ok(read(600) <= read(60), 'and not more often where there are more');
});

test('a line of memory reaches to its greatest value, or to a limit that it came near to', () => {
  for (const [limit, highest, top] of [
    [40, 3, 3],
    [40, 27, 40],
    [40, 44, 44], // more than one's share
    [0, 3, 3], // no limit is known
    [40, 0, 40]
  ]) {
    assert.equal(topOf(limit, highest), top, `${highest} of ${limit}`);
  }
});
