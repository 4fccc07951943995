// What a page by itself can do beside being read: search, unfold, switch the theme, and show the
// path to one leaf instead of all branches.
"use strict";
document.documentElement.classList.add("js");
const one = (id) => document.getElementById(id);
const cards = () => document.querySelectorAll(".card");

one("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

const unfold = (open) => document.querySelectorAll("main details").forEach((box) => { box.open = open; });
one("unfold").addEventListener("click", (event) => {
  const open = event.target.textContent === "Unfold all";
  unfold(open);
  event.target.textContent = open ? "Fold all" : "Unfold all";
});
addEventListener("beforeprint", () => unfold(true));

// --- one path at a time ---

// A branch stands behind the run that it goes on from, so a path is read from top to bottom when
// all else is hidden: other branches, and what follows the places where this one parts.
const path = one("path");
const runs = [...document.querySelectorAll(".run")];
const choose = (chosen) => {
  if (!path) return;
  path.value = chosen;
  const ends = new Map();
  for (let run = one(`b-${chosen}`), end = null; run; end = run.dataset.after, run = one(`b-${run.dataset.origin}`)) ends.set(run, end);
  for (const run of runs) {
    run.classList.toggle("off", chosen !== "all" && !ends.has(run));
    const last = one(ends.get(run));
    let near = false;
    let past = false;
    for (const part of run.children) {
      past ||= near && !part.matches("span, .way"); // which belong to the card before them
      near ||= part === last;
      part.classList.toggle("off", past);
    }
  }
  for (const row of document.querySelectorAll(".side li a")) row.parentElement.classList.toggle("away", !!find(row.hash)?.closest(".off"));
};

const find = (hash) => {
  const name = hash.slice(1);
  try { return one(name) ?? one(decodeURIComponent(name)); } catch { return null; } // an id may have a %
};
// What an address leads to may be on another path, or folded away.
const reveal = (target) => {
  if (target.closest(".off")) choose(target.closest(".run").dataset.run);
  for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
};
const go = () => {
  const target = find(location.hash);
  if (!target) return;
  if (target.matches(".run")) choose(target.dataset.run);
  reveal(target);
  target.scrollIntoView();
};
path?.addEventListener("change", () => {
  choose(path.value);
  one(`b-${path.value}`)?.scrollIntoView();
});
choose("0");
addEventListener("hashchange", go);
if (location.hash) go();

// --- search ---

let texts = null;
let hits = [];
let at = -1;
const field = one("search");

const show = (step) => {
  hits[at]?.classList.remove("found");
  if (hits.length) at = (at + step + hits.length) % hits.length;
  const hit = hits[at];
  one("hits").textContent = field.value.trim() ? (hits.length ? `${at + 1} of ${hits.length}` : "nothing") : "";
  if (!hit) return;
  hit.classList.add("found");
  reveal(hit);
  const wanted = field.value.trim().toLowerCase();
  for (const box of hit.querySelectorAll("details")) if (box.textContent.toLowerCase().includes(wanted)) box.open = true;
  hit.scrollIntoView({ block: "center" });
};

const search = () => {
  hits[at]?.classList.remove("found");
  texts ??= [...cards()].map((card) => [card, card.textContent.toLowerCase()]);
  const wanted = field.value.trim().toLowerCase();
  hits = wanted ? texts.filter(([, text]) => text.includes(wanted)).map(([card]) => card) : [];
  at = -1;
  show(1);
};

let waiting = 0;
field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 150); });
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  clearTimeout(waiting);
  if (hits.length) show(event.shiftKey ? -1 : 1); else search();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input")) return;
  event.preventDefault();
  field.focus();
});
