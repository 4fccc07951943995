// What every page shares: keys, theme, messages, live updates of the list.
"use strict";

const clew = {
  /** Say something in a corner for a while. */
  toast(text, bad = false) {
    const box = document.createElement("p");
    box.className = bad ? "toast bad" : "toast";
    box.textContent = text;
    document.getElementById("toasts").append(box);
    setTimeout(() => box.remove(), bad ? 8000 : 2500);
  },

  /** A piece of a page; what the server refuses becomes a message. */
  async fetch(place, options = {}) {
    const answer = await fetch(place, { ...options, headers: { "HX-Request": "true", ...options.headers } });
    if (!answer.ok) {
      const error = new Error((await answer.text()).slice(0, 300));
      error.status = answer.status;
      throw error;
    }
    return answer;
  },

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      clew.toast("Copied");
    } catch {
      clew.toast("The browser does not allow copying here", true);
    }
  },

  /** Follow a topic of the server. Reconnects by itself, from the last position that was seen. */
  follow(query, heard) {
    const live = document.getElementById("live");
    const source = new EventSource("/events?" + new URLSearchParams(query));
    source.addEventListener("open", () => { live.hidden = false; live.textContent = "live"; });
    source.addEventListener("news", (event) => heard(JSON.parse(event.data), source));
    source.addEventListener("error", () => {
      live.hidden = false;
      live.textContent = "not connected";
      if (source.readyState === EventSource.CLOSED) {
        clew.toast("The viewer was started anew: open the link that it printed.", true);
      }
    });
    addEventListener("pagehide", () => source.close());
    return source;
  },

  /** Elements that j and k step through. */
  stops: () => [...document.querySelectorAll(".row, .card, .stop")].filter((one) => one.offsetParent !== null),

  step(direction) {
    const stops = clew.stops();
    if (!stops.length) return;
    const now = stops.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
    let next = now + direction;
    if (now < 0) {
      next = stops.findIndex((one) => one.getBoundingClientRect().bottom > 80);
      if (next < 0) next = 0;
    }
    const target = stops[Math.max(0, Math.min(stops.length - 1, next))];
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest" });
  },

  current: () => document.activeElement?.closest(".row, .card, .stop"),
};

// --- theme ---

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("clew-theme", root.dataset.theme); } catch { /* for this page only, then */ }
}

document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help-button").addEventListener("click", () => document.getElementById("help").showModal());

// --- keys ---

