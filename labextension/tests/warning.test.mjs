// The warning, the save before a stop, and views that draw only while seen: over a fake page and a clock in hand.
// What of JupyterLab draws on a page is stood in for by a few lines. Run: npm test
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { afterEach, beforeEach, mock, test } from 'node:test';

import { Signal } from '@lumino/signaling';

const APPUTILS = `
  export const Notification = globalThis.shown;
  export class ReactWidget {
    isVisible = true; drawn = 0; isDisposed = false;
    update() { this.drawn += 1; }
    dispose() { this.isDisposed = true; }
  }`;
register(
  'data:text/javascript,' +
    encodeURIComponent(`export async function resolve(name, context, next) {
      const url = 'data:text/javascript,' + encodeURIComponent(${JSON.stringify(APPUTILS)});
      return name === '@jupyterlab/apputils' ? { url, shortCircuit: true } : next(name, context);
    }`)
);

const START = Date.parse('2026-11-21T14:00:00Z');
const MINUTE = 60_000;
const trans = {
  __: (text, ...words) => text.replace(/%(\d)/g, (_, at) => String(words[at - 1])),
  _p: (context, code) => code,
  _n: (one, many, count, ...words) => trans.__(count === 1 ? one : many, count, ...words)
};

/** JupyterLab's notifications: what is shown now, by id. */
const shown = {
  now: new Map(),
  next: 0,
  warning(text, options) {
    return shown.show('warning', text, options);
  },
  info(text, options) {
    return shown.show('info', text, options);
  },
  error(text, options) {
    return shown.show('error', text, options);
  },
  show(kind, text, options) {
    const id = `n${shown.next++}`;
    shown.now.set(id, { kind, text, ...options });
    return id;
  },
  /** One that was closed is shown again. */
  update({ id, message, actions }) {
    shown.now.set(id, { ...shown.now.get(id), text: message, actions });
  },
  dismiss(id) {
    shown.now.delete(id);
  }
};
globalThis.shown = shown;
globalThis.window = globalThis;
globalThis.document = { hidden: false, getElementById: id => shown.now.get(id) ?? null };

const kept = new Map();
globalThis.localStorage = {
  getItem: name => kept.get(name) ?? null,
  setItem: (name, value) => void kept.set(name, value)
};

const { Letters, unread } = await import('../lib/letters.js');
const { Warning, doAndTell } = await import('../lib/warning.js');
const { TrainingNotices } = await import('../lib/training-notices.js');
const { saveAndTell, saveOpenDocuments } = await import('../lib/save.js');
const { SeenWidget } = await import('../lib/seen.js');

/** What the page knows, as a test says it. */
class ModelInHand {
  changed = new Signal(this);
  end = null;
  snapshot = null;
  connection = 'open';
  keeping = 'idle';
  settings = { warnMinutes: null, unit: 'GiB' };
  keeps = 0;
  extensions = 0;
  warnings = 0;

  warned() {
    this.warnings += 1;
  }

  now() {
    return Date.now();
  }

  async keep() {
    this.keeps += 1;
    this.keeping = this.refusal === undefined ? 'idle' : { refused: this.refusal };
  }

  async extend() {
    this.extensions += 1;
  }

  say(changes) {
    Object.assign(this, changes);
    this.changed.emit(undefined);
  }
}

const idle = minutes => ({
  reason: 'idle',
  params: { idle: 60 * minutes },
  message: `Idle for ${minutes} min.`,
  log_message: ''
});
const countdown = (seconds, changes = {}) => ({
  stops_at: new Date(START + seconds * 1000).toISOString(),
  cause: 'idle',
  reason: idle(21),
  can_keep: true,
  warn: true,
  others: [],
  ...changes
});
const KEEP = { minutes: 30, left: 1, of: 2 };
const warned = (counted = countdown(540), keep = KEEP) => ({
  kind: 'warn',
  countdown: counted,
  keep
});
const texts = () => [...shown.now.values()].map(one => one.text);

let model;
beforeEach(() => {
  mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: START });
  shown.now.clear();
  document.hidden = false;
  model = new ModelInHand();
});
afterEach(() => mock.timers.reset());

