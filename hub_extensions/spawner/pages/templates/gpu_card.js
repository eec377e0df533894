  // ------------------------------------------------------------ the content of the card; a part of gpu_waiting.js
  // Ask before leaving, with the text for a place in line or for a start.
  function asks(inLine, place) {
    if (!el("gpu-leave-ask")) { return; }
    el("gpu-leave-ask").hidden = false;
    el("gpu-leave").hidden = el("gpu-stay").hidden = false;
    el("gpu-leave-words").textContent = inLine ? t("Leave the line …") : t("Cancel the start …");
    el("gpu-leave").textContent = inLine ? t("Leave the line") : t("Cancel the start");
    el("gpu-leave-question").textContent = place ? t("You are %1. Leave?", place) : inLine ? t("Leave?") : t("Your server is not started then.");
    el("gpu-leave").dataset.line = inLine ? "1" : "";
  }
  function noLeaving() { if (el("gpu-leave-ask")) { el("gpu-leave-ask").hidden = true; } }
  var wanted = [];
  function alternatives(list, others) {
    var box = el("gpu-alternatives");
    wanted = others;
    var key = list.map(function (item) { return item.offer + " " + item.when; }).join("\n");
    if (box.dataset.key === key) { return; }
    box.dataset.key = key;
    // a button that stays is not replaced, so that it keeps the focus and a press in progress
    var there = Array.prototype.slice.call(box.children), buttons = list.map(function (item) {
      var button = there.filter(function (each) { return each.dataset.offer === item.offer; })[0] || alternative(item);
      button.textContent = item.now ? t("Take %1: now", item.title) : t("Take %1: %2", item.title, item.when);
      button.title = item.gives;
      return button;
    });
    there.forEach(function (button) { if (buttons.indexOf(button) < 0) { button.remove(); } });
    buttons.forEach(function (button, at) {
      if (box.children[at] !== button) { box.insertBefore(button, box.children[at] || null); }
    });
  }
  function alternative(item) {
    var button = document.createElement("button");
    button.type = "button";
    button.className = "btn me-1 btn-outline-contrast";
    button.dataset.offer = item.offer;
    button.addEventListener("click", function () { take(item.offer, item.title, wanted); });
    return button;
  }

  function noFigures() {
    explain("gpu-figures", "");
    explain("gpu-profile", "");
    el("gpu-as-of").textContent = "";
    el("gpu-dots").hidden = true;
    noSteps();
  }
  function noSteps() {
    el("gpu-steps").hidden = el("gpu-bar").hidden = true;
    startedAt = null;
  }
  // Show the place in line as the headline, once.
  function inLine(headline, place) {
    var at = place ? headline.indexOf(place) : -1;
    if (at < 0) { el("gpu-headline").textContent = headline; return; }
    el("gpu-headline").replaceChildren(headline.slice(0, at), dot("gpu-place", place, "span"), headline.slice(at + place.length));
  }
  // A text in which explained terms (gpu_words.html) are buttons.
  function explain(id, text) {
    var box = el(id);
    if (box.textContent === text) { return; }
    box.textContent = text;
    document.querySelectorAll("[data-word]").forEach(function (help) {
      var word = help.dataset.word, found = Array.prototype.filter.call(box.childNodes, function (node) {
        return node.nodeType === 3 && node.data.indexOf(word) >= 0;
      })[0];
      if (!found) { return; }
      var rest = found.splitText(found.data.indexOf(word)), button = dot("gpu-word", word, "button");
      rest.splitText(word.length);
      button.type = "button";
      button.setAttribute("popovertarget", help.id);
      button.setAttribute("aria-describedby", help.id);
      rest.replaceWith(button);
    });
  }
  function dots(ahead) {
    var items = [];
    for (var number = 0; number < Math.min(ahead, DOTS); number += 1) { items.push(document.createElement("li")); }
    if (ahead > DOTS) { items.push(dot("gpu-rest", "+ " + (ahead - DOTS))); }
    el("gpu-dots").replaceChildren.apply(el("gpu-dots"), items.concat(dot("gpu-you", ""), dot("gpu-rest", t("you"))));
    el("gpu-dots").hidden = false;
  }
  function dot(look, text, kind) {
    var item = document.createElement(kind || "li");
    item.className = look;
    item.textContent = text;
    return item;
  }
  function seconds(count) {
    return count < 60 ? t("%1 s", count) : t("%1 min", Math.floor(count / 60)) + (count % 60 ? " " + t("%1 s", count % 60) : "");
  }
  // The steps of a start; the second one counts.
  function steps(gpu) {
    startedAt = gpu.since ? Date.parse(gpu.since) + skew : null;
    usual = gpu.usual_seconds || null;
    el("gpu-steps").hidden = false;
    el("gpu-step-reserved").hidden = gpu.offer === CPU;
    el("gpu-bar").hidden = !usual;
    count();
  }
  function count() {
    if (startedAt === null) { return; }
    var gone = Math.max(0, Math.round((Date.now() - startedAt) / 1000));
    // full if it takes longer than usual, because the remaining time is unknown
    el("gpu-bar").firstElementChild.style.width = usual ? Math.min(100, 100 * gone / usual) + "%" : "";
    var often = usual && seconds(Math.round(usual)), late = usual && gone > usual;
    el("gpu-gone").textContent = "(" + (late ? t("%1, longer than usual: usually %2", seconds(gone), often) : usual ? t("%1, usually %2", seconds(gone), often) : seconds(gone)) + ")";
    if (late && lateSince !== startedAt) {
      lateSince = startedAt;
      say(el("gpu-headline").textContent + " " + t("It takes longer than usual: usually %1.", often));
    }
  }
  function opening() {
    startedAt = null;
    el("gpu-step-server").dataset.step = "done";
    el("gpu-step-opening").dataset.step = "now";
  }
