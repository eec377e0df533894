// The words for a training: how far, how long it still takes, how it ended. Run: npm test
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { announcement, statusText, warningsOf } from '../lib/format.js';
import { canExtend, extendLabel, lateOf, overText } from '../lib/training-end.js';
import {
  endedText,
  headText,
  leftText,
  likelyText,
  lineText,
  paceText,
  secondsLeft,
  silentText,
  sorted,
  stepsText,
  usualText
} from '../lib/training-text.js';
import { clock } from '../lib/units.js';

const put = (text, words) => text.replace(/%(\d)/g, (_, at) => String(words[at - 1]));
const trans = {
  __: (text, ...words) => put(text, words),
  _p: (_, code) => code,
  _n: (one, many, count, ...words) => put(count === 1 ? one : many, [count, ...words])
};
const plain = text => text.replaceAll('\u00a0', ' ');
const NOW = Date.parse('2026-11-21T14:00:00Z');
const MINUTE = 60_000;
const time = minutes => new Date(NOW + minutes * MINUTE).toISOString();
const at = minutes => clock(NOW + minutes * MINUTE, NOW);

function training(changes = {}) {
  return {
    run: 'a1',
    name: 'mnist',
    library: 'loop',
    state: 'running',
    outside: false,
    started: time(-60),
    at: time(0),
    steps: 13_600,
    total_steps: 20_000,
    epoch: 14,
    epochs: 20,
    step_seconds: 0.3142,
    left_seconds: 1500,
    low_seconds: 1200,
    high_seconds: 2400,
    bound: 'about',
    usual_step_seconds: null,
    usual_seconds: null,
    usual_runs: 0,
    ended_at: null,
    notify: false,
    ...changes
  };
}

const unknown = { left_seconds: null, low_seconds: null, high_seconds: null, bound: '' };

test('a run is named with what is known of it', () => {
  for (const [changes, text] of [
    [{}, 'mnist · epoch 14 of 20'],
    [{ epochs: null }, 'mnist · epoch 14'],
    [{ epoch: null }, 'mnist'],
    [{ name: '', epoch: null }, ''],
    [{ name: '', outside: true }, 'epoch 14 of 20 · from outside this server']
  ]) {
    assert.equal(headText(training(changes), trans), text);
  }
});

test('the time left is counted down since its report, and never below zero', () => {
  assert.equal(secondsLeft(training(), NOW), 1500);
  assert.equal(secondsLeft(training({ at: time(-5) }), NOW), 1200);
  assert.equal(secondsLeft(training({ at: time(-90) }), NOW), 0);
  assert.equal(secondsLeft(training({ at: time(1) }), NOW), 1500, 'a report from the future');
  assert.equal(secondsLeft(training(unknown), NOW), null);
});

test('what the time left is depends on its bound', () => {
  for (const [changes, left, likely] of [
    [{}, '25 min left', `likely done at ${at(25)} (${at(20)}–${at(40)})`],
    [{ at: time(-5) }, '20 min left', `likely done at ${at(20)} (${at(15)}–${at(35)})`],
    [{ low_seconds: null, high_seconds: null }, '25 min left', `likely done at ${at(25)}`],
    [{ left_seconds: 59 }, 'less than 1 min left', null],
    [{ left_seconds: 7170 }, '2 h left', null],
    [
      { bound: 'at-least' },
      'at least 25 min left',
      'How long a validation takes is not known yet.'
    ],
    [
      { bound: 'at-most', left_seconds: 7150 },
      'at most 2 h left',
      `done at ${clock(NOW + 7_150_000, NOW)} at the latest; it may stop early`
    ],
    [unknown, '', '']
  ]) {
    const one = training(changes);
    assert.equal(plain(leftText(one, NOW, trans)), left);
    if (likely !== null) {
      assert.equal(plain(likelyText(one, NOW, trans)), likely);
    }
  }
  const late = training({ at: time(-30) });
  assert.equal(likelyText(late, NOW, trans), `likely done at ${at(0)} (${at(0)}–${at(10)})`);
});