test('a countdown is warned of once, with the button, however often it is told', () => {
  new Warning(model, trans);
  assert.deepEqual(texts(), []);
  model.say({ end: warned() });
  model.say({ end: warned(countdown(560, { reason: idle(22) })) });
  const [one, ...more] = shown.now.values();
  assert.deepEqual(more, []);
  assert.match(
    one.text,
    /^This server stops at .* Idle for 22\u00a0min\. Files are saved, variables are lost\.$/
  );
  assert.equal(one.autoClose, false);
  assert.deepEqual(
    one.actions.map(action => action.label),
    ['Keep 30\u00a0min']
  );
});

test('who was signed out reads why and to save, and has nothing to keep', () => {
  new Warning(model, trans);
  const reason = {
    reason: 'account-disabled',
    params: {},
    message: 'Your account is disabled.',
    log_message: ''
  };
  model.say({ end: warned(countdown(600, { cause: 'signed-out', reason, can_keep: false })) });
  const [one] = shown.now.values();
  assert.match(one.text, /^This server stops at .* Your account is disabled\. Save your work\.$/);
  assert.deepEqual(one.actions ?? [], []);
});

test('who closed the warning is not warned again, also not after an outage of the service', () => {
  new Warning(model, trans);
  model.say({ end: warned() });
  shown.now.clear();
  model.say({ end: null });
  assert.deepEqual(texts(), []);
  model.say({ end: warned(countdown(550)) });
  model.say({ connection: 'lost' });
  model.say({ connection: 'open' });
  assert.deepEqual(texts(), []);
});

test('an end that has moved is a new one, and replaces the warning of the old', () => {
  new Warning(model, trans);
  model.say({ end: warned() });
  model.say({ end: warned(countdown(300)) });
  assert.equal(shown.now.size, 1);
  assert.ok([...shown.now.keys()][0] !== 'n0');
});

test('the warning is taken back when the end is off, and an end after that is warned of', () => {
  new Warning(model, trans);
  model.say({ end: warned() });
  model.say({ end: { kind: 'over', countdown: null, keep: KEEP } });
  assert.deepEqual(texts(), []);
  model.say({ end: warned() });
  assert.equal(shown.now.size, 1);
});

test('the warning waits until as little is left as the user chose', () => {
  model.settings = { warnMinutes: 1, unit: 'GiB' };
  new Warning(model, trans);
  model.say({ end: warned(countdown(105)) });
  mock.timers.tick(44_000);
  assert.deepEqual(texts(), []);
  mock.timers.tick(1_000);
  assert.equal(shown.now.size, 1);
  model.say({ end: warned(countdown(105)) });
  assert.equal(shown.now.size, 1);
});

test('a tenth before the end it is said again, also to who closed the first, and the service hears of both', () => {
  new Warning(model, trans);
  const counted = countdown(600, { last_warning: new Date(START + 540_000).toISOString() });
  model.say({ end: warned(counted) });
  assert.equal(model.warnings, 1);
  shown.now.clear();
  mock.timers.tick(539_000);
  model.say({ end: warned(counted) });
  assert.deepEqual(texts(), []);
  mock.timers.tick(1_000);
  const [one, ...more] = shown.now.values();
  assert.deepEqual(more, []);
  assert.equal(
    one.text,
    'Your GPU is idle. The server stops in 1\u00a0min. Files are saved, variables are lost.'
  );
  assert.equal(one.actions.length, 1);
  assert.equal(model.warnings, 2);
  mock.timers.tick(30_000);
  model.say({ end: warned(counted) });
  assert.equal(model.warnings, 2);
});

test('the last warning counts down, each minute and then each ten seconds', () => {
  const counted = countdown(120, { last_warning: new Date(START).toISOString() });
  new Warning(model, trans);
  model.say({ end: warned(counted) });
  const left = () => {
    const [one, ...more] = shown.now.values();
    assert.deepEqual(more, []);
    assert.equal(one.actions.length, 1);
    return /stops in (.*?)\. Files/.exec(one.text)[1].replace('\u00a0', ' ');
  };
  assert.equal(left(), '2 min');
  for (const [seconds, text] of [
    [60, '1 min'],
    [10, '50 s'],
    [10, '40 s'],
    [30, '10 s']
  ]) {
    mock.timers.tick(seconds * 1000);
    assert.equal(left(), text);
  }
  mock.timers.tick(10_000);
  assert.match(texts()[0], / Stopping now\. Files/);
  assert.deepEqual(labels(), []);
  model.say({ end: { kind: 'over', countdown: null, keep: null } });
  assert.equal(shown.now.size, 0);
  mock.timers.tick(MINUTE);
});

