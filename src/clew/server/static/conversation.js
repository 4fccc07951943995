// One thread as a conversation: runs of entries come when they are looked at, and go when they are far.
"use strict";

const runs = document.getElementById("runs");
const AHEAD = 1500; // pixels around the screen in which runs are loaded
const KEPT = 24; // runs that stay in the page
const state = { seq: Number(runs.dataset.seq), loading: new Map() };

const nextFrame = () => new Promise((done) => requestAnimationFrame(done));

// --- runs ---

function reserve(run) {
  if (!("full" in run.dataset)) run.style.height = run.dataset.height + "px";
}

async function load(run) {
  if ("full" in run.dataset) return;
  if (state.loading.has(run)) return state.loading.get(run);
  const query = new URLSearchParams({ id: runs.dataset.thread, to: run.dataset.to, n: run.dataset.n });
  const work = clew.fetch("/thread/entries?" + query).then(async (answer) => {
    fill(run, await answer.text());
  }).catch((error) => clew.toast(error.message, true)).finally(() => state.loading.delete(run));
  state.loading.set(run, work);
  return work;
}

function fill(run, html) {
  const before = run.getBoundingClientRect();
  run.innerHTML = html;
  run.dataset.full = "";
  run.style.height = "";
  // What lies above the screen must not push it around; browsers with scroll anchoring do it alone.
  if (before.bottom <= 0 && !CSS.supports("overflow-anchor", "auto")) {
    scrollBy(0, run.getBoundingClientRect().height - before.height);
  }
  htmx.process(run);
}

function unload(run) {
  const height = run.getBoundingClientRect().height;
  run.dataset.height = Math.round(height);
  run.style.height = height + "px";
  run.replaceChildren();
  delete run.dataset.full;
}

function tidy() {
  const full = [...runs.querySelectorAll(".run[data-full]")];
  if (full.length <= KEPT) return;
  const last = runs.lastElementChild;
  const far = (run) => { const box = run.getBoundingClientRect(); return Math.max(0, -box.bottom, box.top - innerHeight); };
  full.filter((run) => run !== last && !run.contains(document.activeElement) && far(run) > 4 * AHEAD)
    .sort((a, b) => far(b) - far(a)).slice(0, full.length - KEPT).forEach(unload);
}

const watcher = new IntersectionObserver((seen) => {
  for (const one of seen) if (one.isIntersecting) load(one.target).then(tidy);
}, { rootMargin: `${AHEAD}px 0px` });

function adopt(run) {
  reserve(run);
  watcher.observe(run);
}

// --- going somewhere ---

async function goTo(id) {
  const card = document.getElementById("e-" + id) || [...document.querySelectorAll(".card")].find((one) => one.dataset.members.split("\n").includes(id));
  if (!card) return false;
  card.classList.add("found");
  card.focus({ preventScroll: true });
  for (let n = 0; n < 4; n++) { // what is loaded above it moves it: look again
    card.scrollIntoView({ block: "start" });
    await nextFrame();
  }
  return true;
}

async function goToPlace(share) {
  const all = [...runs.children];
  const wanted = share * Number(runs.dataset.entries);
  const run = all.findLast((one) => Number(one.dataset.start) <= wanted) || all[0];
  if (!run) return;
  run.scrollIntoView({ block: "start" });
  await load(run);
  const within = (wanted - Number(run.dataset.start)) / Number(run.dataset.n);
  run.scrollIntoView({ block: "start" });
  scrollBy(0, within * run.getBoundingClientRect().height - innerHeight / 3);
}

const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
function goToEnd() { scrollTo(0, document.documentElement.scrollHeight); }

// --- live ---

let pending = false;
async function refresh() {
  if (pending) { pending = "again"; return; }
  pending = true;
  try {
    const last = runs.querySelector(".run:last-of-type");
    const query = new URLSearchParams({ id: runs.dataset.thread, after: last?.dataset.before || "" });
    const answer = await clew.fetch("/thread/tail?" + query);
    const fresh = document.createElement("div");
    fresh.innerHTML = await answer.text();
    graft(last, fresh.firstElementChild);
  } catch (error) {
    if (error.status === 404 || error.status === 409) location.reload(); // the thread stands elsewhere now
    else clew.toast(error.message, true);
  } finally {
    const again = pending === "again";
    pending = false;
    if (again) refresh();
  }
}

