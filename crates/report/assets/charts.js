"use strict";
// Charts: dots with whiskers, the scrubber, distributions and stacks as SVG; lines over time by uPlot.

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
  const limit = 1.5 * Math.max(1, Math.min(sizes[sizes.length - 1] ?? 0, Math.max(8 * middle, 5)));
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
    const narrow = width < 620,
      left = narrow ? 12 : Math.min(300, width * 0.3),
      right = narrow ? 12 : Math.min(330, width * 0.3),
      line = narrow ? 46 : 28;
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
      const y = at * line + (narrow ? 33 : 15);
      const numbers = [
        svg("tspan", { "font-weight": 600 }, changeOf(row)),
        svg("tspan", { class: "quiet", dx: 8 }, `${short(row.old)} \u2192 ${short(row.new)} ${row.unit}, ${row.verdict}`),
      ];
      if (narrow) {
        root.append(svg("text", { x: 0, y: y - 20 }, row.name), svg("text", { x: 0, y: y - 7 }, numbers));
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

/** The chart whose place in time is that of the maps: unusable free memory of each kernel, and when its longest stalls were. */
class Scrubber {
  constructor(kernels, end, seek) {
    this.kernels = kernels;
    this.end = end;
    this.seek = seek;
    this.at = 0;
    this.holder = el("div", { class: "chart scrub" });
    this.draw = redrawn(this.holder, (width) => this.lay(width));
    withColumns(this.holder, this.draw);
    const from = (event) => {
      const box = this.holder.getBoundingClientRect();
      this.seek(Math.max(0, Math.min(1, (event.clientX - box.left - this.left) / (box.width - this.left - 8))) * this.end);
    };
    this.holder.addEventListener("pointerdown", (event) => {
      this.holder.setPointerCapture(event.pointerId);
      from(event);
    });
    this.holder.addEventListener("pointermove", (event) => this.holder.hasPointerCapture(event.pointerId) && from(event));
  }

  lay(width) {
    const [left, height, top] = [56, 104, 8],
      bottom = height - 18;
    this.left = left;
    const x = (us) => left + (us / this.end) * (width - left - 8);
    const y = (share) => bottom - (share / 1000) * (bottom - top - 8);
    const root = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": "Unusable free index of a pageblock over time",
    });
    for (const share of [0, 500, 1000]) {
      root.append(svg("line", { x1: left, x2: width - 8, y1: y(share), y2: y(share), class: "axis" }));
      root.append(svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end", class: "quiet" }, (share / 1000).toFixed(1)));
    }
    const [unit, of] = unitOfTime(this.end);
    for (const tick of ticks(0, this.end / of, width < 500 ? 4 : 8)) {
      root.append(
        svg(
          "text",
          { x: x(tick * of), y: height - 3, "text-anchor": "middle", class: "quiet" },
          `${+tick.toPrecision(4)} ${unit}`,
        ),
      );
    }
    this.kernels.forEach(({ name, at_us, unusable, stalls }, number) => {
      if (!isOn(name)) return;
      if (unusable) {
        const path = at_us.map((us, at) => `${at ? "L" : "M"}${x(us).toFixed(1)} ${y(unusable[at]).toFixed(1)}`).join("");
        root.append(lineOf(name, path));
      }
      for (const us of stalls ?? []) {
        root.append(
          svg("line", {
            x1: x(us),
            x2: x(us),
            y1: top - 6 + number * 5,
            y2: top - 2 + number * 5,
            style: `stroke:${hueOf(name)}`,
          }),
        );
      }
    });
    this.mark = svg("line", { y1: top - 6, y2: bottom, stroke: "currentColor", "stroke-width": 1.5 });
    root.append(this.mark);
    this.x = x;
    this.holder.replaceChildren(root);
    this.show(this.at);
  }

  show(us) {
    this.at = us;
    if (!this.mark) return;
    this.mark.setAttribute("x1", this.x(us));
    this.mark.setAttribute("x2", this.x(us));
  }
}

/** The line of a column through a path. */
function lineOf(name, path) {
  const line = svg("path", { d: path, fill: "none", "stroke-width": 1.8, style: `stroke:${hueOf(name)}` });
  const { dash } = strokeOf(name);
  if (dash.length) line.setAttribute("stroke-dasharray", dash.join(" "));
  return line;
}