test('while the service is away no warning counts on, and it says so', () => {
  const last_warning = new Date(START).toISOString();
  const STANDS =
    'The countdown and the end of this server stand still until the service answers again.';
  const left = text =>
    `Your GPU is idle. The server stops in ${text}. Files are saved, variables are lost.`;
  for (const [before, after] of [
    [countdown(540), /^This server stops at .* Idle for 21\u00a0min\./],
    [countdown(50, { last_warning }), new RegExp(left('50\u00a0s'))]
  ]) {
    new Warning(model, trans);
    model.say({ end: warned(before) });
    assert.match(texts()[0], after);
    model.say({ end: null });
    mock.timers.tick(30_000);
    assert.deepEqual(texts(), [STANDS]);
    const stops_at = new Date(Date.parse(before.stops_at) + 30_000).toISOString();
    model.say({ end: warned({ ...before, stops_at }) });
    assert.match(texts()[0], after);
    assert.equal(model.warnings, 1, 'the same end');
    mock.timers.setTime(START);
    shown.now.clear();
    model = new ModelInHand();
  }
});

test('an end that moves a little moves in the warning', () => {
  const last_warning = new Date(START).toISOString();
  new Warning(model, trans);
  for (const [seconds, text] of [
    [50, '50'],
    [75, '1\u00a0min'],
    [20, '20']
  ]) {
    model.say({ end: warned(countdown(seconds, { last_warning })) });
    assert.match(texts()[0], new RegExp(`stops in ${text}`));
  }
  mock.timers.tick(10_000);
  assert.match(texts()[0], /stops in 10/);
  assert.equal(model.warnings, 1);
});

test('the last warning that was closed counts on for nobody', () => {
  new Warning(model, trans);
  model.say({
    end: warned(countdown(120, { last_warning: new Date(START).toISOString() }))
  });
  shown.now.clear();
  mock.timers.tick(2 * MINUTE);
  assert.equal(shown.now.size, 0);
});

const labels = () => [...shown.now.values()].flatMap(one => one.actions.map(({ label }) => label));

test('who gave the GPU back reads of no countdown from before, and nothing that is over can be kept', () => {
  new Warning(model, trans);
  for (const seconds of [540, 50]) {
    model.say({ end: warned(countdown(seconds)) });
    assert.equal(shown.now.size, 1);
    for (const kind of ['warn', 'save']) {
      model.say({ end: { kind, countdown: countdown(0, { cause: 'given-back' }), keep: KEEP } });
      mock.timers.tick(MINUTE);
      assert.deepEqual(texts(), [], `${seconds} ${kind}`);
    }
    model.say({ connection: 'lost' });
    mock.timers.tick(MINUTE);
    assert.deepEqual(texts(), []);
    model.say({ connection: 'open', end: { kind: 'over', countdown: null } });
    mock.timers.setTime(START);
  }
  model.say({ end: warned(countdown(30, { last_warning: countdown(60).stops_at })) });
  assert.deepEqual(labels(), ['Keep 30\u00a0min']);
  mock.timers.tick(MINUTE);
  assert.match(texts()[0], /Stopping now/);
  assert.doesNotMatch(texts()[0], /in 0/);
  assert.deepEqual(labels(), []);
});

test('a keep that would not help any more loses its button', () => {
  new Warning(model, trans);
  model.say({ end: warned() });
  assert.deepEqual(labels(), ['Keep 30\u00a0min']);
  model.say({ end: warned(countdown(540, { can_keep: false })) });
  assert.deepEqual(labels(), []);
});

test('a stop that an administrator took back is said', () => {
  new Warning(model, trans);
  model.say({ end: warned(countdown(300, { cause: 'admin', can_keep: false })) });
  model.say({ end: { kind: 'over', countdown: null } });
  assert.deepEqual(texts(), ['An administrator took the stop back.']);
});

