"use strict";
// Lines by uPlot: charts over time, which share cursor, zoom and instant, and distributions.

const LEFT = 52;
const RIGHT = 16;

/** The last instant of all runs on the page. */
function endOfTime() {
  return Math.max(1, ...DATA.kernels.map((kernel) => kernel.at_us?.[kernel.at_us.length - 1] ?? 0));
}

/** The stretch of time that charts show. */
function shownTime() {
  return state.zoom ?? [0, endOfTime()];
}

function axisStyle() {
  return {
    stroke: css("--quiet"),
    grid: { stroke: css("--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, 'DejaVu Sans', sans-serif",
  };
}

/** A line of values by column; `write` fills it. */
function readout(names) {
  const head = el("span", { class: "when" });
  const cells = names.map((name) => {
    const text = el("b", {});
    return { name, text, cell: el("span", { title: name }, sampleOf(name), text) };
  });
  const line = el(
    "div",
    { class: "values" },
    head,
    cells.map(({ cell }) => cell),
  );
  const write = (title, valueOf) => {
    head.textContent = title;
    for (const { name, text, cell } of cells) {
      text.textContent = valueOf(name);
      cell.hidden = !isOn(name) || text.textContent === "";
    }
  };
  return { line, write };
}

/** Charts over time that are drawn. */
const timeCharts = new Set();
/** Called with the instant under the cursor of a chart, and with nothing when the cursor has left. */
let onPreview = () => {};

/** The index of the last instant that is not after `us`; 0 where all are. */
function sampleAt(times, us) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (times[middle] <= us) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Lines over time, one for each kernel that has values. */
class TimeChart {
  constructor(title, kernels, valuesOf, height = 170) {
    this.lines = kernels.map((kernel) => ({ kernel, values: valuesOf(kernel) })).filter(({ values }) => values);
    this.height = height;
    this.holder = el("div", { class: "chart", style: `min-height:${height}px` });
    this.readout = readout(this.lines.map(({ kernel }) => kernel.name));
    this.caption = el("figcaption", {}, title);
    this.figure = el("figure", {}, this.caption, this.holder, this.readout.line);
    this.data = uPlot.join(this.lines.map(({ kernel, values }) => [kernel.at_us, values]));
    this.draw = redrawn(this.holder, (width) => this.lay(width));
    withColumns(this.holder, this.draw);
    whenNear(this.holder, this.draw);
  }

  lay(width) {
    if (!this.holder.isNear) return;
    this.plot?.destroy();
    this.pin = el("div", { class: "pin", hidden: "" });
    const [unit, of] = unitOfTime(endOfTime());
    const style = axisStyle();
    const series = this.lines.map(({ kernel }) => ({
      label: kernel.name,
      stroke: inkOf(kernel.name),
      dash: strokeOf(kernel.name).dash,
      show: isOn(kernel.name),
      width: 1.5,
      points: { show: false },
      spanGaps: true,
    }));
    const count = Math.max(2, Math.floor((width - LEFT) / 80));
    this.plot = new uPlot(
      {
        width,
        height: this.height,
        padding: [8, RIGHT, 0, 0],
        legend: { show: false },
        scales: { x: { time: false, range: () => shownTime() } },
        axes: [
          {
            ...style,
            size: 24,
            splits: (_, __, least, most) => ticks(least / of, most / of, count).map((tick) => tick * of),
            values: (_, splits) => splits.map((split) => `${+(split / of).toPrecision(6)} ${unit}`),
          },
          { ...style, size: LEFT, values: (_, splits) => splits.map(short) },
        ],
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false, dist: 5 },
          sync: { key: "time", scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
          bind: { dblclick: () => null },
          dataIdx: (plot, number, at) => this.known(plot, number, at),
        },
        series: [{}, ...series],
        hooks: {
          setCursor: [(plot) => this.say(plot)],
          setSelect: [(plot) => this.select(plot)],
          setScale: [(plot, key) => key === "x" && this.place(plot)],
          ready: [(plot) => this.listen(plot)],
        },
      },
      this.data,
      this.holder,
    );
    timeCharts.add(this);
    this.write(state.at);
  }

  /** The last sample of a line at or before one of the joined instants; the instant itself where the line ends before. */
  known(plot, number, at) {
    if (number === 0) return at;
    const values = plot.data[number],
      { at_us } = this.lines[number - 1].kernel;
    if (plot.data[0][at] > at_us[at_us.length - 1]) return null;
    while (at > 0 && values[at] == null) at -= 1;
    return at;
  }

  /** Writes the values under the cursor, or else those at the instant. */
  say(plot) {
    const { idx } = plot.cursor;
    const isOver = idx != null && plot.cursor.left >= 0;
    const at = isOver ? plot.data[0][idx] : state.at;
    if (plot.cursor.event) onPreview(isOver ? at : null);
    this.write(at);
  }

  write(us) {
    if (us == null) {
      this.readout.write("", () => "");
      return;
    }
    this.readout.write(instant(us), (name) => {
      const { kernel, values } = this.lines.find((line) => line.kernel.name === name);
      const { at_us } = kernel;
      return us > at_us[at_us.length - 1] ? "ended" : short(values[sampleAt(at_us, us)]);
    });
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const ends = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    change({ zoom: ends.map((us) => Math.max(0, Math.min(endOfTime(), us))) });
  }

  listen(plot) {
    plot.over.append(this.pin);
    this.place(plot);
    let down = 0,
      before = null;
    plot.over.addEventListener("pointerdown", (event) => (down = event.clientX));
    plot.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - down) >= 5 || plot.cursor.idx == null) return;
      if (event.detail === 1) before = state.at;
      change({ at: plot.data[0][plot.cursor.idx] });
    });
    // The clicks that a double click begins with choose no instant.
    plot.over.addEventListener("dblclick", () => change({ zoom: null, at: before }));
  }

  /** Moves the line of the instant. */
  place(plot) {
    const [least, most] = shownTime();
    this.pin.hidden = state.at == null || state.at < least || state.at > most;
    if (!this.pin.hidden) this.pin.style.left = `${plot.valToPos(state.at, "x")}px`;
  }

  /** Shows the instant and the stretch of time of the state. */
  mark(some) {
    const { plot } = this;
    if (!plot) return;
    if ("zoom" in some) plot.setScale("x", { min: shownTime()[0], max: shownTime()[1] });
    this.place(plot);
    if (!(plot.cursor.left >= 0)) this.write(state.at);
  }
}

