"use strict";
// Columns: a colour and a dash for each, which all charts use, and the switches that leave columns out of all charts.

/** Strokes: solid, dashed, dotted, dash and dot. */
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
/** Number of the variables --column-0, --column-1, ... in the style sheet. */
const COLUMN_HUES = 6;

/** The colour and the stroke of a column; the first 24 columns differ in one of the two, neighbours in both. */
function strokeOf(name) {
  const at = Math.max(0, DATA.columns.indexOf(name));
  return { hue: at % COLUMN_HUES, dash: DASHES[(at + Math.floor(at / COLUMN_HUES)) % DASHES.length] };
}

/** The colour for styles and SVG. */
function hueOf(name) {
  return `var(--column-${strokeOf(name).hue})`;
}

/** The colour for a canvas, in the present colour scheme. */
function inkOf(name) {
  return css(`--column-${strokeOf(name).hue}`);
}

/** A piece of the column's line. */
function sampleOf(name) {
  const { dash } = strokeOf(name);
  const line = svg("line", { x1: 0, x2: 30, y1: 6, y2: 6, "stroke-width": 3, style: `stroke:${hueOf(name)}` });
  if (dash.length) line.setAttribute("stroke-dasharray", dash.join(" "));
  return svg("svg", { viewBox: "0 0 30 12", class: "sample", "aria-hidden": "true" }, line);
}

/** Elements with what draws them anew when columns are switched. */
let onColumns = [];
const offColumns = new Set();

/** Calls `draw` when columns are switched, as long as `node` is on the page. */
function withColumns(node, draw) {
  onColumns.push([node, draw]);
}

function isOn(name) {
  return !offColumns.has(name);
}

function switchColumn(name) {
  if (!offColumns.delete(name)) offColumns.add(name);
  drawColumns();
  remember();
}

function drawColumns() {
  onColumns = onColumns.filter(([node]) => node.isConnected);
  onColumns.forEach(([, draw]) => draw());
}

/** Buttons that switch columns, in the order of the results. */
function columnLegend(names) {
  const known = DATA.columns.filter((name) => names.includes(name));
  const buttons = known.map((name) =>
    el("button", { type: "button", class: "column", onclick: () => switchColumn(name) }, sampleOf(name), name),
  );
  const show = () => buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(isOn(known[at]))));
  show();
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Columns that are drawn" }, buttons);
  withColumns(legend, show);
  return legend;
}