const letter = (text, minute = 0) => ({
  reason: 'from-admin',
  params: { at: new Date(START + minute * MINUTE).toISOString(), text },
  message: `From an administrator, at 14:0${minute}: ${text}`
});

test('a letter of an administrator stays until it is closed, also when the server has stopped or the page is new', () => {
  kept.clear();
  new Letters(model, trans);
  const snapshot = warnings => ({ server: { warnings } });
  model.say({ snapshot: snapshot([letter('The disk is full.', 1), letter('Hello', 0)]) });
  model.say({ snapshot: snapshot([letter('The disk is full.', 1), letter('Hello', 0)]) });
  assert.deepEqual(
    texts().map(text => text.split(': ')[1]),
    ['Hello', 'The disk is full.']
  );
  assert.ok([...shown.now.values()].every(one => one.autoClose === false));
  model.say({ connection: 'stopped' });
  assert.equal(shown.now.size, 2);
  [...shown.now.values()][0].actions[0].callback();
  assert.deepEqual(
    unread(model.snapshot).map(({ params }) => params.text),
    ['The disk is full.']
  );
  shown.now.clear();
  new Letters(model, trans); // after a reload
  assert.deepEqual(
    texts().map(text => text.split(': ')[1]),
    ['The disk is full.']
  );
});

test('whoever was signed out elsewhere is told so with the panel closed, until the session is there again', () => {
  new Warning(model, trans);
  model.say({ connection: 'signed-out' });
  model.say({ connection: 'signed-out' });
  assert.equal(shown.now.size, 1);
  assert.match(texts()[0], /You are signed out\./);
  assert.deepEqual(labels(), ['Sign in again']);
  model.say({ connection: 'open' });
  assert.equal(shown.now.size, 0);
});

test('who gave the GPU back is not warned of it', () => {
  new Warning(model, trans);
  model.say({ end: warned(countdown(0, { cause: 'given-back', can_keep: false })) });
  assert.equal(shown.now.size, 0);
});

test('who comes when the last warning is due reads that one alone, of whatever end', () => {
  new Warning(model, trans);
  const reason = { reason: 'gone', params: {}, message: 'The time limit ends.', log_message: '' };
  const last_warning = new Date(START - 5_000).toISOString();
  model.say({ end: warned(countdown(55, { cause: 'lifetime', reason, last_warning })) });
  assert.deepEqual(texts(), [
    'The time limit ends. The server stops in 55\u00a0s. Files are saved, variables are lost.'
  ]);
});

test('who wants to be warned late is warned at the last warning at the latest', () => {
  model.settings = { warnMinutes: 0.5, unit: 'GiB' };
  new Warning(model, trans);
  const last_warning = new Date(START + 45_000).toISOString();
  model.say({ end: warned(countdown(105, { last_warning })) });
  mock.timers.tick(45_000);
  assert.equal(shown.now.size, 1);
  mock.timers.tick(50_000);
  assert.equal(model.warnings, 1);
});

test('who comes to a server that came back without its GPU is told so, once', () => {
  new Warning(model, trans);
  const back = {
    reason: 'runs-without-gpu',
    params: {},
    message: 'It runs again.',
    log_message: ''
  };
  const other = { ...back, reason: 'gpu-lost', message: 'It is gone.' };
  model.say({ snapshot: { server: { warnings: [other] } } });
  assert.deepEqual(texts(), []);
  model.say({ snapshot: { server: { warnings: [other, back] } } });
  model.say({});
  assert.deepEqual(texts(), ['It runs again.']);
  assert.equal([...shown.now.values()][0].kind, 'info');
});

test('a warning that was waited for is not shown when the end is off meanwhile', () => {
  model.settings = { warnMinutes: 1, unit: 'GiB' };
  new Warning(model, trans);
  model.say({ end: warned(countdown(105)) });
  model.say({ end: { kind: 'over', countdown: null, keep: null } });
  mock.timers.tick(10 * MINUTE);
  assert.deepEqual(texts(), []);
});

test('after the end of a server that is not reached any more there is nothing to keep', () => {
  new Warning(model, trans);
  model.say({ end: warned(countdown(60)) });
  model.say({ connection: 'lost' });
  assert.equal(shown.now.size, 1);
  mock.timers.tick(61_000);
  model.say({});
  assert.deepEqual(texts(), []);
});

