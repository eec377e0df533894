/**
 * A sign-in service to try: oidc-provider with a few people, without passwords, on the loopback address only.
 *
 *     node provider.js facts.json    {"port", "hub", "client", "secret", "people": [{"name", "title", "groups"}]}
 *                                    "clients", where there are others, as oidc-provider takes them
 *                                    "apps", where there are some behind the gate: as `audit.js` takes them
 *
 * Everything is in memory: started anew, everybody is enabled, in their groups, and signed out.
 * Not here: who there is and what is done to them (`directory.js`), what is shown (`pages.js`), the audit (`audit.js`).
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';

import Provider, { interactionPolicy } from 'oidc-provider';

import { Audit } from './audit.js';
import { report } from './audit_page.js';
import { Directory } from './directory.js';
import { board, events, signedOut, signIn, signingOut, trouble } from './pages.js';

const facts = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const issuer = `http://localhost:${facts.port}`; // not the hub's host: cookies know no ports
const LARGEST_FORM = 4096;

/** What the provider itself fetches: nothing but this machine. */
function fetchFromLoopback(url, options) {
  const { hostname } = new URL(url);
  if (hostname !== 'localhost' && !/^127(\.\d{1,3}){3}$/.test(hostname)) {
    throw new Error(`Only addresses of this machine are asked, not ${hostname}.`);
  }
  return fetch(url, { ...options, dispatcher: undefined }); // its own refuses just these addresses
}

function signingKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256' };
}

/** Nobody is asked for consent: the hub belongs to the same house. */
async function grantOf(ctx) {
  const { client, session, provider } = ctx.oidc;
  const known = session.grantIdFor(client.clientId);
  if (known) return provider.Grant.find(known);
  const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
  grant.addOIDCScope('openid profile');
  await grant.save();
  return grant;
}

function prompts() {
  const policy = interactionPolicy.base();
  policy.add(new interactionPolicy.Prompt({ name: 'select_account', requestable: true }), 0);
  const gone = new interactionPolicy.Check(
    'account_gone',
    'the account is disabled',
    ({ oidc: { session } }) => Boolean(session.accountId && !directory.account(session.accountId))
  );
  policy.get('login').checks.add(gone);
  return policy;
}

const directory = new Directory(facts.people);
const audit = facts.apps && new Audit(facts.apps);
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: facts.client,
      client_secret: facts.secret,
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: [`${facts.hub}/hub/oauth_callback`],
      post_logout_redirect_uris: [`${facts.hub}/hub/login`],
      backchannel_logout_uri: `${facts.hub}/hub/sso/backchannel-logout`,
      backchannel_logout_session_required: true
    },
    ...(facts.clients ?? [])
  ],
  claims: { openid: ['sub'], profile: ['name', 'preferred_username', 'groups'] },
  conformIdTokenClaims: false, // groups stand in the id token, too
  cookies: { keys: [randomBytes(32).toString('hex')] },
  features: {
    backchannelLogout: { enabled: true },
    devInteractions: { enabled: false },
    rpInitiatedLogout: {
      enabled: true,
      logoutSource: signingOut,
      postLogoutSuccessSource: signedOut
    }
  },
  fetch: fetchFromLoopback,
  findAccount: (_, sub) => directory.account(sub),
  interactions: { policy: prompts(), url: (_, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: () => true, // without offline_access: it ends with the session here
  jwks: { keys: [signingKey()] },
  loadExistingGrant: grantOf,
  pkce: { required: () => true },
  renderError: (ctx, out) => show(ctx, trouble(out)),
  routes: { authorization: '/authorize', end_session: '/end_session', token: '/token' }
});

provider.on('session.saved', session => directory.noteSession(session));
provider.on('backchannel.success', (_, client, sub) =>
  directory.tell(sub, 'signed out: the hub was told.')
);
provider.on('backchannel.error', (_, error) =>
  directory.tell('', `The hub did not take a sign-out: ${error.message}.`)
);
provider.on('grant.error', (ctx, error) => {
  // as other providers do, it says why: that an account is disabled is more than a session that is over
  const sub = ctx.oidc.entities.RefreshToken?.accountId;
  const isDisabled = directory.person(sub)?.enabled === false;
  const detail = isDisabled ? 'account disabled' : (error.error_detail ?? error.error_description);
  ctx.body = { ...ctx.body, error_description: detail };
  directory.tell(
    sub,
    sub
      ? `was asked about by the hub. The answer was no: ${detail}.`
      : `The hub asked about a session that is over: ${detail}.`
  );
});

function show(ctx, html) {
  ctx.type = 'html';
  ctx.set('Cache-Control', 'no-store');
  ctx.body = html;
}

async function formOf(ctx) {
  let text = '';
  for await (const part of ctx.req) {
    text += part;
    if (text.length > LARGEST_FORM) ctx.throw(413);
  }
  return new URLSearchParams(text);
}

/** The page to sign in: whoever is chosen is signed in. */
async function interact(ctx) {
  const details = await provider.interactionDetails(ctx.req, ctx.res);
  if (ctx.method !== 'POST') {
    show(ctx, signIn(directory.people, details.uid));
    return;
  }
  const sub = (await formOf(ctx)).get('person') ?? '';
  const answer = directory.account(sub)
    ? { select_account: {}, login: { accountId: sub } }
    : { error: 'access_denied', error_description: 'Nobody was chosen.' };
  ctx.status = 303;
  ctx.redirect(await provider.interactionResult(ctx.req, ctx.res, answer));
}

async function act(ctx) {
  const form = await formOf(ctx);
  await directory.act(provider, form.get('action'), form.get('person'), form.get('group'));
  ctx.status = 303;
  ctx.redirect('/');
}

/** The page of the audit: its buttons start something, which is shown when it is over. */
async function tryApps(ctx) {
  if (ctx.method !== 'POST') {
    show(ctx, report(audit));
    return;
  }
  audit.start((await formOf(ctx)).get('action'));
  ctx.status = 303;
  ctx.redirect('/audit');
}

provider.use(async (ctx, next) => {
  if (ctx.host !== `localhost:${facts.port}`) ctx.throw(400); // a name of somebody else's that leads here
  const mine = ['/', '/audit'].includes(ctx.path) || ctx.path.startsWith('/interaction/');
  if (mine && ctx.method === 'POST' && ctx.get('Origin') !== issuer) ctx.throw(403); // another site's form
  if (ctx.path.startsWith('/interaction/')) return interact(ctx);
  if (ctx.path === '/audit' && audit) return tryApps(ctx);
  if (ctx.path === '/events') return show(ctx, events(directory));
  if (ctx.path !== '/') return next();
  return ctx.method === 'POST' ? act(ctx) : show(ctx, board(directory, facts.hub, facts.apps));
});

provider.listen(facts.port, '127.0.0.1', () => console.log(`The sign-in service is at ${issuer}/`));
