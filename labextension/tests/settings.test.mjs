// The user's choices, good and bad. Run: npm test
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { DEFAULTS, followSettings, readSettings, SETTINGS_OF } from '../lib/settings.js';

const SCHEMA = JSON.parse(readFileSync(new URL('../schema/panel.json', import.meta.url), 'utf8'));

/** JupyterLab's settings with what its server read; `raw` as the user wrote it. */
class FakeRegistry {
  constructor(composite, raw = '{ }') {
    this.plugins = { [SETTINGS_OF]: { raw, last_modified: '2026-11-21T14:00:00' } };
    this.settings = { composite, changed: { connect: told => (this.change = told) } };
  }

  load = async () => this.settings;
}

async function followed(registry) {
  const used = [];
  let said = 0;
  await followSettings(
    registry,
    settings => used.push(settings),
    () => said++
  );
  return { used, said: () => said };
}

test('the defaults are the same in the schema and in the panel', () => {
  const defaults = Object.entries(SCHEMA.properties).map(([name, { default: value }]) => [
    name,
    value
  ]);
  assert.deepEqual(readSettings(Object.fromEntries(defaults)), DEFAULTS);
});

test('what was chosen is used', () => {
  const chosen = {
    interval: 5,
    unit: 'GB',
    statusBar: 'nothing',
    warnBefore: 3,
    opened: true,
    trainingNotice: false
  };
  assert.deepEqual(readSettings(chosen), {
    intervalSeconds: 5,
    unit: 'GB',
    statusBar: 'nothing',
    warnMinutes: 3,
    opened: true,
    trainingNotice: false
  });
});

test('each choice that makes no sense is the default, and the others count', () => {
  for (const interval of [0, -1, 61, NaN, Infinity, '5', null, {}, undefined]) {
    assert.equal(readSettings({ interval }).intervalSeconds, 1);
    assert.equal(readSettings({ interval, unit: 'GB' }).unit, 'GB');
  }
  for (const warnBefore of [0, -5, 61, 'soon', null]) {
    assert.equal(readSettings({ warnBefore }).warnMinutes, null);
  }
  assert.deepEqual(readSettings({ unit: 'TB', statusBar: 'all' }), DEFAULTS);
});

test('a change is used at once', async () => {
  const registry = new FakeRegistry({ interval: 5 });
  const { used, said } = await followed(registry);
  registry.settings.composite = { interval: 9 };
  registry.change();
  assert.deepEqual(
    used.map(settings => settings.intervalSeconds),
    [5, 9]
  );
  assert.equal(said(), 0);
});

test('a file that JupyterLab could not use is said, and the defaults are used', async () => {
  const refused = new FakeRegistry({});
  refused.load = () => Promise.reject([{ message: 'must be integer' }]);
  for (const registry of [refused, new FakeRegistry({}, '{}')]) {
    const { used, said } = await followed(registry);
    assert.deepEqual(used, [DEFAULTS]);
    assert.equal(said(), 1);
  }
});

test('a user who never chose anything is told nothing', async () => {
  const registry = new FakeRegistry({}, '{}');
  registry.plugins[SETTINGS_OF].last_modified = null;
  assert.equal((await followed(registry)).said(), 0);
});
