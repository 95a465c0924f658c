// Replaces fragments of the page by those that the server sends, which it has escaped.
"use strict";

(() => {
  for (const field of document.querySelectorAll("[data-submits]")) {
    field.addEventListener("change", () => field.form.submit());
    for (const button of field.form.querySelectorAll("button")) button.hidden = true;
  }
  const address = document.body.dataset.live;
  const state = document.getElementById("live-state");
  if (!address || !state) return;

  const say = (text, kind) => {
    if (state.textContent !== text) state.textContent = text;
    state.dataset.kind = kind;
  };
  const changes = new EventSource(address);
  changes.addEventListener("open", () => say("Live", "live"));
  changes.addEventListener("error", () => {
    if (changes.readyState === EventSource.CLOSED) say("Not live: load the page again", "off");
    else say("Reconnecting", "off");
  });
  changes.addEventListener("fragment", (event) => {
    const { id, html } = JSON.parse(event.data);
    const place = document.getElementById(id);
    if (!place || place.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return;
    const focused = document.activeElement && place.contains(document.activeElement) ? document.activeElement.id : "";
    const open = new Set([...place.querySelectorAll("details[open][id]")].map((each) => each.id));
    place.innerHTML = html;
    for (const each of place.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = true;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    say("Live", "live");
  });
  changes.addEventListener("problem", (event) => say(`Not current: ${JSON.parse(event.data).text}`, "off"));
  changes.addEventListener("end", () => {
    changes.close();
    say("Signed out: load the page again", "off");
  });
})();
