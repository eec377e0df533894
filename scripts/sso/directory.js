/**
 * Who there is, in which groups, and where they are signed in; and what an admin of the sign-in service does to them.
 */
const MOST_EVENTS = 12;

export class Directory {
  #sessions = new Map(); // of the provider's session, by its uid: whose it is

  constructor(people) {
    this.people = people.map(each => ({
      ...each,
      sub: `u-${each.name}`,
      allGroups: each.groups,
      groups: [...each.groups],
      enabled: true
    }));
    this.events = []; // the newest first
  }

  person(sub) {
    return this.people.find(each => each.sub === sub);
  }

  /** As oidc-provider wants to know somebody; undefined: there is no such account, or it is disabled. */
  account(sub) {
    const person = this.person(sub);
    if (!person?.enabled) return undefined;
    return {
      accountId: sub,
      claims: () => ({
        sub,
        name: person.title,
        preferred_username: person.name,
        groups: person.groups
      })
    };
  }

  noteSession(session) {
    if (session.accountId) this.#sessions.set(session.uid, session.accountId);
  }

  /** A line of what happened; `sub` "": nobody has to be named. */
  tell(sub, text) {
    const name = this.person(sub)?.title;
    this.events.unshift({ time: new Date(), text: name ? `${name} ${text}` : text });
    this.events.length = Math.min(this.events.length, MOST_EVENTS);
  }

  async act(provider, action, sub, group) {
    const person = this.person(sub);
    if (!person) return;
    if (action === 'disable' || action === 'enable') {
      person.enabled = action === 'enable';
      this.tell(sub, `is ${action}d. The hub sees it when it asks again.`);
    } else if (action === 'join' && person.allGroups.includes(group)) {
      person.groups = person.allGroups.filter(
        each => each === group || person.groups.includes(each)
      );
      this.tell(sub, `is in ${group} again. The hub sees it when it asks again.`);
    } else if (action === 'leave') {
      person.groups = person.groups.filter(each => each !== group);
      this.tell(sub, `is not in ${group} any more. The hub sees it when it asks again.`);
    } else if (action === 'sign-out') {
      const number = await this.#signOut(provider, sub);
      this.tell(
        sub,
        number
          ? `was signed out everywhere (browsers: ${number}). The hub was told.`
          : 'was not signed in.'
      );
    }
  }

  /** End every session of somebody, and tell each client, as the provider's own sign-out does. */
  async #signOut(provider, sub) {
    let number = 0;
    for (const [uid, owner] of this.#sessions) {
      if (owner !== sub) continue;
      this.#sessions.delete(uid);
      const session = await provider.Session.findByUid(uid);
      if (session?.accountId !== sub) continue;
      number += 1;
      const known = Object.keys(session.authorizations ?? {}).map(clientId => ({
        clientId,
        sid: session.sidFor(clientId),
        grant: session.grantIdFor(clientId)
      }));
      await session.destroy();
      for (const { clientId, sid, grant } of known) {
        await provider.RefreshToken.revokeByGrantId(grant);
        await provider.AccessToken.revokeByGrantId(grant);
        const client = await provider.Client.find(clientId);
        await client
          .backchannelLogout(sub, sid)
          .catch(error => this.tell('', `The hub did not take a sign-out: ${error.message}.`));
      }
    }
    return number;
  }
}