test('steps and their length have the digits that one reads', () => {
  for (const [changes, text] of [
    [{}, '13,600 of 20,000 steps, 0.31 s each'],
    [{ total_steps: null, steps: 1240 }, '1,240 steps, 0.31 s each'],
    [{ total_steps: null, steps: 1, step_seconds: null }, '1 step'],
    [{ step_seconds: 0.000421 }, '13,600 of 20,000 steps, 0.00042 s each'],
    [{ step_seconds: 12.34 }, '13,600 of 20,000 steps, 12 s each'],
    [{ step_seconds: 150 }, '13,600 of 20,000 steps, 2 min each']
  ]) {
    assert.equal(plain(stepsText(training(changes), trans)), text);
  }
  const slow = training({ step_seconds: 0.9, usual_step_seconds: 0.4 });
  assert.equal(
    plain(paceText(slow, trans)),
    'Slower than before: 0.9 s per step instead of 0.4 s.'
  );
  assert.equal(paceText(training(), trans), '');
});

test('earlier runs are shown while the forecast is young', () => {
  const usual = (runs, changes) =>
    plain(usualText(training({ usual_seconds: 720, usual_runs: runs, ...changes }), trans));
  assert.equal(usual(4, { steps: 100 }), 'Your last 4 runs took 12 min here.');
  assert.equal(usual(1, unknown), 'Your last run took 12 min here.');
  assert.equal(usual(4, { bound: 'at-least' }), 'Your last 4 runs took 12 min here.');
  assert.equal(usual(4, {}), '');
  assert.equal(usualText(training({ steps: 1 }), trans), '');
});

test('a run that is silent says since when, and is given the length of its own steps', () => {
  assert.equal(silentText(training({ at: time(-2) }), NOW, trans), '');
  assert.equal(
    plain(silentText(training({ at: time(-5) }), NOW, trans)),
    `No report for 5 min, since ${at(-5)}.`
  );
  assert.equal(silentText(training({ at: time(-5), step_seconds: 110 }), NOW, trans), '');
});

test('how a run ended is said by its state', () => {
  for (const [state, text] of [
    ['done', `Done at ${at(-3)}.`],
    ['failed', `Failed at ${at(-3)}.`],
    ['left', `Left before its end, at ${at(-3)}.`],
    ['vanished', `Ended unexpectedly at ${at(-3)}.`]
  ]) {
    const one = training({ state, ended_at: time(-3) });
    assert.equal(endedText(one, NOW, trans), text);
    assert.equal(lineText(one, NOW, trans), `mnist · epoch 14 of 20 · ${text}`);
  }
  assert.equal(
    endedText(training({ state: 'vanished', at: time(-9) }), NOW, trans),
    `Ended unexpectedly at ${at(-9)}.`
  );
});

test('the run with the most time left is first, then those of unknown end, then the ended ones', () => {
  const runs = [
    training({ run: 'old', state: 'done', at: time(-9) }),
    training({ run: 'unknown', ...unknown }),
    training({ run: 'short', left_seconds: 60 }),
    training({ run: 'new', state: 'failed' }),
    training({ run: 'long' })
  ];
  assert.deepEqual(
    sorted(runs, NOW).map(({ run }) => run),
    ['long', 'short', 'unknown', 'new', 'old']
  );
});

function snapshot(trainings, server = {}, changes = {}) {
  const known = { countdown: null, ends_at: time(20), extend: null, warnings: [], ...server };
  const rest = { version: 5, at: time(0), state: 'ok', reason: null, gpus: [], period_seconds: 1 };
  return { ...rest, service_note: null, server: known, trainings, ...changes };
}

const late = (...parts) => lateOf(snapshot(...parts), NOW, trans)?.text ?? '';

test('a server that ends before its training says both times', () => {
  const ends = `Your training ends about ${at(25)}; this server ends at ${at(20)}.`;
  assert.equal(late([training()]), ends);
  assert.equal(late([training({ left_seconds: 60 }), training()]), ends, 'the longest counts');
  assert.equal(
    late([training({ bound: 'at-most' })]),
    `Your training may go on until ${at(25)}; this server ends at ${at(20)}.`
  );
  assert.equal(
    late([training({ bound: 'at-least' })]),
    `Your training goes on until ${at(25)} at least; this server ends at ${at(20)}.`
  );
  assert.equal(late([training({ outside: true })]), '', 'it runs on another server');
  assert.equal(
    late([training({ outside: true, left_seconds: 9000 }), training()]),
    ends,
    'its own one counts'
  );
  const counted = { countdown: { stops_at: time(20), cause: 'idle' }, ends_at: time(600) };
  assert.equal(late([training()], counted), ends);
  assert.equal(late([training()], { ends_at: time(25) }), '');
  assert.equal(late([training()], { ends_at: null }), '');
  assert.equal(late([training(unknown)]), '');
  assert.equal(late([training({ state: 'done' })]), '');
  assert.equal(late([training()], {}, { server: null }), '');
  assert.equal(late([training()], {}, { service_note: { reason: 'away' } }), '');
  assert.equal(late(undefined), '', 'a server that is older than this page');
});