const KEYS = {
  j: () => clew.step(1),
  k: () => clew.step(-1),
  t: switchTheme,
  g: () => { location.href = "/"; },
  "?": () => document.getElementById("help").showModal(),
  "/": () => {
    const field = document.querySelector("input[type=search]");
    if (field) field.focus(); else location.href = "/";
  },
  Enter: () => clew.current()?.querySelector("a.title, summary")?.click(),
  o: () => clew.current()?.querySelector("summary")?.click(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = event.target;
  if (at.matches("input, textarea, select")) {
    if (event.key === "Escape") {
      event.preventDefault(); // a browser would empty the field, and the filter with it
      at.blur();
    }
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && at.matches("a, button, summary")) return;
  if (/^[1-9]$/.test(event.key)) {
    document.querySelectorAll(".tabs a")[Number(event.key) - 1]?.click();
    return;
  }
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

// A menu closes when something else is clicked, or with Escape.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keyup", (event) => {
  if (event.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((one) => { one.open = false; });
});

// --- what htmx could not do ---

document.addEventListener("htmx:responseError", (event) => clew.toast(event.detail.xhr.responseText.slice(0, 300), true));
document.addEventListener("htmx:sendError", () => clew.toast("The viewer does not answer. Is it still running?", true));
document.addEventListener("htmx:afterSwap", (event) => {
  (event.detail.elt || event.target).querySelector?.("[autofocus]")?.focus();
});

// Things whose place or size is data: the policy allows no style in the markup.
clew.place = (root = document) => {
  for (const one of root.querySelectorAll("[data-width]")) one.style.width = one.dataset.width + "%";
};
document.addEventListener("DOMContentLoaded", () => clew.place());
document.addEventListener("htmx:load", (event) => clew.place(event.target));

// Dialogs that the server fills open by themselves; a chosen value sends its form.
document.addEventListener("htmx:afterSwap", (event) => {
  const box = event.target;
  if (box.tagName !== "DIALOG") return;
  document.querySelectorAll("details.menu[open]").forEach((one) => { one.open = false; });
  if (!box.open) box.showModal();
});
document.addEventListener("click", (event) => { if (event.target.matches("[data-close]")) event.target.closest("dialog").close(); });
document.addEventListener("htmx:afterSwap", () => {
  for (const field of document.querySelectorAll("[data-link]")) field.value = new URL(field.getAttribute("value"), location.href).href;
});
document.addEventListener("click", (event) => { if (event.target.matches("[data-copy-link]")) clew.copy(document.querySelector("[data-link]").value); });
document.addEventListener("change", (event) => { if (event.target.matches("[data-submit]")) event.target.form.requestSubmit(); });

// What is being built is looked at again.
if (document.querySelector("[data-again]")) setTimeout(() => location.reload(), 1000);

// --- the list, live ---

const filters = document.getElementById("filters");
if (filters) {
  const query = () => {
    const given = new URLSearchParams(new FormData(filters));
    for (const [key, value] of [...given]) if (!value) given.delete(key);
    return given;
  };
  filters.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt === filters) history.replaceState(null, "", query().size ? "/?" + query() : "/");
  });
  let waiting = 0;
  const refresh = async () => {
    waiting = 0;
    const rows = document.getElementById("rows");
    // A menu or a form is open, a button is held down, or an answer for a row is on its way.
    const isUsed = () => rows.querySelector("form.edit, details[open], :active, .htmx-request") !== null;
    if (isUsed()) { later(); return; }
    try {
      const asked = query().toString();
      const html = await (await clew.fetch("/threads/rows?" + asked)).text();
      if (isUsed() || asked !== query().toString()) { later(); return; }  // both can begin meanwhile
      const fresh = document.createElement("div");
      fresh.innerHTML = html;
      merge(rows, fresh);
    } catch (error) { clew.toast(error.message, true); }
  };
  const later = () => { if (!waiting) waiting = setTimeout(refresh, 400); };
  // The first page is replaced; what was loaded below it stays, without what moved up.
  const merge = (rows, fresh) => {
    const now = rows.querySelector("ol.list");
    const next = fresh.querySelector("ol.list");
    const ids = new Set([...next.children].map((one) => one.id));
    const focused = document.activeElement?.closest(".row")?.id;
    const pages = rows.querySelectorAll("ol.list");
    pages.forEach((page, n) => { if (n) for (const one of [...page.children]) if (ids.has(one.id)) one.remove(); });
    if (pages.length === 1) rows.querySelector(".more")?.replaceWith(...fresh.querySelectorAll(".more"));
    now.replaceWith(next);
    htmx.process(rows);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  addEventListener("load", () => clew.follow({}, later));

  // --- tokens and cost: asked for when the rows are shown, and again when a thread has grown ---
  const known = new Map();
  let asking = false;
  const write = (row, [cost, tokens, all]) => {
    const box = row.querySelector(".used");
    if (!box || box.title === all) return; // else this change would be seen, and lead here again
    const sum = document.createElement("b");
    sum.textContent = cost;
    box.replaceChildren(sum, " · " + tokens);
    box.title = all;
  };
  /** What is known is written at once, also where it is older than the row; the rows to be asked for. */
  const fill = () => [...document.querySelectorAll("#rows .row")].filter((row) => {
    const found = known.get(row.dataset.thread);
    if (found?.used) write(row, found.used);
    return found?.seq !== row.dataset.seq;
  });
  const count = async () => {
    const missing = fill();
    if (asking || !missing.length) return;
    asking = true;
    const told = document.getElementById("counting");
    try {
      const rows = missing.slice(0, 200);
      const body = new URLSearchParams({ ids: JSON.stringify(rows.map((row) => row.dataset.thread)) });
      const answer = await (await clew.fetch("/threads/usage", { method: "POST", body })).json();
      if (answer.used) {
        for (const row of rows) known.set(row.dataset.thread, { seq: row.dataset.seq, used: answer.used[row.dataset.thread] });
        told.textContent = "";
        setTimeout(count);
      } else {
        told.textContent = answer.total ? `counting usage: ${answer.done.toLocaleString()} of ${answer.total.toLocaleString()} threads` : "counting usage …";
        setTimeout(count, 1000);
      }
    } catch (error) {
      told.textContent = "";
      if (error.status) clew.toast(error.message, true);
    } finally { asking = false; }
  };
  let due = 0;
  const soon = () => { // rows came, or were drawn anew; not for each page of a long scroll
    fill();
    clearTimeout(due);
    due = setTimeout(count, 200);
  };
  new MutationObserver(soon).observe(document.getElementById("rows"), { childList: true, subtree: true });
  count();
}
