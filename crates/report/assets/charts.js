"use strict";
// Charts as SVG: changes with their intervals, times by cause.

function swatches(names, hues) {
  return el(
    "div",
    { class: "legend" },
    names.map((name, at) => el("span", {}, el("span", { class: "swatch", style: `background:${hues[at]}` }), name)),
  );
}

/** The ends of an axis of changes: a sensible multiple of the changes themselves, however wide their intervals are. */
function spanOf(rows) {
  const sizes = rows.map((row) => Math.abs(row.change ?? 0)).sort((a, b) => a - b);
  const middle = sizes[Math.floor((sizes.length - 1) / 2)] ?? 0;
  const limit = 1.5 * Math.max(1, Math.min(sizes[sizes.length - 1] ?? 0, Math.max(8 * middle, 100)));
  // Nothing falls by more than all there was.
  const floor = rows.every((row) => row.old >= 0 && row.new >= 0) ? -100 : -Infinity;
  const ends = rows.flatMap((row) => [row.low ?? row.change ?? 0, row.high ?? row.change ?? 0]);
  return [Math.max(-limit, floor, Math.min(...ends, -1)), Math.min(limit, Math.max(...ends, 1))];
}

/** Whether the chart cuts an interval off. */
function isCut(rows) {
  const [least, most] = spanOf(rows);
  return rows.some((row) => row.low < least || row.high > most);
}

/** The change of each row in per cent, with its 95 % interval. */
function dots(rows, column) {
  const holder = el("div", { class: "chart", style: `min-height:${rows.length * 28 + 24}px` });
  const draw = redrawn(holder, (width) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    // Names stand beside the chart where they have room, else above their rows.
    const names = 14 + Math.max(...rows.map((row) => pen.measureText(row.name).width)),
      narrow = width < 620 || names > width * 0.4,
      left = narrow ? 12 : Math.max(names, Math.min(300, width * 0.3)),
      right = narrow ? 12 : Math.min(330, width * 0.3),
      line = narrow ? 54 : 28;
    const [least, most] = spanOf(rows);
    const pad = (most - least) * 0.04;
    const x = (value) => left + ((value - least + pad) / (most - least + 2 * pad)) * (width - left - right);
    const height = rows.length * line + 24;
    const root = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": "Changes of the most changed rows, in per cent, with intervals; the table below has the numbers",
    });
    root.append(svg("line", { x1: x(0), x2: x(0), y1: 2, y2: height - 20, class: "zero" }));
    for (const tick of ticks(least, most, narrow ? 4 : 7)) {
      root.append(
        svg("text", { x: x(tick), y: height - 6, "text-anchor": "middle", class: "quiet" }, tick === 0 ? "0 %" : percent(tick)),
      );
    }
    const style = `stroke:${hueOf(column)};fill:${hueOf(column)}`;
    // An arrow where something lies beyond the axis.
    const arrow = (at, y) => {
      const [tip, foot] = at < 0 ? [x(least) - 7, x(least) + 2] : [x(most) + 7, x(most) - 2];
      return svg("path", { d: `M${tip} ${y}L${foot} ${y - 5}L${foot} ${y + 5}Z`, style, class: "beyond" });
    };
    rows.forEach((row, at) => {
      const y = at * line + (narrow ? 42 : 15);
      const numbers = [
        svg("tspan", { "font-weight": 600 }, changeOf(row)),
        svg("tspan", { class: "quiet", dx: 8 }, `${short(row.old)} \u2192 ${short(row.new)} ${row.unit}, ${row.verdict}`),
      ];
      if (narrow) {
        root.append(svg("text", { x: 0, y: y - 27 }, row.name), svg("text", { x: 0, y: y - 11 }, numbers));
      } else {
        root.append(svg("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, row.name));
        root.append(svg("text", { x: width - right + 12, y: y + 4 }, numbers));
      }
      if (row.low != null) {
        const [low, high] = [Math.max(row.low, least), Math.min(row.high, most)];
        if (low < high) root.append(svg("line", { x1: x(low), x2: x(high), y1: y, y2: y, style, "stroke-width": 2 }));
        root.append(row.low < least ? arrow(-1, y) : svg("line", { x1: x(low), x2: x(low), y1: y - 4, y2: y + 4, style }));
        root.append(row.high > most ? arrow(1, y) : svg("line", { x1: x(high), x2: x(high), y1: y - 4, y2: y + 4, style }));
      }
      if (row.change == null) return;
      if (row.change < least || row.change > most) root.append(arrow(row.change, y));
      else root.append(svg("circle", { cx: x(row.change), cy: y, r: 4.5, style }));
    });
    holder.replaceChildren(root);
  });
  requestAnimationFrame(draw);
  return holder;
}

/** A change as text: from nought there is no percentage of it. */
function changeOf(row) {
  return row.change == null ? "new" : percent(row.change);
}