test('what the service knows of the end of a training is shown once, in its section', () => {
  const warnings = [{ reason: 'training-too-long', message: 'It ends too late.', params: {} }];
  assert.equal(late([], { warnings }), 'It ends too late.');
  assert.match(late([training()], { warnings }), /^Your training ends about/);
  assert.deepEqual(warningsOf(snapshot([], { warnings })), []);
});

test('what only the service knows is a new warning on each server', () => {
  const run = stops => {
    const params = { ends: time(90), stops: time(stops) };
    const warnings = [{ reason: 'training-too-long', message: '', params }];
    return lateOf(snapshot([], { warnings }), NOW, trans).run;
  };
  assert.equal(run(20), run(19.999), 'it is computed again');
  assert.equal(run(20), run(20.001));
  assert.notEqual(run(20), run(80));
});

test('a run that ended says when its server stops, by the countdown or by its planned end', () => {
  const one = training({ state: 'done', ended_at: time(-3) });
  const done = `Done at ${at(-3)}.`;
  const countdown = { stops_at: time(5), cause: 'idle' };
  for (const [server, text, changes] of [
    [{}, `${done} This server stops at ${at(20)}.`],
    [{ countdown }, `${done} This server stops at ${at(5)}.`],
    [{ countdown, ends_at: null }, `${done} This server stops at ${at(5)}.`],
    [{ ends_at: null }, done],
    [{}, done, { server: null }],
    [{}, done, { service_note: { reason: 'away' } }]
  ]) {
    assert.equal(overText(one, snapshot([one], server, changes), NOW, trans), text);
  }
  const outside = { ...one, outside: true };
  assert.equal(overText(outside, snapshot([outside]), NOW, trans), done);
});

test('more time can be asked for where the lifetime is the next end and has some left', () => {
  const extend = { minutes: 120, left: 1, of: 2, of_server: true };
  const lifetime = { stops_at: time(9), cause: 'lifetime' };
  for (const [server, can] of [
    [{ extend }, true],
    [{ extend: null }, false],
    [{ extend: { ...extend, left: 0 } }, false],
    [{ extend, countdown: lifetime }, true],
    [{ extend, countdown: { ...lifetime, can_keep: true } }, false],
    [{ extend, countdown: { ...lifetime, cause: 'idle' } }, false]
  ]) {
    assert.equal(canExtend(server), can);
  }
  assert.equal(plain(extendLabel({ extend }, trans)), 'Ask for more time (2 h)');
});

test('the status bar has the percentage and the time left after the numbers of the GPU', () => {
  const words = trainings =>
    plain(statusText(snapshot(trainings), 'open', { unit: 'GiB', statusBar: 'both' }, NOW, trans));
  assert.equal(words([training()]), 'training 68 % · 25 min left');
  assert.equal(
    words([training({ ...unknown, total_steps: null })]),
    'training 13,600 steps, 0.31 s each'
  );
  assert.match(words([training({ at: time(-5) })]), /^training 68 % · No report for 5 min/);
  assert.equal(words([training({ state: 'done' })]), '');
  assert.equal(words([]), '');
});

test('a screen reader hears that a run ended, and nothing of one that goes on', () => {
  const heard = trainings => announcement(snapshot(trainings), false, NOW, trans).trim();
  assert.equal(heard([training()]), '');
  const done = training({ state: 'done', ended_at: time(0) });
  assert.equal(heard([done]), `mnist: Done at ${at(0)}.`);
  const earlier = training({ name: 'eda', state: 'failed', at: time(-9), ended_at: time(-9) });
  assert.equal(heard([earlier, training(), done]), `mnist: Done at ${at(0)}.`, 'only the latest');
});