/** Cumulated shares of samples, over a logarithmic axis. */
function ecdf(set) {
  const holder = el("div", { class: "chart" });
  const draw = redrawn(holder, (width) => {
    const [left, right, top, height] = [44, 14, 8, 240],
      bottom = height - 22;
    const positive = set.curves.flatMap((curve) => curve.points.map(([value]) => value)).filter((value) => value > 0);
    const [least, most] = [Math.min(...positive), Math.max(...positive)].map(Math.log10);
    const span = Math.max(most - least, 0.01);
    const x = (value) => left + ((Math.log10(Math.max(value, 10 ** least)) - least) / span) * (width - left - right);
    const y = (share) => bottom - share * (bottom - top);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Distribution of ${set.title}` });
    for (const share of [0, 0.5, 0.9, 0.99, 1]) {
      root.append(svg("line", { x1: left, x2: width - right, y1: y(share), y2: y(share), class: "axis" }));
      if (share !== 0.99)
        root.append(svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end", class: "quiet" }, `${share * 100} %`));
    }
    let last = -100;
    for (let power = Math.floor(least); power <= Math.ceil(most); power += 1) {
      for (const of of [1, 2, 5]) {
        const value = of * 10 ** power;
        if (Math.log10(value) < least || Math.log10(value) > most || x(value) - last < 56) continue;
        last = x(value);
        root.append(svg("line", { x1: last, x2: last, y1: top, y2: bottom, class: "axis" }));
        root.append(svg("text", { x: last, y: height - 5, "text-anchor": "middle", class: "quiet" }, `${short(value)}`));
      }
    }
    set.curves
      .filter((curve) => isOn(curve.kernel))
      .forEach((curve) => {
        const path = curve.points
          .map(([value, share], step) => `${step ? "L" : "M"}${x(value).toFixed(1)} ${y(share).toFixed(1)}`)
          .join("");
        root.append(lineOf(curve.kernel, path));
      });
    holder.replaceChildren(root);
  });
  requestAnimationFrame(draw);
  withColumns(holder, draw);
  const value = (curve, share) =>
    short((curve.points.find((point) => point[1] >= share) ?? curve.points[curve.points.length - 1])[0]);
  const rows = set.curves.map((curve) => [
    curve.kernel,
    String(curve.count),
    ...[0.5, 0.9, 0.99, 1].map((share) => value(curve, share)),
  ]);
  return el("div", {}, holder, table([set.unit, "samples", "half", "90 %", "99 %", "longest"], rows));
}

/** Times by cause, a bar for each column. */
function stacks(set) {
  const hues = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8a8f98"];
  const sum = (at) => set.rows.reduce((all, row) => all + (row.values[at] ?? 0), 0);
  const most = Math.max(...set.columns.map((_, at) => sum(at)));
  const top = set.rows.slice(0, 7),
    rest = set.rows.slice(7);
  const parts = rest.length
    ? [
        ...top,
        {
          name: `${rest.length} others`,
          values: set.columns.map((_, at) => rest.reduce((all, row) => all + (row.values[at] ?? 0), 0)),
        },
      ]
    : top;
  const holder = el("div", { class: "chart" });
  const draw = redrawn(holder, (width) => {
    const line = 40,
      shown = set.columns.filter(isOn),
      root = svg("svg", { viewBox: `0 0 ${width} ${shown.length * line}`, role: "img", "aria-label": "Time by cause" });
    shown.forEach((name, place) => {
      const column = set.columns.indexOf(name),
        y = place * line;
      let x = 0;
      root.append(
        lineOf(name, `M0 ${y + 8}L30 ${y + 8}`),
        svg("text", { x: 36, y: y + 12 }, `${name}: ${short(sum(column))} ms`),
      );
      parts.forEach((part, at) => {
        const wide = most > 0 ? ((part.values[column] ?? 0) / most) * width : 0;
        const bar = svg("rect", { x, y: y + 17, width: Math.max(0, wide - 0.5), height: 15, fill: hues[at] });
        bar.append(svg("title", {}, `${part.name}: ${short(part.values[column])} ms`));
        root.append(bar);
        x += wide;
      });
    });
    holder.replaceChildren(root);
  });
  requestAnimationFrame(draw);
  withColumns(holder, draw);
  const rows = set.rows.map((row) => [row.name, ...row.values.map(short)]);
  return el(
    "div",
    {},
    swatches(
      parts.map((part) => part.name),
      hues,
    ),
    holder,
    el("details", {}, el("summary", {}, "Numbers"), table(["ms", ...set.columns], rows)),
  );
}

/** Lines over time, one for each kernel that has the column. */
function overTime(title, kernels, valuesOf, seek) {
  const holder = el("div", { class: "chart" });
  const lines = kernels.map((kernel) => ({ kernel, values: valuesOf(kernel) })).filter(({ values }) => values);
  const [unit, of] = unitOfTime(Math.max(0, ...lines.map(({ kernel }) => kernel.at_us[kernel.at_us.length - 1] ?? 0)));
  const data = uPlot.join(lines.map(({ kernel, values }) => [kernel.at_us.map((us) => us / of), values]));
  let plot = null;
  const draw = redrawn(holder, (width) => {
    plot?.destroy();
    const axis = {
      stroke: css("--quiet"),
      grid: { stroke: css("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, 'DejaVu Sans', sans-serif",
    };
    const series = lines.map(({ kernel }) => ({
      label: kernel.name,
      stroke: inkOf(kernel.name),
      dash: strokeOf(kernel.name).dash,
      show: isOn(kernel.name),
      width: 1.5,
      points: { show: false },
      spanGaps: true,
    }));
    plot = new uPlot(
      {
        width,
        height: 170,
        legend: { show: false },
        scales: { x: { time: false } },
        axes: [
          { ...axis, size: 24, values: (_, splits) => splits.map((split) => `${+split.toPrecision(4)} ${unit}`) },
          { ...axis, size: 52, values: (_, splits) => splits.map(short) },
        ],
        cursor: { drag: { x: false, y: false } },
        series: [{}, ...series],
        hooks: {
          ready: [(made) => made.over.addEventListener("click", () => seek?.(made.posToVal(made.cursor.left, "x") * of))],
        },
      },
      data,
      holder,
    );
  });
  requestAnimationFrame(draw);
  withColumns(holder, draw);
  return el("figure", {}, el("figcaption", {}, title), holder);
}
