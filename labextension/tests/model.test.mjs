// What the page knows, over a fake page, fake sockets and a fake clock. Run: npm test
import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';

import { ServerConnection } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import { END_EVENT } from '../lib/api.js';
import { GpuModel } from '../lib/model.js';
import { DEFAULTS } from '../lib/settings.js';

const START = Date.parse('2026-11-21T14:00:00Z');
const SILENCE = 15;
const RETRY = 1_300;

/** A page that is seen or hidden. */
class FakePage extends EventTarget {
  hidden = false;
  cookie = '';

  /** JupyterLab takes addresses apart with a link. */
  createElement() {
    let url;
    return new Proxy(
      {},
      {
        set: (_, name, address) => Boolean((url = new URL(address, 'http://lab.invalid'))),
        get: (_, name) => (name === 'toString' ? () => url.href : url[name])
      }
    );
  }

  become(hidden) {
    this.hidden = hidden;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

/** A socket that never sends, as the real one must not. */
class SilentSocket {
  static all = [];
  closed = false;

  constructor(url) {
    this.url = String(url);
    SilentSocket.all.push(this);
  }

  close() {
    this.closed = true;
  }

  send() {
    assert.fail('the panel sent something over its socket');
  }

  tell(message) {
    this.onmessage?.({ data: typeof message === 'string' ? message : JSON.stringify(message) });
  }

  break(code = 1006) {
    this.closed = true;
    this.onclose?.({ code });
  }
}

/** The server's REST side: one answer for each path, and what was asked. */
class FakeServer {
  asked = [];
  queries = [];
  answers = {};

  fetch = async request => {
    const path = new URL(request.url).pathname;
    this.asked.push(`${request.method} ${path}`);
    assert.ok(request.method === 'POST' || request.headers.get('Accept') === 'application/json');
    this.queries.push(new URL(request.url).searchParams.get('cpu'));
    const [status, body] = this.answers[path] ?? [404, {}];
    const answer = new Response(status === 204 ? null : JSON.stringify(body), { status });
    // the hub answers for a server that does not run at an address of its own
    return Object.defineProperty(answer, 'redirected', { value: status === 424 });
  };
}

/** The sessions of a server with one notebook. */
class OneSession {
  ended = [];

  refreshRunning() {
    return Promise.resolve();
  }

  *running() {
    yield { id: 'session-1', kernel: { id: 'kernel-1' } };
  }

  shutdown(id) {
    this.ended.push(id);
    return Promise.resolve();
  }
}

const trans = { __: (text, ...values) => text.replace(/%(\d)/g, (_, n) => String(values[n - 1])) };
let page, server, stream, sessions, models, confirmed;

beforeEach(() => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'], now: START });
  page = new FakePage();
  server = new FakeServer();
  sessions = new OneSession();
  stream = new Signal({});
  models = [];
  confirmed = true;
  SilentSocket.all = [];
  globalThis.document = page;
  globalThis.window = Object.assign(new EventTarget(), {
    setTimeout: (...all) => setTimeout(...all),
    clearTimeout: timer => clearTimeout(timer)
  });
});

afterEach(() => {
  models.forEach(model => model.dispose());
  mock.timers.reset();
});

function aModel() {
  const model = new GpuModel({
    server: ServerConnection.makeSettings({
      baseUrl: 'http://lab.invalid/user/ada/',
      wsUrl: 'ws://lab.invalid/user/ada/',
      token: 'secret',
      appendToken: true,
      WebSocket: SilentSocket,
      fetch: request => server.fetch(request)
    }),
    events: { stream },
    sessions,
    kernels: { shutdown: id => sessions.shutdown(id) },
    trans,
    confirmEnd: async () => confirmed
  });
  models.push(model);
  model.start();
  return model;
}

const open = () => SilentSocket.all.filter(socket => !socket.closed);
const socket = () => SilentSocket.all.at(-1);
const iso = (seconds = 0) => new Date(START + seconds * 1000).toISOString();
/** Time passes second by second: node's own clock shows timers the end of a whole tick. */
function pass(seconds) {
  for (let second = 0; second < seconds; second++) {
    mock.timers.tick(1000);
  }
}
const settled = () => new Promise(resolve => setImmediate(resolve));

function reading(changes = {}) {
  return {
    uuid: 'GPU-1',
    product: 'A card',
    memory_used_bytes: 1000,
    memory_total_bytes: 4000,
    own_memory_bytes: 300,
    used_percent: 10,
    source: 'nvml',
    at: iso(),
    counters: null,
    shared: false,
    ...changes
  };
}

function state(changes = {}) {
  return { uuid: 'GPU-1', share: 1, countdown: null, keep: null, save: false, ...changes };
}

function push(changes = {}) {
  return { version: 5, at: iso(), snapshot: null, history: null, numbers: [], ...changes };
}

function first(snapshot = {}, changes = {}) {
  return push({
    snapshot: {
      version: 5,
      at: changes.at ?? iso(),
      state: 'ok',
      reason: null,
      gpus: [reading()],
      server: state(),
      service_note: null,
      period_seconds: 1,
      ...snapshot
    },
    history: [],
    ...changes
  });
}

function countdown(changes = {}) {
  return {
    stops_at: iso(540),
    cause: 'idle',
    reason: { reason: 'idle', params: { idle: 1260 }, message: '', log_message: '' },
    can_keep: true,
    warn: true,
    ...changes
  };
}

function emit(kind, changes = {}) {
  stream.emit({
    schema_id: END_EVENT,
    version: 5,
    at: iso(),
    kind,
    countdown: null,
    keep: null,
    ...changes
  });
}

test('one connection a page, with the interval and the token, and not a byte over it', () => {
  const model = aModel();
  assert.equal(model.connection, 'connecting');
  assert.deepEqual(
    open().map(one => one.url),
    ['ws://lab.invalid/user/ada/gpu/live?every=1&token=secret']
  );
  socket().tell(first());
  assert.equal(model.connection, 'open');
  assert.deepEqual(server.asked, []);
});

test('a page that is hidden has no connection, and one again when it is seen', () => {
  const model = aModel();
  socket().tell(first());
  page.become(true);
  assert.equal(model.connection, 'hidden');
  assert.equal(open().length, 0);
  mock.timers.tick(3_600_000);
  assert.equal(SilentSocket.all.length, 1);
  page.become(false);
  assert.equal(model.connection, 'connecting');
  assert.equal(open().length, 1);
  assert.notEqual(model.snapshot, null);
});

test('a page opened in the background asks nothing before it is seen', () => {
  page.hidden = true;
  const model = aModel();
  mock.timers.tick(3_600_000);
  assert.equal(model.connection, 'hidden');
  assert.equal(SilentSocket.all.length, 0);
  assert.deepEqual(server.asked, []);
  page.become(false);
  assert.equal(open().length, 1);
});

test('a page put into the browser’s cache or frozen lets its connection go', () => {
  aModel();
  for (const [target, gone, back] of [
    [window, 'pagehide', 'pageshow'],
    [page, 'freeze', 'resume']
  ]) {
    target.dispatchEvent(new Event(gone));
    assert.equal(open().length, 0, gone);
    target.dispatchEvent(new Event(back));
    assert.equal(open().length, 1, back);
  }
});

test('numbers move the snapshot and leave the rest as it was', () => {
  const model = aModel();
  socket().tell(first());
  const numbers = {
    uuid: 'GPU-1',
    at: iso(1),
    memory_used_bytes: 2000,
    own_memory_bytes: null,
    used_percent: null,
    counters: { sm_percent: 3, tensor_percent: null, dram_percent: null }
  };
  socket().tell(push({ at: iso(1), numbers: [numbers, { ...numbers, uuid: 'GPU-other' }] }));
  assert.equal(model.snapshot.gpus.length, 1);
  assert.deepEqual(model.snapshot.gpus[0], { ...reading(), ...numbers });
  assert.equal(model.snapshot.at, iso(1));
  assert.deepEqual(model.history.get('GPU-1').at(-1), {
    at: START + 1000,
    used: null,
    memory: 2000
  });
});

test('numbers before any snapshot are of nothing that is known', () => {
  const model = aModel();
  socket().tell(push({ numbers: [reading()] }));
  assert.equal(model.snapshot, null);
  assert.equal(model.connection, 'connecting');
});

test('the history is there with the first message, in the server’s time', () => {
  const model = aModel();
  const series = {
    uuid: 'GPU-1',
    ages_seconds: [20, 10, 0],
    used_percent: [1, null, 3],
    memory_bytes: [100, 200, 300]
  };
  socket().tell(first({}, { history: [series] }));
  assert.deepEqual(model.history.get('GPU-1'), [
    { at: START - 20_000, used: 1, memory: 100 },
    { at: START - 10_000, used: null, memory: 200 },
    { at: START, used: 3, memory: 300 }
  ]);
});

test('a gap in the readings breaks the line, in the history and while it is watched', () => {
  const model = aModel();
  const series = {
    uuid: 'GPU-1',
    ages_seconds: [120, 0],
    used_percent: [1, 2],
    memory_bytes: [100, 200]
  };
  socket().tell(first({}, { history: [series] }));
  assert.deepEqual(
    model.history.get('GPU-1').map(point => point.used),
    [1, null, 2]
  );
  for (const seconds of [1, 2, 9]) {
    socket().tell(push({ at: iso(seconds), numbers: [reading({ at: iso(seconds) })] }));
  }
  assert.deepEqual(
    model.history.get('GPU-1').map(point => point.used),
    [1, null, 2, 10, 10, null, 10]
  );
});

test('the same reading told twice is one point, and after ten minutes it is gone', () => {
  const model = aModel();
  socket().tell(first());
  socket().tell(push({ at: iso(1), numbers: [reading()] }));
  assert.equal(model.history.get('GPU-1').length, 1);
  mock.timers.setTime(START + 601_000);
  socket().tell(push({ at: iso(601), numbers: [reading({ at: iso(601) })] }));
  assert.deepEqual(
    model.history.get('GPU-1').map(point => point.at),
    [START + 601_000]
  );
});

test('a server whose clock is set back goes on with its line and its words', () => {
  const model = aModel();
  socket().tell(first({ server: state({ countdown: countdown() }) }));
  socket().tell(push({ at: iso(-3600), numbers: [reading({ at: iso(-3600), used_percent: 20 })] }));
  socket().tell(push({ at: iso(-3599), numbers: [reading({ at: iso(-3599), used_percent: 30 })] }));
  assert.deepEqual(
    model.history.get('GPU-1').map(point => point.used),
    [10, 30]
  );
  socket().tell(first({}, { at: iso(-3598) }));
  assert.equal(model.end.kind, 'over');
});

test('a server whose clock is set forward goes on with its line', () => {
  const model = aModel();
  socket().tell(first());
  pass(1);
  socket().tell(push({ at: iso(3601), numbers: [reading({ at: iso(3601), used_percent: 20 })] }));
  assert.deepEqual(
    model.history.get('GPU-1').map(point => [point.at, point.used]),
    [
      [START + 3_600_000, 10],
      [START + 3_601_000, 20]
    ]
  );
});

test('a message that comes late is no clock that was set', () => {
  const model = aModel();
  socket().tell(first());
  socket().tell(push({ at: iso(9), numbers: [reading({ at: iso(9), used_percent: 20 })] }));
  assert.equal(model.history.get('GPU-1')[0].at, START);
});

test('on a shared device this server’s own memory is drawn, or none', () => {
  const model = aModel();
  const memory = () => model.history.get('GPU-1').at(-1).memory;
  socket().tell(first({ gpus: [reading({ shared: true })], server: null }));
  assert.equal(memory(), 300);
  const hidden = reading({ at: iso(1), own_memory_bytes: null });
  socket().tell(push({ at: iso(1), numbers: [hidden].map(({ shared: _, ...rest }) => rest) }));
  assert.equal(memory(), null);
});

test('the line of memory never has the device’s and this server’s own together', () => {
  const model = aModel();
  socket().tell(first({ gpus: [reading({ shared: true })], server: null }));
  socket().tell(first({ gpus: [reading({ at: iso(1) })] }, { at: iso(1), history: null }));
  assert.deepEqual(
    model.history.get('GPU-1').map(point => [point.used, point.memory]),
    [
      [10, null],
      [10, 1000]
    ]
  );
});

test('a lost connection is tried again, each time later, and at once when it worked', async () => {
  const model = aModel();
  socket().tell(first());
  socket().break();
  await settled();
  assert.equal(model.connection, 'lost');
  assert.notEqual(model.snapshot, null);
  for (const wait of [1, 2, 4, 8, 16, 32, 60, 60]) {
    const before = SilentSocket.all.length;
    mock.timers.tick(wait * 700);
    assert.equal(SilentSocket.all.length, before, `already after ${wait * 0.7} s`);
    mock.timers.tick(wait * 600);
    assert.equal(SilentSocket.all.length, before + 1, `not after ${wait * 1.3} s`);
    socket().break();
    await settled();
  }
  page.become(true);
  page.become(false);
  socket().tell(first());
  socket().break();
  await settled();
  const before = SilentSocket.all.length;
  mock.timers.tick(RETRY);
  assert.equal(SilentSocket.all.length, before + 1);
});

test('a server without our extension is asked a second time after a pause, then when it is seen', async () => {
  const model = aModel();
  socket().break();
  await settled();
  assert.equal(model.connection, 'connecting', 'it may be a proxy without its routes');
  mock.timers.tick(3_900);
  assert.equal(SilentSocket.all.length, 1);
  mock.timers.tick(2_200);
  socket().break();
  await settled();
  assert.equal(model.connection, 'absent');
  mock.timers.tick(3_600_000);
  assert.equal(SilentSocket.all.length, 2);
  assert.deepEqual(server.asked, Array(2).fill('GET /user/ada/gpu/snapshot'));
  page.become(true);
  page.become(false);
  assert.equal(model.connection, 'absent');
  socket().break();
  await settled();
  mock.timers.tick(3_600_000);
  assert.equal(model.connection, 'absent');
  assert.equal(server.asked.length, 3);
});

test('a proxy that had lost its routes for a moment does not make a page without us', async () => {
  const model = aModel();
  for (const _ of [1, 2]) {
    socket().break();
    await settled();
    mock.timers.tick(6_100);
  }
  await settled();
  assert.equal(model.connection, 'absent');
  page.become(true);
  page.become(false);
  socket().tell(first());
  assert.equal(model.connection, 'open');
});

test('a server that refuses the connection for now is not taken for one without us', async () => {
  server.answers['/user/ada/gpu/snapshot'] = [200, {}];
  const model = aModel();
  for (const _ of [1, 2, 3]) {
    socket().break();
    await settled();
    assert.equal(model.connection, 'lost');
    mock.timers.tick(80_000);
    await settled();
  }
  assert.equal(server.asked.length, 1);
});

test('a connection that its server closed as signed out says so, and comes back after a sign-in', async () => {
  const model = aModel();
  assert.equal(model.signInUrl, 'http://lab.invalid/user/ada/');
  socket().tell(first());
  socket().break(4401);
  await settled();
  assert.equal(model.connection, 'signed-out');
  mock.timers.tick(RETRY);
  socket().break();
  await settled();
  assert.equal(model.connection, 'signed-out');
  assert.deepEqual(server.asked, [], 'it was known');
  mock.timers.tick(80_000);
  socket().tell(first());
  assert.equal(model.connection, 'open');
});

test('a lost connection is asked about once, and again only while nobody answers', async () => {
  for (const [status, connection, asked] of [
    [403, 'signed-out', 1],
    [401, 'signed-out', 1],
    [424, 'stopped', 1], // the hub's, whose server does not run
    [404, 'lost', 1],
    [503, 'lost', 3]
  ]) {
    server.asked = [];
    server.answers['/user/ada/gpu/snapshot'] = [status, {}];
    const model = aModel();
    socket().tell(first());
    for (const _ of [1, 2, 3]) {
      socket().break();
      await settled();
      assert.equal(model.connection, connection, String(status));
      mock.timers.tick(80_000);
    }
    assert.equal(server.asked.length, asked, String(status));
    model.dispose();
  }
});

test('a page whose server was stopped asks once a minute, and is there again with it', async () => {
  server.answers['/user/ada/gpu/snapshot'] = [424, {}];
  const model = aModel();
  socket().tell(first());
  socket().break();
  await settled();
  assert.equal(model.connection, 'stopped');
  assert.notEqual(model.snapshot, null);
  const before = SilentSocket.all.length;
  for (const minute of [1, 2, 3]) {
    mock.timers.tick(47_000);
    assert.equal(SilentSocket.all.length, before + minute - 1);
    mock.timers.tick(26_000);
    assert.equal(SilentSocket.all.length, before + minute);
    socket().break();
    await settled();
    assert.equal(model.connection, 'stopped');
  }
  assert.equal(server.asked.length, 1);
  page.become(true);
  page.become(false); // who comes back to the tab need not wait
  socket().tell(first());
  assert.equal(model.connection, 'open');
});

test('a page whose server starts again without its GPU asks every few seconds, for five minutes', async () => {
  server.answers['/user/ada/gpu/snapshot'] = [424, {}];
  const model = aModel();
  const reason = { reason: 'given-back-for-cpu', params: {}, message: '', log_message: '' };
  const stops_at = iso();
  const countdown = { stops_at, cause: 'given-back', reason, can_keep: false, warn: false };
  socket().tell(first({ server: state({ save: true, countdown }) }));
  socket().break();
  await settled();
  assert.equal(model.connection, 'stopped');
  const asked = seconds => {
    const before = SilentSocket.all.length;
    mock.timers.tick(1000 * seconds);
    return SilentSocket.all.length - before;
  };
  assert.equal(asked(7), 1);
  socket().break();
  await settled();
  assert.equal(asked(7), 1);
  mock.timers.tick(300_000);
  socket().break();
  await settled();
  assert.equal(asked(40), 0);
});

test('who is led to the hub’s login is signed out', async () => {
  const { fetch } = server;
  server.fetch = async request => {
    const { status } = await fetch(request);
    return Object.defineProperty(new Response('{}', { status }), 'redirected', { value: true });
  };
  server.answers['/user/ada/gpu/snapshot'] = [200, {}];
  const model = aModel();
  socket().tell(first());
  socket().break();
  await settled();
  assert.equal(model.connection, 'signed-out');
});

test('a GPU is given back to stop, or to go on without one; a refusal is said', async () => {
  const model = aModel();
  socket().tell(first());
  const state = { countdown: null, save: false, keep: null };
  server.answers['/user/ada/gpu/give-back'] = [200, state];
  await model.giveBack(false);
  await model.giveBack(true);
  assert.deepEqual(server.asked, Array(2).fill('POST /user/ada/gpu/give-back'));
  assert.deepEqual(server.queries, [null, '1']);
  assert.equal(model.keeping, 'idle');
  const problem = { message: 'No.', field: 'give-back', reason: 'keep-stopping', params: {} };
  server.answers['/user/ada/gpu/give-back'] = [409, problem];
  await model.giveBack(false);
  assert.deepEqual(model.keeping, { refused: problem });
});

test('who opens a page and is signed out already reads that', async () => {
  server.answers['/user/ada/gpu/snapshot'] = [403, {}];
  const model = aModel();
  socket().break();
  await settled();
  assert.equal(model.connection, 'signed-out');
  page.become(true);
  assert.equal(model.connection, 'hidden');
  server.answers['/user/ada/gpu/snapshot'] = [200, {}];
  page.become(false);
  socket().break();
  await settled();
  assert.equal(model.connection, 'lost', 'signed in again, and the server does not answer');
});

test('a server of another version: the page says so and leaves it alone', () => {
  const model = aModel();
  socket().tell(first({}, { version: 6 }));
  assert.equal(model.connection, 'outdated');
  assert.equal(model.snapshot, null);
  assert.equal(open().length, 0);
  page.become(true);
  page.become(false);
  mock.timers.tick(3_600_000);
  assert.equal(SilentSocket.all.length, 1);
});

test('what is no message ends the connection, and it is made again', async () => {
  const model = aModel();
  socket().tell(first());
  for (const text of ['<html>', 'null', '{}', '[1]']) {
    socket().tell(text);
    await settled();
    assert.equal(model.connection, 'lost');
    assert.equal(open().length, 0);
    mock.timers.tick(80_000);
    assert.equal(open().length, 1);
  }
});

test('a connection that is silent for 15 s is dead, and made again', async () => {
  const model = aModel();
  socket().tell(first());
  pass(SILENCE);
  assert.equal(model.connection, 'open');
  pass(5);
  await settled();
  assert.equal(model.connection, 'lost');
  assert.equal(open().length, 0);
  mock.timers.tick(RETRY);
  assert.equal(open().length, 1);
});

test('with a slow period silence is longer', () => {
  const model = aModel();
  socket().tell(first({ period_seconds: 20 }));
  pass(59);
  assert.equal(model.connection, 'open');
});

test('after an hour of the laptop’s sleep numbers are old at once, and the connection is new', async () => {
  const model = aModel();
  socket().tell(first());
  mock.timers.setTime(START + 3_600_000);
  assert.equal(model.now(), START + 3_600_000);
  pass(5);
  await settled();
  mock.timers.tick(RETRY);
  assert.equal(open().length, 1);
  assert.equal(SilentSocket.all.length, 2);
});

test('the time is the server’s, whatever the browser’s clock says', () => {
  mock.timers.setTime(START - 86_400_000);
  const model = aModel();
  socket().tell(first());
  assert.ok(Math.abs(model.now() - START) < 1000);
  mock.timers.setTime(START - 2 * 86_400_000); // set back while the page is open
  assert.ok(Math.abs(model.now() - START) < 1000);
  mock.timers.setTime(START);
  socket().tell(push({ at: iso(1) }));
  assert.ok(Math.abs(model.now() - START - 1000) < 1000);
});

test('the end comes by the socket and by the event stream, the newer word counts', () => {
  const model = aModel();
  emit('warn', { at: iso(1), countdown: countdown() });
  assert.equal(model.end.kind, 'warn');
  socket().tell(first()); // of a second before
  assert.equal(model.end.kind, 'warn');
  socket().tell(first({ at: iso(2) }, { at: iso(2) }));
  assert.equal(model.end.kind, 'over');
  page.become(true);
  emit('warn', { at: iso(3), countdown: countdown() });
  assert.equal(model.end.kind, 'warn');
});

test('a page older than its server is still warned', () => {
  const model = aModel();
  socket().tell(first({}, { version: 6 }));
  assert.equal(model.connection, 'outdated');
  emit('warn', { version: 6, countdown: countdown() });
  assert.equal(model.end.kind, 'warn');
});

test('other events, and ours of another version, are not ours', () => {
  const model = aModel();
  emit('warn', { schema_id: 'https://else.invalid/', countdown: countdown() });
  emit('warn', { schema_id: END_EVENT.replace('/v1', '/v2'), countdown: countdown() });
  emit('warn', { at: undefined });
  emit('farewell', { countdown: countdown() });
  assert.equal(model.end, null);
});

test('while the service is away nothing is known about the end', () => {
  const model = aModel();
  socket().tell(first({ server: state({ countdown: countdown() }) }));
  assert.equal(model.end.kind, 'warn');
  socket().tell(
    first(
      {
        server: state({ countdown: countdown() }),
        service_note: { reason: 'away', params: {}, message: '', log_message: '' }
      },
      { at: iso(1) }
    )
  );
  assert.equal(model.end, null);
});

test('a request to save is one request, whichever way and however often it comes', () => {
  const model = aModel();
  let asked = 0;
  model.saveAsked.connect(() => asked++);
  socket().tell(first({ server: state({ save: true, countdown: countdown() }) }));
  emit('save', { at: iso(1) });
  emit('save', { at: iso(60) });
  socket().tell(first({ server: state({ save: true }) }, { at: iso(61) }));
  assert.equal(asked, 1);
  socket().tell(first({}, { at: iso(62) }));
  page.become(true);
  emit('save', { at: iso(70) });
  emit('warn', { at: iso(71), countdown: countdown() });
  emit('save', { at: iso(72) });
  assert.equal(asked, 2);
  emit('over', { at: iso(80) });
  emit('save', { at: iso(90) });
  assert.equal(asked, 3);
});

test('after it was answered a later word is a new request to save, also on a hidden page', async () => {
  const model = aModel();
  server.answers['/user/ada/gpu/saved'] = [204, null];
  let asked = 0;
  model.saveAsked.connect(() => asked++);
  socket().tell(first({ server: state({ save: true, countdown: countdown() }) }));
  page.become(true);
  await model.saved();
  pass(5);
  emit('save', { at: iso(5) });
  assert.equal(asked, 1, 'the same request, by the other way');
  pass(10);
  emit('save', { at: iso(15) });
  assert.equal(asked, 2);
  pass(60);
  emit('save', { at: iso(75) });
  assert.equal(asked, 2, 'it was not answered yet');
});

test('after a save that failed a later word is a new request, also on a hidden page', () => {
  const model = aModel();
  let asked = 0;
  model.saveAsked.connect(() => asked++);
  page.become(true);
  emit('save');
  pass(8);
  model.saveEnded();
  emit('save', { at: iso(8) });
  assert.equal(asked, 1, 'the same request, by the other way');
  pass(60);
  emit('warn', { at: iso(68), countdown: countdown() });
  emit('save', { at: iso(68) });
  assert.equal(asked, 2);
  assert.deepEqual(server.asked, [], 'it was not saved');
});

test('"saved" is told a second time when the first was not taken', async () => {
  const model = aModel();
  server.answers['/user/ada/gpu/saved'] = [503, { message: 'away' }];
  const telling = model.saved();
  await settled();
  server.answers['/user/ada/gpu/saved'] = [204, null];
  mock.timers.tick(2_000);
  await telling;
  assert.deepEqual(server.asked, ['POST /user/ada/gpu/saved', 'POST /user/ada/gpu/saved']);
});

test('keep on a hidden page takes the end back', async () => {
  const model = aModel();
  socket().tell(first({ server: state({ countdown: countdown() }) }));
  page.become(true);
  server.answers['/user/ada/gpu/keep'] = [200, state({ keep: { minutes: 30, left: 0, of: 2 } })];
  await model.keep();
  assert.equal(model.keeping, 'kept');
  assert.equal(model.end.kind, 'over');
  assert.equal(model.snapshot.server.keep.left, 0);
});

test('a request that nobody answers is given up after 10 s, and can be made again', async t => {
  t.mock.method(AbortSignal, 'timeout', after => {
    const given = new AbortController();
    setTimeout(() => given.abort(new Error('late')), after);
    return given.signal;
  });
  const model = aModel();
  const { fetch } = server;
  for (const ask of [() => model.keep(), () => model.giveBack(true)]) {
    server.fetch = ({ signal }) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    const asking = ask();
    pass(9);
    await settled();
    assert.equal(model.keeping, 'asking');
    pass(1);
    await asking;
    assert.deepEqual(model.keeping, { refused: null });
    server.fetch = fetch;
    server.answers['/user/ada/gpu/keep'] = [200, state()];
    await model.keep();
    assert.equal(model.keeping, 'kept');
  }
});

test('a refused keep has the service’s reason, and a new countdown forgets it', async () => {
  const model = aModel();
  socket().tell(first({ server: state({ countdown: countdown() }) }));
  const problem = {
    message: 'Both are used for today.',
    field: 'keep',
    reason: 'keep-none-left',
    params: { times: 2, day: 86400, wait: 3600 }
  };
  server.answers['/user/ada/gpu/keep'] = [409, problem];
  await model.keep();
  assert.deepEqual(model.keeping, { refused: problem });
  assert.equal(model.end.kind, 'warn');
  socket().tell(first({}, { at: iso(1) }));
  socket().tell(first({ server: state({ countdown: countdown() }) }, { at: iso(2) }));
  assert.equal(model.keeping, 'idle');
});

test('a refusal of an older service has a text alone', async () => {
  const model = aModel();
  server.answers['/user/ada/gpu/keep'] = [409, { message: 'No.', field: '' }];
  await model.keep();
  const refused = { message: 'No.', field: '', reason: '', params: {} };
  assert.deepEqual(model.keeping, { refused });
});

test('a refusal that is not ours has no reason of ours', async () => {
  const model = aModel();
  socket().tell(first({ server: state({ countdown: countdown() }) }));
  server.answers['/user/ada/gpu/keep'] = [403, { status: 403, message: 'Forbidden' }];
  await model.keep();
  assert.deepEqual(model.keeping, { refused: null });
});

test('that the server is kept is news for ten seconds', async () => {
  const model = aModel();
  socket().tell(first({ server: state({ countdown: countdown() }) }));
  server.answers['/user/ada/gpu/keep'] = [200, state()];
  await model.keep();
  assert.equal(model.keeping, 'kept');
  mock.timers.tick(10_000);
  assert.equal(model.keeping, 'idle');
});

test('the first reading after a longer interval leaves no hole', () => {
  const model = aModel();
  const series = {
    uuid: 'GPU-1',
    ages_seconds: [5, 0],
    used_percent: [1, 2],
    memory_bytes: [100, 200]
  };
  socket().tell(first({}, { history: [series] }));
  for (const seconds of [4, 5, 10]) {
    socket().tell(push({ at: iso(seconds), numbers: [reading({ at: iso(seconds) })] }));
  }
  assert.deepEqual(
    model.history.get('GPU-1').map(point => point.used),
    [1, 2, 10, 10, null, 10]
  );
});

test('another interval is another connection, other choices are not', () => {
  const model = aModel();
  socket().tell(first());
  model.use({ ...DEFAULTS, unit: 'GB' });
  assert.equal(SilentSocket.all.length, 1);
  model.use({ ...DEFAULTS, unit: 'GB', intervalSeconds: 5 });
  assert.equal(SilentSocket.all.length, 2);
  assert.equal(open().length, 1);
  assert.match(socket().url, /every=5/);
  page.become(true);
  model.use(DEFAULTS);
  assert.equal(open().length, 0);
});

test('a kernel is shut down only when the user says so', async () => {
  const model = aModel();
  const holder = { name: 'train.ipynb', path: 'train.ipynb', kernel: 'kernel-1' };
  confirmed = false;
  await model.endKernel(holder);
  assert.deepEqual(sessions.ended, []);
  confirmed = true;
  await model.endKernel(holder);
  await model.endKernel({ ...holder, kernel: 'kernel-without-session' });
  assert.deepEqual(sessions.ended, ['session-1', 'kernel-without-session']);
});

test('a kernel that cannot be shut down is said in a sentence', async () => {
  const model = aModel();
  sessions.shutdown = () => Promise.reject(new Error('Forbidden'));
  const holder = { name: 'train.ipynb', path: '', kernel: 'kernel-1' };
  await assert.rejects(model.endKernel(holder), {
    message: 'The kernel of train.ipynb was not shut down: Forbidden'
  });
  await assert.rejects(model.endKernel({ ...holder, name: 'train.py', kernel: '' }), /train\.py/);
});
