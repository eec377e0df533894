// Every string of the panel is in every catalogue. Run: npm test
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { strings, stringsIn } from '../locale/strings.mjs';

const LANGUAGES = ['fi_FI', 'ja_JP'];
const SAME_EVERYWHERE = new Set(['GPU']);
const REASONS = JSON.parse(readFileSync(new URL('reasons.json', import.meta.url), 'utf8'));
const FOLDER = new URL('../../hub_extensions/locale/', import.meta.url);

function catalogue(language) {
  const file = new URL(`${language}/LC_MESSAGES/jupyterhub_gpu.json`, FOLDER);
  return JSON.parse(readFileSync(file, 'utf8'));
}

test('what is translated is found wherever it is written', () => {
  const text = `
    trans.__('one'); this._parts.trans.__("two %1", n);
    const x = <b title={props.trans._n('%1 thing', '%1 things', count)}>{trans.__(\`three\`)}</b>;
    trans.__('four ' + 'parts'); trans.__(made); other.__('not ours');`;
  assert.deepEqual(
    stringsIn('some.tsx', text).map(({ id, plural }) => [id, plural]),
    [
      ['one', ''],
      ['two %1', ''],
      ['%1 thing', '%1 things'],
      ['three', ''],
      ['four parts', ''],
      [null, '']
    ]
  );
});

test('no sentence that is translated is made while the program runs', () => {
  const made = strings().filter(({ id, plural }) => id === null || plural === null);
  assert.deepEqual(
    made.map(({ where }) => where),
    []
  );
});

for (const language of LANGUAGES) {
  test(`every string of the panel is in the catalogue ${language}`, () => {
    const found = catalogue(language);
    const plurals = new Set(strings().flatMap(({ id, plural }) => (plural ? [id] : [])));
    assert.ok(strings().length > 80);
    for (const { id, plural, where } of strings()) {
      const forms = found[id];
      assert.ok(forms, `${where}: "${id}" is missing`);
      if (plural || plurals.has(id)) {
        // JupyterLab takes one form for no plural, and leaves a string in English that has two and is used alone
        assert.ok(forms.length > 1, `${where}: "${id}" needs its plural`);
        assert.ok(plural || SAME_EVERYWHERE.has(id), `${where}: "${id}" is also a plural`);
      } else {
        assert.equal(forms.length, 1, `${where}: "${id}"`);
      }
    }
  });

  test(`every reason without parameters is in the catalogue ${language} by its code`, () => {
    const found = catalogue(language);
    const codes = REASONS.filter(({ params }) => Object.keys(params).length === 0);
    assert.ok(codes.length > 50);
    assert.deepEqual(
      codes.filter(({ reason }) => found[`reason\u0004${reason}`]?.length !== 1),
      []
    );
  });

  test(`JupyterLab can read the head of the catalogue ${language}`, () => {
    const head = catalogue(language)[''];
    assert.equal(head.domain, 'jupyterhub_gpu');
    assert.equal(head.language, language.replace('_', '-'));
    assert.match(head.plural_forms, /^nplurals=\d; plural=[()n!=0-9 ]+;$/);
  });
}
