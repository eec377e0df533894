// Every string of the panel that is translated, as TypeScript itself reads the sources. Run: node strings.mjs
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import ts from 'typescript';

const SOURCES = new URL('../src/', import.meta.url);
const WAYS = { __: 1, _n: 2 };

/** What is translated: `{ id, plural, where }`; `plural` is "" for a string without one. */
export function stringsIn(name, text) {
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
  const strings = [];
  const visit = node => {
    const way = ts.isCallExpression(node) && node.expression.name?.text;
    if (way && way in WAYS && /trans$/.test(node.expression.expression.getText())) {
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      const [id, plural] = node.arguments.slice(0, WAYS[way]).map(literal);
      strings.push({ id, plural: WAYS[way] === 2 ? plural : '', where: `${name}:${line + 1}` });
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return strings;
}

/** The strings of every source of the panel. */
export function strings() {
  return readdirSync(SOURCES)
    .filter(name => /\.tsx?$/.test(name))
    .flatMap(name => stringsIn(name, readFileSync(new URL(name, SOURCES), 'utf8')));
}

/** The text of a literal, also of several added up; null: it is made while the program runs. */
function literal(node) {
  if (ts.isStringLiteralLike(node)) {
    return node.text;
  }
  if (ts.isParenthesizedExpression(node)) {
    return literal(node.expression);
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const [left, right] = [literal(node.left), literal(node.right)];
    return left === null || right === null ? null : left + right;
  }
  return null;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(JSON.stringify(strings(), null, 1));
}