onState((some) => {
  if (!("at" in some || "zoom" in some)) return;
  for (const chart of timeCharts) {
    if (chart.holder.isConnected) chart.mark(some);
    else timeCharts.delete(chart);
  }
});

/** A share as a height: 90 %, 99 % and 99.9 % are equally far from each other. */
function nines(share) {
  return -Math.log10(Math.max(1 - share, 1e-9));
}

/** Cumulated shares of samples, with the median, p99 and p99.9 of each column. */
function distribution(set) {
  const holder = el("div", { class: "chart", style: "min-height:260px" });
  const values = set.curves.flatMap((curve) => curve.points.map(([value]) => value));
  const positive = values.filter((value) => value > 0);
  const [floor, most] = [Math.min(...positive), Math.max(...values)];
  const isLog = positive.length > 0 && most / floor > 20;
  const least = isLog ? floor : Math.min(...values);
  const x = (value) => (isLog ? Math.max(value, floor) : value);
  // The largest of so many samples is half a sample short of all.
  const height = (curve, share) => nines(Math.min(share, 1 - 1 / (2 * curve.count)));
  const lines = set.curves.map((curve) => {
    const points = new Map(curve.points.map(([value, share]) => [x(value), height(curve, share)]));
    return [[...points.keys()], [...points.values()]];
  });
  const data = uPlot.join(lines);
  const out = readout(set.curves.map((curve) => curve.kernel));
  const atMost = (curve, value) => {
    const point = curve.points.findLast(([of]) => of <= value);
    return point ? `${+(point[1] * 100).toFixed(point[1] > 0.99 ? 3 : 1)} %` : "0 %";
  };
  let plot = null;
  const draw = redrawn(holder, (width) => {
    plot?.destroy();
    const style = axisStyle();
    const series = set.curves.map((curve) => ({
      label: curve.kernel,
      stroke: inkOf(curve.kernel),
      dash: strokeOf(curve.kernel).dash,
      show: isOn(curve.kernel),
      width: 1.6,
      points: { show: false },
      spanGaps: true,
    }));
    const top = Math.max(2, ...lines.map(([, shares]) => shares[shares.length - 1] ?? 0));
    const shares = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999].filter((share) => nines(share) <= top);
    plot = new uPlot(
      {
        width,
        height: 260,
        padding: [8, 24, 0, 0],
        legend: { show: false },
        scales: {
          x: { time: false, distr: isLog ? 3 : 1, range: (_, from, to) => (to > from ? [from, to] : [from - 1, from + 1]) },
          y: { range: () => [0, top * 1.03] },
        },
        axes: [
          {
            ...style,
            size: 40,
            label: set.unit,
            labelSize: 16,
            labelFont: style.font,
            splits: (_, __, from, to) => ticksOf(from, to, Math.max(3, Math.floor(width / 90)), isLog),
            filter: (_, splits) => splits,
            values: (_, splits) => apart(splits),
          },
          {
            ...style,
            size: LEFT,
            splits: () => shares.map(nines),
            values: () => shares.map((share) => `${+(share * 100).toFixed(3)} %`),
          },
        ],
        cursor: { y: false, drag: { x: true, y: false, dist: 5 } },
        series: [{}, ...series],
        hooks: {
          setCursor: [
            (made) => {
              const value = made.cursor.left >= 0 ? made.posToVal(made.cursor.left, "x") : null;
              const text = (name) =>
                atMost(
                  set.curves.find((curve) => curve.kernel === name),
                  value,
                );
              if (value == null) out.write("", () => "");
              else out.write(`at most ${short(value)} ${set.unit}`, text);
            },
          ],
          draw: [(made) => marks(made, set, x)],
        },
      },
      data,
      holder,
    );
  });
  requestAnimationFrame(draw);
  withColumns(holder, draw);
  const rows = set.curves.map((curve) => [
    el("span", { class: "named" }, sampleOf(curve.kernel), curve.kernel),
    String(curve.count),
    ...curve.marks.map((mark) => (mark == null ? "too few" : short(mark))),
    short(curve.points[curve.points.length - 1][0]),
  ]);
  return el("div", {}, holder, out.line, table([set.unit, "samples", "p50", "p99", "p99.9", "longest"], rows));
}

/** Dots on the curves at the median, p99 and p99.9. */
function marks(plot, set, x) {
  const { ctx } = plot,
    ratio = devicePixelRatio || 1;
  for (const curve of set.curves.filter(({ kernel }) => isOn(kernel))) {
    ctx.fillStyle = inkOf(curve.kernel);
    curve.marks.forEach((value, at) => {
      const { min, max } = plot.scales.x;
      if (value == null || x(value) < min || x(value) > max) return;
      ctx.beginPath();
      ctx.arc(plot.valToPos(x(value), "x", true), plot.valToPos(nines([0.5, 0.99, 0.999][at]), "y", true), 4 * ratio, 0, 7);
      ctx.fill();
    });
  }
}

/** At least two round numbers of an axis: 1, 2 and 5 times powers of ten over decades, else evenly spaced. */
function ticksOf(least, most, count, isLog) {
  const decades = isLog ? Math.log10(most / least) : 0;
  if (decades < 1) return ticks(least, most, count);
  const of = decades * 3 <= count ? [1, 2, 5] : [1];
  const all = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); power += 1) {
    for (const part of of) {
      const tick = part * 10 ** power;
      if (tick >= least && tick <= most) all.push(tick);
    }
  }
  return all;
}
