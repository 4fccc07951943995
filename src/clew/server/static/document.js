// What a page by itself can do beside being read: search, unfold, switch the theme.
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

// What an address leads to may be folded away.
const reveal = (target) => {
  for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
};
const go = () => {
  const target = one(decodeURIComponent(location.hash.slice(1)));
  if (target) { reveal(target); target.scrollIntoView(); }
};
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
