(function () {
  "use strict";
  // Shows the progress of one start: place in line, result, and a restart of the hub. It displays and decides nothing.
  var page = document.getElementById("gpu-waiting");
  if (!page) { return; }
  var RETRY_SECONDS = 3, STOP_TRIES = 20, LOST_SECONDS = 180, GONE_TRIES = 3, WATCH_SECONDS = 12;
  var WORDS = JSON.parse(el("gpu-words").textContent), LANGUAGE = page.lang;
  var DOTS = 12, CPU = "cpu";
  // How far the clock of this browser is ahead of the hub's.
  var skew = page.dataset.now ? Date.now() - Date.parse(page.dataset.now) : 0;
  var NOT_KNOWN = t("The start failed, and the hub does not know why. Start it again.");
  var hub = (window.jhdata || {}).base_url || "/hub/";
  var xsrf = (window.jhdata || {}).xsrf_token || "";
  var owner = page.dataset.owner, server = page.dataset.server;
  // The page about a stopped server can have any address, so the start is queried at its own.
  var here = location.pathname.indexOf(hub + "spawn-pending/") === 0 ? location.href
    : new URL(page.dataset.here + "?next=" + encodeURIComponent(location.pathname + location.search), location.href).href;
  var source = null, began = null, joined = false, lastPlace = null, lastHistory = "", happened = 0, startedAt = null, startSaid = null, lateSince = null, usual = null, outage = false, leaving = false, missed = null, over = false, waitedInLine = false;

  function el(id) { return document.getElementById(id); }
  // A text in the language of this page, with %1 and %2 replaced.
  function t(text) {
    var parts = arguments;
    return (WORDS[text] || text).replace(/%(\d)/g, function (found, place) { return place in parts ? parts[place] : found; });
  }
  // An event of the hub, with its texts in the language of this page.
  function inWords(event) {
    return event.gpu && Object.assign({ message: event.message }, event.gpu, (event.gpu.said || {})[LANGUAGE]);
  }
  function show(id, text) { el(id).textContent = text; el(id).hidden = !text; }
  function clock(iso) {
    var moment = iso instanceof Date ? iso : new Date(iso);
    if (isNaN(moment)) { return String(iso); }
    var form = { hour: "2-digit", minute: "2-digit" };
    if (moment.toDateString() !== new Date().toDateString()) { form.month = "short"; form.day = "numeric"; }
    return moment.toLocaleString([], form);
  }
  function times(root) {
    root.querySelectorAll("time[datetime]").forEach(function (item) { item.textContent = clock(item.getAttribute("datetime")); });
  }
  function title(text) { document.title = text + " – JupyterHub"; }
  function say(text) { if (el("gpu-status").textContent !== text) { el("gpu-status").textContent = text; } }
  function history(at, text) {
    if (text === lastHistory) { return; }
    lastHistory = text;
    var item = document.createElement("li"), time = document.createElement("time");
    time.setAttribute("datetime", at);
    time.textContent = clock(at);
    item.append(time, " " + text);
    el("gpu-history").append(item);
    happened = el("gpu-history").children.length;
    el("gpu-count").textContent = "(" + happened + ")";
    el("gpu-happened").hidden = false;
  }

  // ------------------------------------------------------------ the hub's API
  function serverUrl(name) {
    var path = hub + "api/users/" + encodeURIComponent(owner) + (name ? "/servers/" + encodeURIComponent(name) : "/server");
    return path + "?_xsrf=" + encodeURIComponent(xsrf);
  }
  function call(method, name, body) {
    return fetch(serverUrl(name), { method: method, credentials: "same-origin", body: body ? JSON.stringify(body) : undefined,
      headers: { "Content-Type": "application/json", "X-XSRFToken": xsrf } }).then(function (answer) {
      if (answer.ok) { return answer; }
      return answer.json().catch(function () { return {}; }).then(function (problem) {
        var error = new Error(problem.message || t("The hub answered %1.", answer.status));
        error.status = answer.status;
        throw error;
      });
    });
  }
  // If the hub is away its proxy answers: 503, or 404 until a starting hub has registered its routes.
  function needHub(answer) {
    var hubs = answer.ok || (answer.status < 502 && answer.headers.has("X-JupyterHub-Version"));
    if (!hubs && answer.type !== "opaqueredirect") { throw new Error("away"); }
  }
  function pause(seconds) { return new Promise(function (done) { setTimeout(done, 1000 * seconds); }); }
  // Do not follow redirects in a script: a user's server refuses it and would redirect endlessly. The window follows them.
  function look() {
    return fetch(here, { credentials: "same-origin", headers: { "X-XSRFToken": xsrf }, cache: "no-store", redirect: "manual" });
  }
  function model() {
    return fetch(hub + "api/users/" + encodeURIComponent(owner),
      { credentials: "same-origin", headers: { "X-XSRFToken": xsrf }, cache: "no-store" });
  }
  // A busy hub answers a cancel with 500 after one second, though the start may have ended: check, then retry.
  function giveUp(tries) {
    return call("DELETE", server).catch(function (error) {
      if (!(error.status >= 500) || tries <= 0) { throw error; }
      return pause(1).then(model).then(function (answer) {
        return answer.ok ? answer.json() : null;
      }).catch(function () { return null; }).then(function (known) {
        var now = known ? (known.servers || {})[server] : { pending: "unknown" };
        return now && (now.pending || now.ready) ? giveUp(tries - 1) : null;
      });
    });
  }
  function startAgain(options, tries) {
    return call("POST", server, options).catch(function (error) {
      // the previous stop is still in progress
      if (error.status === 400 && /pending/.test(error.message) && tries > 0) {
        return pause(1).then(function () { return startAgain(options, tries - 1); });
      }
      throw error;
    });
  }

  // ------------------------------------------------------------ the actions of the user
  function busy(is) {
    page.querySelectorAll("#gpu-actions button, #gpu-leave-ask button").forEach(function (item) { item.disabled = is; });
  }
  function failed(error) {
    var was = leaving, event = missed;
    leaving = false;
    missed = null;
    busy(false);
    el("gpu-action-status").textContent = error.message;
    if (was && !source) { retry(0, false); } else if (event) { heard(event); }
  }
  function leave() {
    leaving = true;
    busy(true);
    el("gpu-action-status").textContent = el("gpu-leave").dataset.line ? t("Leaving the line.") : t("Cancelling the start.");
    giveUp(STOP_TRIES).then(function () { location.assign(page.dataset.form); }).catch(failed);
  }
  // Send the options of this start (profile, image). Otherwise the hub would use and store its defaults.
  function own(offers) { return Object.assign(JSON.parse(page.dataset.options), offers); }
  function take(offer, words, others) {
    leaving = true;
    busy(true);
    el("gpu-action-status").textContent = t("Changing to %1. Your place for the others is kept.", words);
    var options = own({ offers: [offer].concat(others.filter(function (other) { return other !== offer; })) });
    if (page.dataset.notify) { options[page.dataset.notify] = true; }
    giveUp(STOP_TRIES)
      .then(function () { return startAgain(options, 15); })
      .then(function () {
        leaving = false;
        missed = null;
        el("gpu-action-status").textContent = "";
        busy(false);
        retry(0, false);
      }).catch(failed);
  }
  function cpuMeanwhile() {
    var name = page.dataset.cpuServer;
    busy(true);
    call("POST", name, own({ offer: CPU })).then(function () {
      busy(false);
      var link = document.createElement("a");
      link.href = hub + "spawn-pending/" + encodeURIComponent(owner) + "/" + encodeURIComponent(name);
      link.target = "_blank";
      link.rel = "noopener";
      link.textContent = t("Open server %1", name);
      el("gpu-action-status").replaceChildren(t("Server %1 is starting on CPU only.", name) + " ", link);
      el("gpu-cpu").hidden = true;
    }).catch(failed);
  }
  function promise(on) { if (el("gpu-close")) { el("gpu-close").hidden = !on; } }
  // ------------------------------------------------------------ notification
  function notifyLine(on) { el("gpu-notify-line").hidden = !(on && "Notification" in window); }
  function consent() {
    if (!el("gpu-notify").checked || Notification.permission === "granted") { return; }
    Notification.requestPermission().then(function (answer) {
      el("gpu-notify").checked = answer === "granted";
      el("gpu-notify-text").textContent = answer === "granted" ? "" : t("The browser does not allow it for this page.");
    });
  }
  function notify(text) {
    if (!("Notification" in window) || !el("gpu-notify").checked || Notification.permission !== "granted") { return; }
    try { new Notification("JupyterHub", { body: text, tag: "jupyterhub-gpu" }); } catch (error) {
      console.info("no notification:", error);  // some phones allow them from service workers only
    }
  }

{% include "gpu_card.js" %}
  // ------------------------------------------------------------ the events of the hub
  function figures(gpu) {
    var wait = gpu.wait, parts = gpu.likely ? [gpu.likely] : [];
    if (wait && gpu.at_most) {
      var by = new Date(new Date(gpu.at).getTime() + 1000 * wait.at_most_seconds);
      parts.push(t("%1, by %2", gpu.at_most, clock(by)));
    }
    return parts.join(" · ");
  }
  function age(gpu) { return gpu.wait && gpu.wait.as_of ? t("as of %1", clock(gpu.wait.as_of)) : ""; }
  function waiting(gpu) {
    waitedInLine = true;
    noSteps();
    asks(page.dataset.gpu === "1", gpu.place);
    var headline = gpu.headline || gpu.message;
    if (gpu.position) { dots(gpu.ahead || 0); } else { el("gpu-dots").hidden = true; }
    inLine(headline, gpu.position ? gpu.place : "");
    explain("gpu-profile", gpu.profile || "");
    el("gpu-as-of").textContent = age(gpu);
    explain("gpu-figures", figures(gpu));
    el("gpu-why").textContent = gpu.reason && gpu.position ? t("Why: %1", gpu.reason) : "";
    el("gpu-simulated").hidden = !gpu.simulated;
    alternatives(gpu.alternatives || [], gpu.offers || []);
    promise(gpu.position > 0);
    notifyLine(true);
    el("gpu-cpu").hidden = !page.dataset.cpuServer;
    if (gpu.position && (gpu.position !== lastPlace || outage)) {
      if (!joined) { el("gpu-history").replaceChildren(); }
      history(joined ? gpu.at : gpu.since, !joined ? t("joined as %1", gpu.place)
        : gpu.position === lastPlace ? t("it goes on: still %1", gpu.place) : t("now %1", gpu.place));
      joined = true;
      outage = false;
      lastPlace = gpu.position;
      say(headline);
    }
    title(gpu.position ? t("(%1) in line", gpu.position) : t("in line"));
  }
  function starting(gpu) {
    el("gpu-headline").textContent = gpu.message;
    noFigures();
    explain("gpu-profile", gpu.profile || "");
    if (startSaid !== gpu.since + gpu.message) {  // a pod has several events; do not repeat that the start takes long
      startSaid = gpu.since + gpu.message;
      say(gpu.message);
    }
    steps(gpu);
    el("gpu-why").textContent = gpu.reason || "";
    el("gpu-simulated").hidden = !gpu.simulated;
    asks(false, "");
    promise(false);
    alternatives([], []);
    el("gpu-cpu").hidden = true;
    history(gpu.at, gpu.offer === CPU ? t("starting") : t("starting: %1", gpu.offer_title));
    title(t("Starting"));
    if (waitedInLine) { notify(gpu.message); waitedInLine = false; }
  }
  function held(gpu) {
    waitedInLine = true;
    el("gpu-headline").textContent = gpu.message;
    noFigures();
    el("gpu-why").textContent = t("Why: %1", gpu.reason);
    el("gpu-simulated").hidden = true;
    asks(page.dataset.gpu === "1", "");
    promise(page.dataset.gpu === "1");
    alternatives([], []);
    notifyLine(true);
    el("gpu-cpu").hidden = !page.dataset.cpuServer || page.dataset.gpu !== "1";
    history(gpu.at, t("waiting for the cluster"));
    title(t("Waiting"));
    say(gpu.message + " " + gpu.reason);
  }
  function away(gpu) {
    var since = gpu.away.join(clock(gpu.away_since));
    stuck(gpu, (since + " " + (gpu.note || "")).trim(), t("the GPU service is not answering"), t("Waiting for the GPU service"));
  }
  function heldUp(gpu) { stuck(gpu, gpu.reason, t("the GPU service is held up"), t("Waiting to join the line")); }
  function stuck(gpu, why, short, headline) {
    el("gpu-headline").textContent = gpu.kept ? t("Your place in line is kept") : headline;
    noFigures();
    el("gpu-why").textContent = why;
    alternatives([], []);
    asks(gpu.kept, "");
    promise(false);
    title(t("Waiting"));
    say(why);
    history(gpu.at, short);
    outage = true;
  }
  function refused(text, card) {
    over = true;
    stopListening();
    el("gpu-reconnecting").hidden = true;
    el("gpu-actions").hidden = true;
    noLeaving();
    notifyLine(false);
    promise(false);
    el("gpu-headline").textContent = t("Your server was not started");
    noFigures();
    say("");
    el("gpu-why").textContent = "";
    if (card) {
      el("gpu-refused").replaceWith(document.importNode(card, true));
      times(el("gpu-refused"));
    } else { show("gpu-refused-text", text); }
    el("gpu-refused").hidden = false;
    title(t("Not started"));
    notify(el("gpu-refused-text").textContent);
  }
  // Show a failure with the page that shows it after a reload; if that cannot be loaded, with the hub's message.
  function startFailed(text) {
    over = true;
    stopListening();
    look().then(function (answer) { return answer.type === "opaqueredirect" ? "" : answer.text(); }).then(function (got) {
      var card = new DOMParser().parseFromString(got, "text/html").getElementById("gpu-refused");
      refused(text, card && !card.hidden ? card : null);
    }).catch(function () { refused(text); });
  }
  function ready() {
    over = true;
    stopListening();
    var shown = !el("gpu-steps").hidden;
    el("gpu-headline").textContent = t("Your server is ready");
    noFigures();
    el("gpu-steps").hidden = !shown;
    opening();
    noLeaving();
    el("gpu-why").textContent = "";
    el("gpu-actions").hidden = true;
    promise(false);
    notifyLine(false);
    title(t("Ready"));
    say(t("Your server is ready."));
    notify(t("Your server is ready."));
    lead();
  }
  // Our script does not run on a proxy's page or on other pages of the hub, so leave this page only for one that leads on.
  function lead() {
    look().then(function (answer) {
      needHub(answer);
      return answer.type === "opaqueredirect" ? led() : notReady();
    }).catch(function () {
      show("gpu-reconnecting", t("The hub is restarting. This page opens your server as soon as the hub answers."));
      pause(1).then(lead);
    });
  }
  function notReady() { over = false; retry(0, true); }
  // The hub redirects from this page: to the server if it is ready, otherwise to its login.
  function led() {
    return model().then(function (answer) {
      needHub(answer);
      return answer.ok ? answer.json() : null;
    }).then(function (known) {
      var now = known ? (known.servers || {})[server] || {} : null;
      if (now && !now.ready) { return notReady(); }
      if (now && !over) { ready(); return null; }
      over = true;
      depart(now ? address(now.url) : here);
    });
  }
  // The proxy can reach the server without the hub. Any other target is checked by the hub.
  function address(url) {
    var base = hub.replace(/hub\/$/, ""), next = new URL(here).searchParams.get("next") || "";
    if (next.indexOf(hub) === 0) { next = base + next.slice(hub.length); }
    if (!url || new URL(url, here).origin !== location.origin) { return here; }
    return !next ? url : next.indexOf(base + "user/") === 0 ? next : here;
  }
  function depart(url) {
    if (url === location.href) { location.reload(); } else { location.replace(url + (url === here ? "" : location.hash)); }
  }
  function heard(event) {
    if (leaving) {
      // the end of the start that was just cancelled; no new button appears while the old ones are disabled
      if (event.ready || event.failed) { stopListening(); } else { missed = event; }
      return;
    }
    el("gpu-reconnecting").hidden = true;
    el("gpu-actions").hidden = false;
    if (event.ready) { ready(); return; }
    if (event.failed) {
      // a stopped hub sends the same event as a user's stop: check before showing it
      if (event.message === "Spawn cancelled") { stopListening(); retry(0, false); return; }
      startFailed((event.message || "").replace(/^Spawn failed: /, "") || NOT_KNOWN);
      return;
    }
    var gpu = inWords(event);
    if (!gpu) { return; }
    if (gpu.state === "waiting") { waiting(gpu); }
    if (gpu.state === "starting") { starting(gpu); }
    if (gpu.state === "held") { held(gpu); }
    if (gpu.state === "away") { away(gpu); }
    if (gpu.state === "held-up") { heldUp(gpu); }
  }

  // ------------------------------------------------------------ the connection
  function stopListening() { if (source) { source.close(); source = null; } }
  function listen() {
    stopListening();
    var quiet = true;
    source = new EventSource(page.dataset.progress);
    source.onmessage = function (message) { quiet = false; heard(JSON.parse(message.data)); };
    source.onerror = function () {
      if (over || !source) { return; }
      stopListening();
      if (!leaving) { retry(quiet ? 1 : 0, true); }
    };
  }
  // A proxy may keep the stream of a killed hub open forever, so check periodically whether this start continues.
  function watch() {
    if (over) { return; }
    pause(document.hidden ? 60 : WATCH_SECONDS).then(function () {
      return source && !leaving ? model().then(compare) : null;
    }).catch(function () {
      if (source && !leaving) { stopListening(); retry(0, true); }
    }).then(watch);
  }
  function compare(answer) {
    if (answer.status >= 502) { throw new Error("away"); }
    if (!answer.ok) { return null; }
    return answer.json().then(function (known) {
      var now = (known.servers || {})[server];
      if (!source || leaving || over) { return; }
      if (!now || now.pending !== "spawn") { stopListening(); retry(0, false); return; }
      if (began && began !== now.started) { listen(); }
      began = now.started;
    });
  }
  function reconnecting(hubIsAway) {
    var kept = page.dataset.place === "unknown" ? "" : t("Your place is kept.") + " ";
    show("gpu-reconnecting", hubIsAway
      ? t("The hub is restarting.") + " " + kept + t("Trying again in %1 s.", RETRY_SECONDS)
      : kept ? kept + t("The server comes back in line by itself; looking again in %1 s.", RETRY_SECONDS)
      : t("The GPU service is not answering yet; looking again in %1 s.", RETRY_SECONDS));
    title(t("Reconnecting"));
    say(t("Reconnecting.") + " " + kept);
    startSaid = lateSince = null;
  }
  // A hub without this package, such as after a rollback, has no GPU service. Show this only after several such answers.
  var offTimes = 0;
  function lineIsOff() {
    return fetch(hub.replace(/hub\/$/, "services/gpu/health"), { cache: "no-store" }).then(function (answer) {
      offTimes = answer.status === 404 ? offTimes + 1 : 0;
      return offTimes >= GONE_TRIES;
    }, function () { return false; });
  }
  // Request this page again until the start is pending again, or ready. `outage`: the hub did not answer before.
  function retry(tries, outage, since) {
    if (over) { return; }
    since = since || Date.now();
    look().then(function (answer) {
        if (answer.type === "opaqueredirect") { return led().then(function () { return null; }); }
        return answer.text().then(function (text) { return { answer: answer, text: text }; });
      })
      .then(function (got) {
        if (!got) { return null; }
        var fresh = new DOMParser().parseFromString(got.text, "text/html");
        var again = fresh.getElementById("gpu-waiting"), place = again ? again.dataset.place : "";
        // the hub's own page about a failed start has a link to try again; a proxy without a hub has none
        var card = fresh.getElementById("gpu-refused");
        if (card && !card.hidden) { refused("", card); return; }
        if (fresh.getElementById("start") && got.answer.status >= 500) { refused(NOT_KNOWN); return; }
        needHub(got.answer);
        if (again && again.dataset.progress) {
          page.dataset.place = "";
          page.dataset.gpu = again.dataset.gpu;
          page.dataset.progress = again.dataset.progress;
          pause(outage ? 0.3 : 0).then(listen);
          return;
        }
        if (place) {
          page.dataset.place = place;
          since = Date.now();
          tries = 0;
        } else if (page.dataset.place === "unknown" && tries >= GONE_TRIES) {
          refused(t("This server has no place in line."));
          return;
        }
        if (!place && !outage && tries >= GONE_TRIES) { refused(t("The start was stopped, so your place in line has ended.")); return; }
        if (Date.now() - since > 1000 * LOST_SECONDS) {
          refused(t("The hub is back, but this server has not come back in line. Choose again."));
          return;
        }
        if (outage) { reconnecting(false); }
        return pause(outage ? RETRY_SECONDS : 1).then(lineIsOff).then(function (off) {
          if (off) { refused(t("This hub runs without its line for GPUs now, so your place in it has ended. Choose again.")); return; }
          retry(tries + 1, outage, since);
        });
      })
      .catch(function () {
        reconnecting(true);
        // the clock of LOST_SECONDS runs only while the hub answers
        pause(RETRY_SECONDS).then(function () { retry(tries + 1, true); });
      });
  }

  if (el("gpu-leave")) {
    el("gpu-leave").addEventListener("click", leave);
    el("gpu-stay").addEventListener("click", function () { el("gpu-leave-ask").open = false; el("gpu-leave-words").focus(); });
    el("gpu-leave").hidden = el("gpu-stay").hidden = false;
    if (location.hash === "#gpu-leave-ask") { el("gpu-leave-ask").open = true; }
  }
  setInterval(count, 1000);
  el("gpu-cpu").addEventListener("click", cpuMeanwhile);
  el("gpu-notify").addEventListener("change", consent);
  times(page);
  // without a pending start there is nothing to stop and no event to wait for
  el("gpu-actions").hidden = !page.dataset.progress;
  if (page.dataset.progress) { listen(); } else { retry(0, true); }
  watch();
  window._jupyterhub_page_loaded = true;
})();
