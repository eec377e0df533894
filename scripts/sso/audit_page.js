/** The page of the audit: what is open, what is safe, what could not be tried, and the buttons. */
import { escaped, page } from './pages.js';

const TITLES = {
  A1: 'Open the app without signing in',
  A2: 'Open it with an account that is not in its group',
  A3: 'Say in a header that one is somebody else',
  A4: 'Come with a cookie that is nobody’s',
  A5: 'Use a copied cookie after a sign-out',
  A6: 'Come with an assertion that the gate did not sign',
  A7: 'Reach the app past the proxy',
  A8: 'Write its path in another way',
  A9: 'Ask the gate as the proxy does, from outside',
  A10: 'Reach a service that the hub itself shows to everybody',
  A11: 'Send something from a page of another site',
  A12: 'Go on after one’s account is gone',
  A13: 'Find an app that the hub or the catalogue does not know',
  A14: 'Read along, or get at a cookie from another host'
};
const GROUPS = [
  ['open', 'Open'],
  ['safe', 'Safe'],
  ['not tried', 'Not tried']
];

function meaning(status) {
  const [code] = status.split(' ');
  if (status.endsWith('to a sign-in')) return 'led to the sign-in';
  if (code === '200' || code === '101') return `the app answered (${code})`;
  if (code === '401' || code === '403') return `refused (${code})`;
  if (code === '404') return 'nothing there (404)';
  return status;
}

/** Answers come as `401, 302 to a sign-in`, or in words. */
function cameBack(text) {
  const parts = text.split(', ');
  return parts.every(each => /^\d{3}( to a sign-in)?$/.test(each))
    ? [...new Set(parts.map(meaning))].join(', ')
    : text;
}

function row(result) {
  return `<tr><td>${escaped(result.app)}</td>
<th scope="row">${escaped(TITLES[result.case] ?? result.case)}<br><small>${escaped(result.tried)}</small></th>
<td>${escaped(cameBack(result.came_back))}${result.advice ? `<br>${escaped(result.advice)}` : ''}</td></tr>`;
}

function table(results, outcome, title) {
  const found = results.filter(each => each.outcome === outcome);
  if (!found.length) return '';
  return `<h2>${title} (${found.length})</h2>
<table class="results">
<thead><tr><th scope="col">App</th><th scope="col">What was tried</th><th scope="col">What came back</th></tr></thead>
<tbody>${found.map(row).join('\n')}</tbody>
</table>`;
}

function summary(audit) {
  const count = outcome => audit.results.filter(each => each.outcome === outcome).length;
  const open = count('open');
  const apps = new Set(audit.results.filter(each => each.outcome === 'open').map(each => each.app));
  const found = count('safe') ? 'Nothing is open.' : 'Nothing could be tried.';
  const said = open ? `Something is open: ${[...apps].join(', ')}.` : found;
  return `<p role="status"><strong>${escaped(said)}</strong> ${count('safe')} results are safe; ${count('not tried')}
could not be tried, which is not the same. Tried at ${audit.made.toTimeString().slice(0, 8)}${audit.hadFault ? ', with the fault' : ''}.</p>
${GROUPS.map(([outcome, title]) => table(audit.results, outcome, title)).join('\n')}`;
}

function button(action, label) {
  return `<button name="action" value="${action}">${escaped(label)}</button>`;
}

const AGAIN = '<script>setTimeout(() => location.reload(), 1000)</script>';
const DOING = {
  audit: 'Trying. It takes about ten seconds.',
  plant: 'The fault is being planted.',
  mend: 'The fault is being taken back.'
};

export function report(audit) {
  const { board } = audit.apps;
  const fault = audit.hasFault
    ? `<p>A fault is planted: the proxy leads to TensorBoard and does not ask the gate, as where somebody copied half of
its configuration. <a href="${escaped(board)}">TensorBoard</a> opens without a sign-in now, also in a private window.
The audit has to find it.</p>`
    : '';
  const buttons = `<form method="post" action="/audit">${button('audit', 'Run the audit')}
${audit.hasFault ? button('mend', 'Take the fault back') : button('plant', 'Plant a fault')}</form>`;
  return page(
    'Audit of the apps',
    `<p><a href="/">Back to the sign-in service</a> · <a href="${escaped(audit.apps.portal)}">The portal</a></p>
<p>It tries on each app what a stranger would, and says what came back. It is the command
<code>jupyterhub-gpu gate audit</code>. It makes two accounts at the hub for it, and removes them.</p>
${fault}
${audit.running ? `<p role="status">${DOING[audit.running]}</p>${AGAIN}` : buttons}
${audit.problem ? `<p role="alert">${escaped(audit.problem)}</p>` : ''}
${audit.results && !audit.running ? summary(audit) : ''}`
  );
}
