"use strict";
// Small helpers: elements, numbers, colours. Text from results only ever becomes text nodes.

const DATA = JSON.parse(document.getElementById("data").textContent);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}

function table(heads, rows) {
  const head = el(
    "tr",
    {},
    heads.map((text) => el("th", { scope: "col" }, text)),
  );
  const body = rows.map((row) =>
    el(
      "tr",
      row.id ? { id: row.id } : {},
      (row.cells ?? row).map((cell) => el("td", {}, cell)),
    ),
  );
  return el("div", { class: "wide" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

function select(label, options, value, change) {
  const entries = options.map(([key, text]) => {
    const option = el("option", { value: key }, text);
    option.selected = key === value;
    return option;
  });
  const list = el("select", { "aria-label": label, onchange: () => change(list.value) }, entries);
  return el("label", {}, el("span", { class: "quiet" }, label), list);
}

/** Three digits, and k, M or G for thousands. */
function short(value) {
  if (value == null || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e4) {
    const [unit, of] = size >= 1e9 ? ["G", 1e9] : size >= 1e6 ? ["M", 1e6] : ["k", 1e3];
    return (value / of).toPrecision(3) + unit;
  }
  return size >= 1000 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(3);
}

/** Marks of an axis: three digits each, or as many more as tell them apart. */
function apart(values) {
  const texts = values.map((value) => short(+value.toPrecision(6)));
  for (let digits = 4; digits < 12 && new Set(texts).size < texts.length; digits += 1) {
    values.forEach((value, at) => (texts[at] = String(+value.toPrecision(digits))));
  }
  return texts;
}

function percent(value) {
  return (value > 0 ? "+" : value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(Math.abs(value) < 10 ? 1 : 0) + " %";
}

function size(mib) {
  return mib >= 1024 ? +(mib / 1024).toFixed(2) + " GiB" : +mib.toFixed(2) + " MiB";
}

/** An instant in words. */
function instant(us) {
  const s = us / 1e6;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  if (s >= 600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return s.toFixed(s < 100 ? 3 : 1) + " s";
}

/** The unit of an axis of time that ends there, and its microseconds. */
function unitOfTime(end) {
  return end > 7200e6 ? ["h", 3600e6] : end > 600e6 ? ["min", 60e6] : ["s", 1e6];
}

const HUES = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#F0E442", "#E69F00", "#E69F00"];

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A share of one colour over another. */
function mix(over, under, share) {
  const [a, b] = [rgb(over), rgb(under)];
  return (
    "#" +
    a
      .map((part, at) =>
        Math.round(part * share + b[at] * (1 - share))
          .toString(16)
          .padStart(2, "0"),
      )
      .join("")
  );
}

/** Thousands with commas, as far as whole numbers go. */
function grouped(value) {
  if (value == null || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  const text = size >= 100 ? Math.round(size).toString() : +size.toPrecision(3) + "";
  return (value < 0 ? "\u2212" : "") + text.replace(/\B(?=(\d{3})+$)/g, size >= 100 ? "," : "");
}

/** Calls `draw` once `node` is about to be seen, or printed. */
function whenNear(node, draw) {
  const come = () => {
    if (node.isNear) return;
    node.isNear = true;
    watch.disconnect();
    draw();
  };
  const watch = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && come(), { rootMargin: "400px" });
  watch.observe(node);
  addEventListener("beforeprint", come);
}

/** Calls `draw` now, and again when the width or the colour scheme changes. */
function redrawn(node, draw) {
  let width = 0;
  const again = () => {
    width = node.clientWidth;
    if (width > 0) draw(width);
  };
  // Not within the observer: what is drawn there changes sizes, which it would have to observe again.
  new ResizeObserver(() => node.clientWidth !== width && requestAnimationFrame(again)).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return again;
}
