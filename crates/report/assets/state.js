"use strict";
// The state of the page, which its address keeps after the `#`: a copied link opens the same part at the same instant.

/** Times are microseconds; columns, zones and sets go by their names. */
const state = {
  part: "",
  at: null,
  zoom: null,
  block: null,
  blocks: null,
  zone: "",
  left: "",
  right: "",
  pair: "",
  of: "",
  case: "",
  any: "",
  stall: "",
  from: "",
};
/** The words of the state that are names. */
const NAMES = ["part", "zone", "left", "right", "pair", "of", "case", "any", "row", "stall", "from"];
const hearers = [];

/** Calls `act` after each change of the state. */
function onState(act) {
  hearers.push(act);
}

/** Changes some of the state, and tells all parts. */
function change(some) {
  Object.assign(state, some);
  hearers.forEach((act) => act(some));
  remember();
}

const seconds = (us) => String(+(us / 1e6).toFixed(6));

/** The state as it stands in a link. */
function address() {
  const words = new URLSearchParams();
  for (const name of NAMES) if (state[name]) words.set(name, state[name]);
  if (state.at != null) words.set("at", seconds(state.at));
  if (state.zoom) words.set("zoom", state.zoom.map(seconds).join("-"));
  if (state.block != null) words.set("block", state.block);
  if (state.blocks) words.set("blocks", state.blocks.join("-"));
  if (offColumns.size) [...offColumns].forEach((name) => words.append("off", name));
  return `#${words}`;
}

let remembering = 0;

function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    if (address() === location.hash) return;
    try {
      history.replaceState(null, "", address());
    } catch {
      // A viewer that shows the page without an address of its own has no link to keep.
    }
  }, 150);
}

/** Reads the state from the address: names that the page does not have are left out. */
function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (text) => (text != null && text !== "" && Number.isFinite(Number(text)) ? Number(text) * 1e6 : null);
  const found = {};
  for (const name of NAMES) found[name] = words.get(name) ?? "";
  found.at = number(words.get("at"));
  const ends = (words.get("zoom") ?? "").split("-").map(number);
  found.zoom = ends.length === 2 && ends[0] != null && ends[1] > ends[0] ? ends : null;
  const whole = (text) => (/^\d{1,9}$/.test(text ?? "") ? Number(text) : null);
  found.block = whole(words.get("block"));
  const stretch = (words.get("blocks") ?? "").split("-").map(whole);
  found.blocks = stretch.length === 2 && !stretch.includes(null) && stretch[1] >= stretch[0] ? stretch : null;
  offColumns.clear();
  words
    .getAll("off")
    .filter((name) => DATA.columns.includes(name))
    .forEach((name) => offColumns.add(name));
  return found;
}

addEventListener("hashchange", () => {
  if (location.hash === address()) return;
  const found = recall();
  drawColumns();
  change(found);
  document.getElementById(found.part)?.scrollIntoView();
});
