/** The pages of the sign-in service: signing in, signing out, and the board on which an admin of it acts. */
const STYLE = `
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
  body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
  button { font: inherit; padding: .4rem .9rem; margin: .15rem .3rem .15rem 0; cursor: pointer; }
  td, th { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0; }
  tr + tr > * { border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
  form { display: inline; }
  small { font-weight: normal; }
  .results { table-layout: fixed; width: 100%; overflow-wrap: anywhere; }
  .results th:first-child { width: 16%; }
  .results th:nth-child(2) { width: 40%; }
  .people button { display: block; width: 100%; text-align: left; margin: .4rem 0; }
`;

export function escaped(text) {
  return String(text).replace(/[&<>"']/g, sign => `&#${sign.charCodeAt(0)};`);
}

export function page(title, body) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>${escaped(title)}</h1>
${body}
</main>
</body>
</html>`;
}

export function signIn(people, uid) {
  const buttons = people.map(each => {
    const groups = each.groups.length ? `in ${each.groups.join(' and ')}` : 'in no group';
    const state = each.enabled ? groups : 'this account is disabled';
    return `<button name="person" value="${escaped(each.sub)}"${each.enabled ? '' : ' disabled'}>
<strong>${escaped(each.title)}</strong> · ${escaped(state)}</button>`;
  });
  return page(
    'Who are you?',
    `<p>This is the sign-in service of the demo. Yours would ask for a password here.</p>
<form class="people" method="post" action="/interaction/${escaped(uid)}">
${buttons.join('\n')}
<button name="person" value="">Cancel</button>
</form>`
  );
}

/** Who comes from the hub with a proof of who it is, is asked nothing. */
export function signingOut(ctx, form) {
  const hint = ctx.oidc.entities.IdTokenHint;
  const known = hint && hint.payload.sub === ctx.oidc.session.accountId;
  const yes =
    '<button type="submit" form="op.logoutForm" name="logout" value="yes" autofocus>Sign out</button>';
  const submit = "<script>document.querySelector('button').click()</script>";
  ctx.body = page(
    known ? 'Signing out' : 'Do you want to sign out?',
    `<p>This ends your sign-on here and in all that you opened with it, in this browser.</p>${form}${yes}${known ? submit : ''}`
  );
}

export function signedOut(ctx) {
  ctx.body = page('You are signed out', '<p>You can close this page.</p>');
}

export function trouble(out) {
  return page(
    'This did not work',
    `<p>${escaped(out.error_description ?? out.error)}</p><p>Go back to the hub, and sign in again.</p>`
  );
}

function button(action, person, label, group = '') {
  return `<form method="post" action="/">
<input type="hidden" name="person" value="${escaped(person.sub)}">
<input type="hidden" name="group" value="${escaped(group)}">
<button name="action" value="${action}">${escaped(label)}</button></form>`;
}

function row(person) {
  const name = person.title;
  const groups = person.allGroups.map(group =>
    person.groups.includes(group)
      ? button('leave', person, `Take ${name} out of ${group}`, group)
      : button('join', person, `Put ${name} back into ${group}`, group)
  );
  const able = person.enabled
    ? button('disable', person, `Disable ${name}`)
    : button('enable', person, `Enable ${name}`);
  return `<tr><th scope="row">${escaped(person.title)}</th>
<td>${person.enabled ? escaped(person.groups.join(', ') || 'no group') : 'disabled'}</td>
<td>${groups.join('\n')}${able}${button('sign-out', person, `Sign ${name} out everywhere`)}</td></tr>`;
}

export function events(directory) {
  return directory.events
    .map(
      each => `<li><time>${each.time.toTimeString().slice(0, 8)}</time> ${escaped(each.text)}</li>`
    )
    .join('\n');
}

function links(apps) {
  return apps
    ? `<p>The apps behind the same sign-in are at <a href="${escaped(apps.portal)}">the portal</a>, which shows each
person the apps that they may open.</p>
<form action="/audit"><button>Audit the apps</button></form> Is one of them open to strangers?`
    : '';
}

export function board(directory, hub, apps) {
  return page(
    'The sign-in service of the demo',
    `<p>Here you do what the administrators of a sign-in service do. Watch what follows at
<a href="${escaped(hub)}/hub/home">the hub</a>: a sign-out at once, anything else when the hub asks again, within five
seconds.</p>
${links(apps)}
<table>
<thead><tr><th scope="col">Who</th><th scope="col">Groups</th><th scope="col">What you can do</th></tr></thead>
<tbody>${directory.people.map(row).join('\n')}</tbody>
</table>
<h2>What happened</h2>
<ol id="events" reversed>${events(directory)}</ol>
<script>
setInterval(async () => {
  const answer = await fetch("/events");
  if (answer.ok) document.getElementById("events").innerHTML = await answer.text();
}, 1000);
</script>`
  );
}
