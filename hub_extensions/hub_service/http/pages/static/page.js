// Refreshes the page in place and shows times in the reader's time zone. The page is complete without this script.
(() => {
  const own = document.currentScript;
  const xsrf = own.dataset.xsrf;
  const pause = 1000 * Number(own.dataset.seconds);
  const SILENT_AFTER = 5000;
  const CONTROLS = "a, button, input, label, select, summary, textarea, details[open]".replace(/,|$/g, ":hover$&");
  let asked = null;

  function localTimes(root) {
    const today = new Date().toDateString();
    for (const time of root.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      time.textContent = at.toDateString() === today ? clock : `${at.toLocaleDateString()} ${clock}`;
      time.title = at.toLocaleString();
    }
  }

  function inUse(section) {
    const selection = getSelection();
    const selected = !selection.isCollapsed && section.contains(selection.anchorNode);
    const fields = [...section.querySelectorAll("input:not([type=hidden]), textarea")];
    const written = fields.some((field) => field.value !== field.defaultValue);
    return selected || written || section.querySelector(CONTROLS) || section.contains(document.activeElement);
  }

  // what its reader has folded or unfolded stays so, also after an order and when the rows are renewed
  const FOLDS = `folds ${location.pathname}`;
  const folds = JSON.parse(sessionStorage.getItem(FOLDS) || "{}");

  function foldName(details) {
    const about = details.closest("article[aria-label], section");
    return `${about?.getAttribute("aria-label") || about?.id} ${details.querySelector("summary").textContent}`;
  }

  function refold() {
    for (const details of document.querySelectorAll("main details")) {
      const open = folds[foldName(details)];
      if (open !== undefined) details.open = open;
    }
  }

  document.addEventListener("click", (event) => {
    const details = event.target.closest("main summary")?.parentElement;
    if (!details) return;
    folds[foldName(details)] = !details.open;
    sessionStorage.setItem(FOLDS, JSON.stringify(folds));
  });

  function takeOver(fresh) {
    const ids = (root) => [...root.querySelectorAll("main > section")].map((section) => section.id).join();
    if (ids(fresh) !== ids(document)) {
      if (![...document.querySelectorAll("main > section")].some(inUse)) {
        document.querySelector("main").replaceWith(fresh.querySelector("main"));
      }
      return;
    }
    let all = true;
    for (const section of fresh.querySelectorAll("main > section")) {
      const old = document.getElementById(section.id);
      // no control moves under the pointer or the keyboard
      if (inUse(old)) all = false;
      else old.innerHTML = section.innerHTML;
    }
    // what stands still is as old as it was
    if (all) document.getElementById("asof").innerHTML = fresh.getElementById("asof").innerHTML;
  }

  async function refresh() {
    if (document.hidden) return;
    const status = document.getElementById("refreshing");
    asked?.abort();
    const mine = (asked = new AbortController());
    const silent = () => {
      if (mine === asked) status.textContent = `. ${own.dataset.silent}`;
    };
    // a service that hangs answers nobody, and the proxy waits for it for long
    const late = setTimeout(silent, SILENT_AFTER);
    try {
      const answer = await fetch(location.href, { headers: { "X-XSRFToken": xsrf }, redirect: "error", signal: mine.signal });
      if (answer.status === 403) {
        location.reload();
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      localTimes(fresh);
      takeOver(fresh);
      refold();
      if (status.textContent) status.textContent = "";
    } catch {
      silent();
    } finally {
      clearTimeout(late);
    }
  }

  localTimes(document);
  refold();
  setInterval(refresh, pause);
  document.addEventListener("visibilitychange", refresh);
})();
