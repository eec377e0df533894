// Numbers and times in the language of the page, by node's own test runner over what tsc made. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clock, number, speak } from '../lib/units.js';

const NOW = Date.parse('2026-11-21T14:00:00');
const reader = new Intl.DateTimeFormat(undefined, { hour: 'numeric' }).resolvedOptions().hourCycle;
const inTwoDays = NOW + 48 * 3_600_000;

test('numbers and weekdays stand in the language of the words beside them', () => {
  speak('fi-FI', ['en-GB', 'de']);
  assert.equal(number(3.1, 1), '3,1');
  assert.match(clock(inTwoDays, NOW), /^ma /);
  speak('en', ['fi-FI']);
  assert.equal(number(3.1, 1), '3.1');
  assert.match(clock(inTwoDays, NOW), /^Mon/);
});

test('a time has its date where its weekday may be that of another week', () => {
  speak('en', ['en-GB']);
  const days = count => clock(NOW + count * 24 * 3_600_000, NOW);
  for (const [count, date] of [
    [0, false],
    [5, false],
    [-5, false],
    [6, true],
    [7, true],
    [30, true],
    [-7, true]
  ]) {
    assert.equal(/\b(Nov|Dec)\b/.test(days(count)), date, `${count}: ${days(count)}`);
  }
  assert.match(days(7), /^Sat.* 28 Nov/);
});

test('of one language the reader’s own kind is taken', () => {
  speak('de', ['en-GB', 'de-CH']);
  assert.equal(number(1234567), (1234567).toLocaleString('de-CH'));
});

test('the clock has as many hours as the reader’s', () => {
  speak('fi-FI', []);
  const hours = clock(NOW, NOW).includes('ip.') ? 'h12' : 'h23';
  assert.equal(hours, reader);
});

test('a language that is no language leaves what the browser has', () => {
  for (const code of ['', 'sr@latin']) {
    speak(code, ['en-GB']);
    assert.equal(number(3.1, 1), (3.1).toLocaleString());
  }
});