test('there is no button where nothing can be kept, or none is left', () => {
  new Warning(model, trans);
  model.say({ end: warned(countdown(540, { can_keep: false })) });
  assert.deepEqual([...shown.now.values()][0].actions, []);
  model.say({ end: warned(countdown(300), { ...KEEP, left: 0 }) });
  assert.deepEqual([...shown.now.values()][0].actions, []);
});

test('a keep that is refused outside the panel says why', async () => {
  const message = 'The time limit of 12 h ends. That end cannot be moved.';
  const problem = { message, field: 'keep', reason: 'keep-lifetime' };
  model.refusal = { ...problem, params: { limit: 12 * 3600 } };
  await doAndTell(model, trans, () => model.keep());
  assert.equal(model.keeps, 1);
  assert.deepEqual(texts(), ['The time limit of 12\u00a0h ends. That end cannot be moved.']);
  assert.equal([...shown.now.values()][0].kind, 'error');
});

test('a keep that nobody of ours refused says that nothing was changed', async () => {
  model.refusal = null;
  await doAndTell(model, trans, () => model.keep());
  assert.deepEqual(texts(), ['No answer: it may have been done.']);
});

test('a keep that is given says nothing', async () => {
  await doAndTell(model, trans, () => model.keep());
  assert.deepEqual(texts(), []);
});

// ------------------------------------------------------------ saving

/** A document that is open in JupyterLab. */
const open = (path, { dirty = true, writable = true, save } = {}) => {
  const context = { path, model: { dirty }, contentsModel: { writable }, saves: 0 };
  context.save = async () => {
    context.saves += 1;
    await save?.();
    context.model.dirty = false;
  };
  return context;
};
const lab = areas => [
  { widgets: area => areas[area] ?? [] },
  { contextForWidget: widget => widget.context }
];

test('what is open and not saved is saved, each once, whatever shows it', async () => {
  const [one, two, clean] = [open('a.ipynb'), open('b.py'), open('c.md', { dirty: false })];
  const [shell, documents] = lab({
    main: [{ context: one }, { context: clean }, {}],
    down: [{ context: two }],
    right: [{ context: one }]
  });
  assert.deepEqual(await saveOpenDocuments(shell, documents), []);
  assert.deepEqual([one.saves, two.saves, clean.saves], [1, 1, 0]);
});

test('what cannot be written is left alone, and what fails is named', async () => {
  const locked = open('locked.ipynb', { writable: false });
  const failing = open('full.ipynb', { save: () => Promise.reject(new Error('disk full')) });
  const asked = open('conflict.ipynb');
  asked.save = async () => undefined; // the user was asked, and has not answered: it stays as it is
  const [shell, documents] = lab({ main: [locked, failing, asked].map(context => ({ context })) });
  const failed = await saveOpenDocuments(shell, documents);
  assert.deepEqual(failed.sort(), ['conflict.ipynb', 'full.ipynb']);
  assert.equal(locked.saves, 0);
});

test('the service is told what was saved, the user what was not, and either ends the request', async () => {
  const broken = open('full.ipynb', { save: () => Promise.reject(new Error('disk full')) });
  const heard = [];
  const ends = { saved: async () => heard.push('saved'), saveEnded: () => heard.push('ended') };
  await saveAndTell(ends, ...lab({ main: [{ context: open('a.ipynb') }] }), trans);
  await saveAndTell(ends, ...lab({ main: [{ context: broken }] }), trans);
  assert.deepEqual(heard, ['saved', 'ended']);
  assert.deepEqual(texts(), ['Not saved before the stop: full.ipynb']);
});

test('a save that hangs is given up before the service is', async () => {
  const hanging = open('slow.ipynb', { save: () => new Promise(() => undefined) });
  const [shell, documents] = lab({ left: [{ context: hanging }] });
  const saved = saveOpenDocuments(shell, documents);
  mock.timers.tick(8_000);
  assert.deepEqual(await saved, ['slow.ipynb']);
});

// ------------------------------------------------------------ drawing

class AView extends SeenWidget {}