/** The end of the page as it is now: cards that did not change stay, with what is unfolded in them. */
function graft(last, fresh) {
  const atEnd = isAtEnd();
  const kept = new Map([...(last?.children || [])].map((one) => [one.id + one.dataset.version, one]));
  const streams = new Map([...(last?.children || [])].filter((one) => one.dataset.stream).map((one) => [one.dataset.stream, one]));
  let grown = 0;
  const chip = document.getElementById("running");
  chip.hidden = !fresh.dataset.running;
  chip.textContent = "running: " + fresh.dataset.running;
  for (const run of [...fresh.children]) {
    for (const card of [...run.children]) {
      const old = kept.get(card.id + card.dataset.version);
      const draft = streams.get(card.dataset.stream || card.dataset.entry); // the whole one has the id of its stream
      if (old) card.replaceWith(old);
      else if (draft) { grown ||= atEnd; inherit(card, draft); }
      else { grown++; card.classList.add("fresh"); }
    }
  }
  const made = [...fresh.children];
  runs.querySelector(".empty")?.remove();
  if (last) last.replaceWith(...made); else runs.append(...made);
  const end = runs.lastElementChild;
  if (end) runs.dataset.entries = Number(end.dataset.start) + Number(end.dataset.n);
  made.forEach((run) => { adopt(run); htmx.process(run); });
  if (!grown) return;
  if (atEnd) goToEnd(); else document.getElementById("newer").hidden = false;
}

/** A reply that came further: what was unfolded in it stays so, and who stood on it stands on it. */
function inherit(card, draft) {
  const before = [...draft.querySelectorAll("details")];
  [...card.querySelectorAll("details")].forEach((one, n) => { if (before[n]) one.open = before[n].open; });
  if (draft.contains(document.activeElement)) requestAnimationFrame(() => card.focus({ preventScroll: true }));
}

function heard(news) {
  if (news.gone) { clew.toast(news.gone, true); return; }
  if (news.seq === state.seq) return;
  state.seq = news.seq;
  if (!runs.dataset.branch) refresh();
}

// --- the minimap ---

const minimap = document.getElementById("minimap");
async function drawMinimap() {
  const answer = await clew.fetch(minimap.dataset.from);
  minimap.innerHTML = await answer.text();
  const here = document.createElement("div");
  here.className = "here";
  minimap.append(here);
  minimap.addEventListener("click", (event) => {
    const thread = event.target.dataset?.thread;
    if (thread) { location.href = "/thread?" + new URLSearchParams({ id: thread }); return; }
    const box = minimap.getBoundingClientRect();
    goToPlace((event.clientY - box.top) / box.height);
  });
  const mark = () => {
    const all = [...runs.children];
    const at = (y) => {
      const run = all.findLast((one) => one.getBoundingClientRect().top <= y) || all[0];
      const box = run.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (y - box.top) / Math.max(1, box.height)));
      return (Number(run.dataset.start) + share * Number(run.dataset.n)) / Math.max(1, Number(runs.dataset.entries));
    };
    if (!all[0]?.dataset.start) return;
    const [top, bottom] = [at(60), at(innerHeight)];
    here.style.top = top * 100 + "%";
    here.style.height = Math.max(1, (bottom - top) * 100) + "%";
  };
  let asked = false;
  addEventListener("scroll", () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; mark(); });
  }, { passive: true });
  mark();
}

// --- keys and buttons ---

async function copyCard() {
  const card = clew.current();
  const query = new URLSearchParams({ id: runs.dataset.thread });
  if (card?.dataset.entry) { query.set("entry", card.dataset.entry); query.set("results", card.dataset.members); }
  else if (runs.dataset.branch) query.set("leaf", runs.dataset.branch);
  await clew.copy(await (await clew.fetch("/thread/markdown?" + query)).text());
}

function unfoldAll() {
  const all = [...runs.querySelectorAll("details")];
  const open = all.some((one) => !one.open);
  all.forEach((one) => { one.open = open; });
}

Object.assign(KEYS, {
  c: copyCard,
  l: () => { const card = clew.current(); if (card) clew.copy(new URL(card.querySelector(".stamp").getAttribute("href"), location.href).href); },
  O: unfoldAll,
  Home: () => goToPlace(0),
  End: async () => { await load(runs.lastElementChild); goToEnd(); },
});
document.getElementById("unfold").addEventListener("click", unfoldAll);
document.getElementById("copy").addEventListener("click", async (event) => {
  await clew.copy(await (await clew.fetch(event.target.dataset.from)).text());
});
document.getElementById("newer").addEventListener("click", (event) => { event.target.hidden = true; goToEnd(); });
addEventListener("scroll", () => { if (isAtEnd()) document.getElementById("newer").hidden = true; }, { passive: true });

// --- begin ---

history.scrollRestoration = "manual";
[...runs.querySelectorAll(".run")].forEach(reserve);
(async () => {
  const at = runs.dataset.at || decodeURIComponent(location.hash.replace(/^#e-/, ""));
  if (at) await goTo(at);
  else if (runs.children.length > 1 || !document.getElementById("running").hidden) goToEnd();
  await nextFrame();
  [...runs.querySelectorAll(".run")].forEach((run) => watcher.observe(run));
  document.documentElement.dataset.ready = "";
  drawMinimap();
})();
addEventListener("load", () => clew.follow({ id: runs.dataset.thread, after: state.seq }, heard));