/** Round numbers between two, about so many. */
function ticks(least, most, count) {
  const rough = (most - least) / count,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((of) => of * power).find((of) => of >= rough);
  const all = [];
  for (let tick = Math.ceil(least / step) * step; tick <= most + step / 1e6; tick += step)
    all.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return all;
}

/** The line of a column through a path. */
function lineOf(name, path) {
  const line = svg("path", { d: path, fill: "none", "stroke-width": 1.8, style: `stroke:${hueOf(name)}` });
  const { dash } = strokeOf(name);
  if (dash.length) line.setAttribute("stroke-dasharray", dash.join(" "));
  return line;
}

const CAUSE_HUES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8a8f98"];

/** Times of some causes, a bar for each column; the smallest ones together. */
function stacks(title, set, causes) {
  const sum = (at) => causes.reduce((all, row) => all + (row.values[at] ?? 0), 0);
  const most = Math.max(...set.columns.map((_, at) => sum(at)));
  const rest = causes.slice(7);
  const others = {
    name: `${rest.length} others`,
    values: set.columns.map((_, at) => rest.reduce((all, row) => all + (row.values[at] ?? 0), 0)),
  };
  const parts = rest.length > 1 ? [...causes.slice(0, 7), others] : causes;
  const holder = el("div", { class: "chart" });
  const draw = redrawn(holder, (width) => {
    const line = 40,
      shown = set.columns.filter(isOn);
    const root = svg("svg", { viewBox: `0 0 ${width} ${shown.length * line}`, role: "img", "aria-label": title });
    shown.forEach((name, place) => {
      const column = set.columns.indexOf(name),
        y = place * line;
      let x = 0;
      root.append(lineOf(name, `M0 ${y + 8}L30 ${y + 8}`));
      root.append(svg("text", { x: 36, y: y + 12 }, `${name}: ${grouped(sum(column))} ms`));
      parts.forEach((part, at) => {
        const wide = most > 0 ? ((part.values[column] ?? 0) / most) * width : 0;
        const bar = svg("rect", { x, y: y + 17, width: Math.max(0, wide - 0.5), height: 15, fill: CAUSE_HUES[at] });
        bar.append(svg("title", {}, `${part.name}: ${grouped(part.values[column])} ms`));
        root.append(bar);
        x += wide;
      });
    });
    holder.replaceChildren(root);
  });
  requestAnimationFrame(draw);
  withColumns(holder, draw);
  const names = parts.map((part) => part.name);
  return el("figure", {}, el("figcaption", {}, title), swatches(names, CAUSE_HUES), holder);
}

/** The difference of two columns by cause, the largest first. */
function differences(set, old, now) {
  const [a, b] = [old, now].map((name) => set.columns.indexOf(name));
  const rows = set.rows
    .map((row) => ({ name: row.name, old: row.values[a] ?? 0, new: row.values[b] ?? 0 }))
    .map((row) => ({ ...row, by: row.new - row.old }))
    .filter((row) => row.by !== 0)
    .sort((x, y) => Math.abs(y.by) - Math.abs(x.by))
    .slice(0, 12);
  const holder = el("div", { class: "chart" });
  const draw = redrawn(holder, (width) => {
    const narrow = width < 620,
      line = narrow ? 40 : 24,
      [left, right] = narrow ? [4, 4] : [170, 280];
    const most = Math.max(1e-9, ...rows.map((row) => Math.abs(row.by)));
    const middle = left + (width - left - right) / 2;
    const wide = (by) => (Math.abs(by) / most) * ((width - left - right) / 2);
    const height = rows.length * line + 4;
    const label = `Difference of ${now} and ${old} by cause`;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    root.append(svg("line", { x1: middle, x2: middle, y1: 0, y2: height, class: "zero" }));
    rows.forEach((row, at) => {
      const y = at * line + (narrow ? 20 : 4);
      const style = `fill:${hueOf(row.by > 0 ? now : old)}`;
      const text = `${grouped(row.old)} \u2192 ${grouped(row.new)} ms`;
      const by = svg("tspan", { class: "quiet", dx: 8 }, `${row.by > 0 ? "+" : ""}${grouped(row.by)}`);
      root.append(svg("rect", { x: row.by > 0 ? middle : middle - wide(row.by), y, width: wide(row.by), height: 15, style }));
      if (narrow) {
        root.append(svg("text", { x: 0, y: y - 5 }, `${row.name}: ${text}`, by));
      } else {
        root.append(svg("text", { x: left - 10, y: y + 12, "text-anchor": "end" }, row.name));
        root.append(svg("text", { x: width - right + 12, y: y + 12 }, text, by));
      }
    });
    holder.replaceChildren(root);
  });
  requestAnimationFrame(draw);
  return el("figure", {}, el("figcaption", {}, `${now} less ${old}, the largest difference first`), holder);
}