test('a view is drawn at each change and each second, but not while nobody sees it', () => {
  const view = new AView(model, trans);
  model.say({});
  assert.equal(view.drawn, 1);
  document.hidden = true;
  model.say({});
  view.isVisible = false;
  document.hidden = false;
  model.say({});
  assert.equal(view.drawn, 1);
  view.isVisible = true;
  view.onAfterShow();
  assert.equal(view.drawn, 2);
});

test('a view that is gone is drawn no more', () => {
  const view = new AView(model, trans);
  view.dispose();
  model.say({});
  mock.timers.tick(5_000);
  assert.equal(view.drawn, 0);
  assert.ok(view.isDisposed);
});

/** A training of half an hour that has run for 20 min. */
const training = (changes = {}) => ({
  run: 'a1',
  name: 'mnist',
  library: 'loop',
  state: 'running',
  outside: false,
  started: new Date(START - 20 * MINUTE).toISOString(),
  at: new Date(START).toISOString(),
  steps: 200,
  total_steps: 300,
  epoch: null,
  epochs: null,
  step_seconds: 6,
  left_seconds: 600,
  low_seconds: 500,
  high_seconds: 700,
  bound: 'about',
  usual_step_seconds: null,
  usual_seconds: null,
  usual_runs: 0,
  ended_at: null,
  notify: false,
  ...changes
});
const EXTEND = { minutes: 120, left: 1, of: 1, of_server: true };
const shows = (trainings, server = {}) => ({
  settings: { warnMinutes: null, unit: 'GiB', trainingNotice: true },
  snapshot: {
    at: new Date(Date.now()).toISOString(),
    gpus: [],
    service_note: null,
    trainings,
    server: {
      warnings: [],
      countdown: null,
      extend: EXTEND,
      ends_at: new Date(START + 5 * MINUTE).toISOString(),
      ...server
    }
  }
});

test('that a server ends before its training is said once per run, also after a reload', () => {
  kept.clear();
  new TrainingNotices(model, trans);
  model.say(shows([training()]));
  model.say(shows([training({ left_seconds: 900 })]));
  assert.equal(shown.now.size, 1);
  const [one] = shown.now.values();
  assert.match(one.text, /^Your training ends about .*; this server ends at .*\.$/);
  one.actions[0].callback();
  assert.equal(model.extensions, 1);
  model.say(shows([training()], { ends_at: new Date(START + 120 * MINUTE).toISOString() }));
  assert.deepEqual(texts(), [], 'more time was given');
  model.say(shows([training()]));
  new TrainingNotices(model, trans);
  assert.deepEqual(texts(), []);
  model.say(shows([training({ run: 'b2' })], { extend: { ...EXTEND, left: 0 } }));
  assert.deepEqual([...shown.now.values()][0].actions, []);
});

test("what only the service knows of a training's end is said as well, and once", () => {
  kept.clear();
  new TrainingNotices(model, trans);
  const reason = {
    reason: 'training-too-long',
    message: 'It ends too late.',
    params: {},
    log_message: ''
  };
  model.say(shows([], { warnings: [reason] }));
  model.say(shows([], { warnings: [reason] }));
  assert.deepEqual(texts(), ['It ends too late.']);
});

test('the end of a long training that this page saw is a notification, unless the user wants none', () => {
  const server = { ends_at: null };
  const over = (changes = {}) =>
    training({ state: 'done', ended_at: new Date(START).toISOString(), ...changes });
  new TrainingNotices(model, trans);
  model.say(shows([over({ run: 'seen elsewhere' })], server));
  assert.deepEqual(texts(), []);
  model.say(shows([training()], server));
  model.say(shows([over()], server));
  model.say(shows([over()], server));
  assert.equal(texts().length, 1);
  assert.match(texts()[0], /^mnist: Done at /);
  const started = new Date(START - 9 * MINUTE).toISOString();
  model.say(shows([training({ run: 'short', started })], server));
  model.say(shows([over({ run: 'short', started })], server));
  assert.equal(texts().length, 1);
  const quiet = { ...model.settings, trainingNotice: false };
  model.say(shows([training({ run: 'quiet' })], server));
  model.say({ ...shows([over({ run: 'quiet' })], server), settings: quiet });
  assert.equal(texts().length, 1);
});
