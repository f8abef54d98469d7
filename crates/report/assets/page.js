"use strict";
// The page from its data, section by section.

const page = document.getElementById("page");

/** A part of the page; its heading is a link to it as it stands. */
function section(title, id, ...children) {
  const link = el("a", { href: `#part=${id}`, class: "here", "aria-label": `Link to ${title} as it stands` }, "#");
  link.addEventListener("click", (event) => {
    event.preventDefault();
    change({ part: id });
    history.replaceState(null, "", address());
  });
  const node = el("section", { id }, el("h2", {}, title, " ", link), ...children);
  // A link names the part that was used last.
  for (const kind of ["click", "input", "change"]) node.addEventListener(kind, () => (state.part = id), true);
  return node;
}

/** A list of names of which the state keeps the chosen one, and what is shown of it. */
function chooser(label, key, options, show) {
  const known = (value) => (options.some(([name]) => name === value) ? value : options[0][0]);
  const list = select(label, options, known(state[key]), (value) => change({ [key]: value }));
  onState((some) => {
    if (!(key in some)) return;
    list.querySelector("select").value = known(state[key]);
    show(known(state[key]));
  });
  show(known(state[key]));
  return list;
}

/** The series of a kernel, from rows of differences: values by name, and the instants. */
function unfold(kernel) {
  const series = kernel.series;
  if (!series) return;
  const now = new Array(series.columns.length + 1).fill(0);
  const columns = series.columns.map(() => []);
  kernel.at_us = series.rows.map((row) => {
    row.forEach((moved, place) => (now[place] += moved));
    columns.forEach((values, place) => values.push(now[place + 1]));
    return now[0];
  });
  const moving = new Map(series.columns.map((name, place) => [name, columns[place]]));
  kernel.names = [...series.columns, ...Object.keys(series.still)].sort();
  kernel.values = (name) => moving.get(name) ?? (name in series.still ? kernel.at_us.map(() => series.still[name]) : undefined);
  kernel.sum = (fits) => {
    const found = kernel.names.filter(fits).map(kernel.values);
    return found.length ? kernel.at_us.map((_, place) => found.reduce((all, values) => all + values[place], 0)) : undefined;
  };
}

/** What stands behind the values of a pair of columns, and whether their changes have intervals. */
function spread([old, now]) {
  if (old === 1 && now === 1) return "one run of each, so there are no intervals: nothing says how much of a change is luck";
  const lone = old === 1 || now === 1;
  const intervals = lone ? "and no intervals, as one run has none" : "95 % intervals of their difference";
  return `means of ${old} and ${now} runs, ${intervals}`;
}

function verdict() {
  const all = allPairs(),
    holder = el("div");
  const show = (name) => {
    const pair = all.find((one) => nameOfPair(one) === name);
    if (!pair) {
      holder.replaceChildren(el("p", { class: "verdict" }, DATA.verdict));
      return;
    }
    const parts = [
      el("p", {}, pair.which),
      el("p", { class: "verdict" }, pair.verdict),
      el("p", {}, pair.largest),
      el("div", { class: "legend" }, named(pair.old), "\u2192", named(pair.new)),
    ];
    if (pair.rows.length) {
      const rows = pair.rows.map((row) => ({
        id: row.id,
        cells: [
          row.name,
          short(row.old),
          short(row.new),
          row.unit,
          changeOf(row),
          row.low == null ? "-" : `${percent(row.low)} to ${percent(row.high)}`,
          row.verdict,
        ],
      }));
      const numbers = table(["row", pair.old, pair.new, "unit", "change", "95 % interval", "verdict"], rows);
      parts.push(dots(pair.rows, pair.new), el("details", {}, el("summary", {}, "Numbers"), numbers));
      const cut = isCut(pair.rows) ? "; an arrow says that an interval goes on beyond the chart" : "";
      const few = cut && Math.min(...pair.runs) < 5 ? " (too few seeds: eight make intervals much narrower)" : "";
      const about = `Rows with the largest changes, of those for which a direction is better; ${spread(pair.runs)}${cut}${few}. `;
      parts.push(el("p", { class: "quiet" }, about, "All rows: ", el("code", {}, DATA.compare)));
    }
    holder.replaceChildren(...parts);
  };
  const pairs = all.map((pair) => [nameOfPair(pair), nameOfPair(pair)]);
  if (pairs.length < 2) {
    show(pairs[0]?.[0]);
    return el("section", { id: "verdict" }, holder);
  }
  return el("section", { id: "verdict" }, el("div", { class: "bar" }, chooser("Compared", "pair", pairs, show)), holder);
}

/** All pairs of columns, each once: those with a baseline first, then steps from column to column. */
function allPairs() {
  const known = new Set(DATA.pairs.map(nameOfPair));
  return [...DATA.pairs, ...DATA.steps.filter((pair) => !known.has(nameOfPair(pair)))];
}

const nameOfPair = (pair) => `${pair.old} \u2192 ${pair.new}`;

/** A column's name with a piece of its line. */
function named(name) {
  return el("span", { class: "named" }, sampleOf(name), name);
}

/** Maps side by side, at the instant of the timeline. */
class Maps {
  constructor(kernels) {
    this.kernels = kernels;
    this.maps = new Map();
    this.zone = "";
    this.times = [...new Set(kernels.flatMap((kernel) => kernel.map.at_us))].sort((a, b) => a - b);
    this.end = this.times[this.times.length - 1] || 1;
    this.holder = el("div", {});
    this.census = el("div", {});
    this.time = el("span", { class: "time" });
    this.playing = el("button", { type: "button", onclick: () => this.play() }, "Play");
    this.choose();
  }

  /** The kernels whose maps are shown: those of the state, else the first two. */
  choose() {
    const of = (name, place) => this.kernels.find((kernel) => kernel.name === name) ?? this.kernels[place];
    this.shown = [of(state.left, 0), of(state.right, 1)].filter(Boolean);
  }

  section(timeline) {
    this.timeline = timeline;
    const step = (by) => () => timeline.step(by);
    const bar = el(
      "div",
      { class: "bar" },
      this.playing,
      el("button", { type: "button", onclick: step(-1), "aria-label": "One sample back" }, "\u25c2"),
      el("button", { type: "button", onclick: step(1), "aria-label": "One sample on" }, "\u25b8"),
      this.time,
    );
    const names = this.kernels.map((kernel) => [kernel.name, kernel.name]);
    for (const side of [0, 1].slice(0, this.kernels.length > 2 ? 2 : 0)) {
      const key = side ? "right" : "left";
      const list = select(side ? "Right" : "Left", names, this.shown[side].name, (name) => change({ [key]: name }));
      onState((some) => key in some && (list.querySelector("select").value = this.shown[side].name));
      bar.append(list);
    }
    const zones = [
      ...new Map(this.kernels.flatMap((kernel) => kernel.map.bands.map((band) => [band.zone, band.title]))).entries(),
    ];
    if (zones.length > 1) bar.append(chooser("Zone", "zone", [["", "all"], ...zones], (zone) => this.narrow(zone)));
    const near = el("button", { type: "button", onclick: () => this.closer() }, "Closer");
    near.title = "A quarter of the pageblocks, around the cursor of the map";
    bar.append(near, el("button", { type: "button", onclick: () => change({ blocks: null }) }, "All blocks"));
    const hatch = el("input", { type: "checkbox", onchange: () => this.hatched(hatch.checked) });
    bar.append(el("label", { class: "quiet" }, hatch, "hatched"));
    addEventListener("beforeprint", () => this.hatched(true));
    addEventListener("afterprint", () => this.hatched(hatch.checked));
    onState((some) => this.hear(some));
    const about =
      "The chart is the unusable free index of a pageblock (the kernel's extfrag/unusable_index), of all zones together: " +
      "the share of free memory in blocks too small for one. Click it, or use the slider, for the instant of the maps; " +
      "draw over it to zoom all charts, double-click to see all again. Marks above it are the longest stalls: they open. " +
      "Click a pageblock for what happened to it; draw from one to another for the stretch between them, double-click for all.";
    return section(
      "Physical memory",
      "map",
      el("p", { class: "quiet" }, about),
      columnLegend(DATA.kernels.map((kernel) => kernel.name)),
      bar,
      timeline.parts(),
      this.holder,
      this.legend(),
      this.census,
    );
  }

  narrow(zone) {
    this.zone = zone;
    this.all((map) => map.draw());
    this.count();
  }

  /** Shows a quarter of the pageblocks that are shown, around the cursor. */
  closer() {
    const map = this.maps.get(this.shown.find((kernel) => this.maps.get(kernel)?.cursor != null) ?? this.shown[0]);
    const places = Object.values(map.places);
    const at = map.places[map.cursor]?.[3] ?? places[Math.floor(places.length / 2)][3];
    const count = places.length * map.map.group;
    const half = Math.max(4, Math.floor(count / 8));
    change({ blocks: [Math.max(0, at - half), at + half] });
  }

  hear(some) {
    if ("blocks" in some) this.all((map) => map.draw());
    if ("block" in some || "blocks" in some) this.all((map) => map.tell());
    if ("left" in some || "right" in some) {
      this.choose();
      this.lay();
    } else if ("at" in some && state.at != null) this.seek(state.at);
  }

  legend() {
    const types = this.kernels[0].map.types,
      there = new Set();
    for (const kernel of this.kernels) for (const kind of kernel.map.seen) there.add(kind);
    const items = [...there]
      .sort()
      .map((kind) => el("span", {}, el("span", { class: "swatch", style: `background:${HUES[kind]}` }), types[kind]));
    return el(
      "div",
      { class: "legend" },
      items,
      glyphs().map(([mark, word]) => el("span", { class: "quiet" }, mark, word)),
    );
  }

  hatched(isHatched) {
    this.all((map) => {
      map.hatch = isHatched;
      map.paint();
    });
  }

  all(act) {
    for (const kernel of this.shown) {
      const map = this.maps.get(kernel);
      if (!map?.bytes) continue;
      map.zone = this.zone;
      act(map);
    }
  }

  async lay() {
    for (const kernel of this.shown) {
      if (!this.maps.has(kernel)) this.maps.set(kernel, new MemoryMap(kernel));
    }
    const maps = [...new Set(this.shown)].map((kernel) => this.maps.get(kernel));
    this.holder.className = maps.length > 1 ? "two" : "one";
    this.holder.replaceChildren(...maps.map((map) => map.figure));
    for (const map of maps) if (!map.bytes) await map.load();
    this.all((map) => map.draw());
    if (state.at == null) change({ at: this.mostUnlike() });
    else this.seek(state.at);
  }

  /** The instant at which the lines of the two kernels are farthest apart, or else their maps; the first where they never are. */
  mostUnlike() {
    const [one, other] = this.shown;
    if (!other) return this.times[0];
    const ends = [one, other].map((kernel) => kernel.map.at_us[kernel.map.at_us.length - 1]);
    const both = this.times.filter((us) => us <= Math.min(...ends));
    const most = (apart) => {
      const found = both.map((us) => [apart(us), us]).reduce((all, next) => (next[0] > all[0] ? next : all), [0, null]);
      return found[1];
    };
    const lines = (us) => {
      const [a, b] = [one, other].map((kernel) => kernel.unusable?.[sampleAt(kernel.at_us, us)] ?? 0);
      return Math.abs(a - b);
    };
    const [left, right] = [one, other].map((kernel) => this.maps.get(kernel));
    const cells = (us) => {
      if (left.length !== right.length) return 0;
      const [a, b] = [left, right].map((map) => map.length * sampleAt(map.map.at_us, us));
      let unlike = 0;
      for (let at = 0; at < left.length; at += 1) unlike += left.bytes[a + at] !== right.bytes[b + at] ? 1 : 0;
      return unlike;
    };
    return most(lines) ?? most(cells) ?? this.times[0];
  }

  /** Shows an instant: that of the state, or another one while the cursor is on a chart. */
  seek(us, isPreview = false) {
    const at = sampleAt(this.times, us);
    this.now = this.times[at];
    this.time.textContent = `${instant(this.now)} of ${instant(this.end)}`;
    this.all((map) => {
      if (map.bytes) map.show(sampleAt(map.map.at_us, this.now));
    });
    // The table of pageblocks waits for the cursor to leave: it takes longer than both maps.
    if (!isPreview) this.count();
  }

  /** Follows the cursor of a chart, as long as the maps can be seen. */
  preview(us) {
    if (this.asked == null) {
      requestAnimationFrame(() => {
        const wanted = this.asked.us ?? state.at,
          isPreview = this.asked.us != null;
        this.asked = null;
        const box = this.holder.getBoundingClientRect();
        if (wanted != null && box.bottom > 0 && box.top < innerHeight) this.seek(wanted, isPreview);
      });
    }
    this.asked = { us };
  }

  count() {
    const kinds = new Set();
    const counted = [...new Set(this.shown)]
      .map((kernel) => [kernel, this.maps.get(kernel)])
      .filter(([, map]) => map?.bytes)
      .map(([kernel, map]) => [kernel, map.census()]);
    for (const [, zones] of counted) for (const zone of zones) zone.of.forEach((blocks, kind) => blocks && kinds.add(kind));
    const there = [...kinds].sort(),
      types = this.kernels[0].map.types;
    const rows = counted.flatMap(([kernel, zones]) =>
      zones.map((zone) => [
        kernel.name,
        zone.title,
        ...there.map((kind) => String(zone.of[kind])),
        ...[zone.free, zone.huge, zone.mixed].map(String),
      ]),
    );
    this.census.replaceChildren(
      table(["pageblocks", "zone", ...there.map((kind) => types[kind]), "free", "huge", "mixed"], rows),
    );
  }

  play() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
      this.playing.textContent = "Play";
      return;
    }
    this.playing.textContent = "Pause";
    const at = () => sampleAt(this.times, state.at ?? 0);
    if (at() === this.times.length - 1) change({ at: this.times[0] });
    this.timer = setInterval(
      () => {
        const next = at() + 1;
        if (next < this.times.length) change({ at: this.times[next] });
        else this.play();
      },
      Math.max(40, Math.min(250, 20000 / this.times.length)),
    );
  }
}

function counters(timeline) {
  const kernels = DATA.kernels.filter((kernel) => kernel.at_us);
  const last = (word) => (name) => name.split("/").pop() === word;
  const anonymous = /\/nr_(active|inactive)_anon$/;
  const charts = [
    ["Free memory, MiB", (kernel) => kernel.sum(last("nr_free_pages"))?.map((frames) => frames / 256)],
    ["Pageblocks free from end to end", (kernel) => kernel.sum((name) => name.endsWith("/blocks/free"))],
    ["Huge pages", (kernel) => kernel.sum(last("nr_anon_transparent_hugepages"))],
    ["Entries into direct compaction (compact_stall)", (kernel) => kernel.values("compact_stall")],
    ["What the host has for the guest, MiB", (kernel) => kernel.values("sim_host_resident")?.map((frames) => frames / 256)],
  ];
  const nodes = [
    ...new Set(
      kernels
        .flatMap((kernel) => kernel.names)
        .map((name) => /^(node\d+)\/nr_free_pages$/.exec(name)?.[1])
        .filter(Boolean),
    ),
  ];
  if (nodes.length > 1) {
    for (const node of nodes)
      charts.push([
        `Free memory of ${node}, MiB`,
        (kernel) => kernel.values(`${node}/nr_free_pages`)?.map((frames) => frames / 256),
      ]);
    for (const node of nodes)
      charts.push([
        `Anonymous memory of ${node}, MiB`,
        (kernel) => kernel.sum((name) => anonymous.test(name) && name.startsWith(`${node}/`))?.map((frames) => frames / 256),
      ]);
  }
  const there = charts.filter(([, of]) => kernels.some(of));
  const names = [...new Set(kernels.flatMap((kernel) => kernel.names))].sort();
  const own = el("div", {});
  const ofAny = (name) => own.replaceChildren(new TimeChart(name, kernels, (kernel) => kernel.values(name)).figure);
  const first = names.includes("pgfault") ? "pgfault" : names[0];
  const any = [first, ...names.filter((name) => name !== first)].map((name) => [name, name]);
  return section(
    "Over time",
    "over-time",
    el(
      "p",
      { class: "quiet" },
      "One cursor goes through all charts. ",
      "Draw over a stretch to zoom, double-click to see all, click for the instant of the page.",
    ),
    columnLegend(kernels.map((kernel) => kernel.name)),
    timeline ? timeline.parts() : null,
    el(
      "div",
      { class: "two" },
      there.map(([title, of]) => new TimeChart(title, kernels, of).figure),
    ),
    el("div", { class: "bar" }, chooser("Any column", "any", any, ofAny)),
    own,
  );
}

function latencies() {
  const holder = el("div", {});
  const show = (title) => holder.replaceChildren(distribution(DATA.ecdf.find((set) => set.title === title)));
  const kinds = DATA.ecdf.map((set) => [set.title, set.title]);
  return section(
    "Distributions",
    "distributions",
    el(
      "p",
      { class: "quiet" },
      "Share of all samples of all seeds that are at most so large; from 90 % to 99 % is as far as from 99 % to 99.9 %. ",
      "Dots are p50, p99 and p99.9. Draw over a stretch to zoom, double-click to see all.",
    ),
    el("div", { class: "bar" }, chooser("Of", "of", kinds, show)),
    columnLegend(DATA.ecdf.flatMap((set) => set.curves.map((curve) => curve.kernel))),
    holder,
  );
}

const isWait = (row) => row.name.startsWith("waiting: ");

function causes() {
  const holder = el("div", {}),
    unlike = el("div", {});
  const show = (title) => {
    const set = DATA.causes.find((one) => one.title === title);
    const work = set.rows.filter((row) => !isWait(row)),
      waits = set.rows.filter(isWait);
    const numbers = table(
      ["ms", ...set.columns],
      set.rows.map((row) => [row.name, ...row.values.map(grouped)]),
    );
    holder.replaceChildren(
      stacks("With a CPU", set, work),
      ...(waits.length ? [stacks("Waiting, on an axis of its own", set, waits)] : []),
      el("details", {}, el("summary", {}, "Numbers"), numbers),
    );
    const there = DATA.pairs.filter((pair) => [pair.old, pair.new].every((name) => set.columns.includes(name)));
    const pairs = there.length ? there : set.columns.slice(1).map((name) => ({ old: set.columns[0], new: name }));
    const named = pairs.map((pair) => [nameOfPair(pair), nameOfPair(pair)]);
    const chart = el("div", {});
    const compare = (name) => {
      const { old, new: now } = pairs.find((pair) => nameOfPair(pair) === name);
      chart.replaceChildren(differences(set, old, now));
    };
    if (!pairs.length) return;
    compare(named[0][0]);
    unlike.replaceChildren(...(named.length > 1 ? [select("Difference", named, named[0][0], compare)] : []), chart);
  };
  const kinds = DATA.causes.map((set) => [set.title, set.title]);
  return section(
    "Time by cause",
    "causes",
    el("p", { class: "quiet" }, "All tasks and kernel threads from start to end, mean of seeds; with a CPU, or waiting for one."),
    el("div", { class: "bar" }, chooser("Case", "case", kinds, show)),
    columnLegend(DATA.causes.flatMap((set) => set.columns)),
    unlike,
    holder,
  );
}

function build() {
  DATA.kernels.forEach(unfold);
  Object.assign(state, recall());
  page.replaceChildren(el("h1", {}, DATA.title), el("p", { class: "quiet" }, DATA.subtitle), verdict());
  const withMaps = DATA.kernels.filter((kernel) => kernel.map);
  const sampled = DATA.kernels.filter((kernel) => kernel.at_us);
  const maps = withMaps.length ? new Maps(withMaps) : null;
  const times = maps ? maps.times : [...new Set(sampled.flatMap((kernel) => kernel.at_us))].sort((a, b) => a - b);
  const timeline = sampled.length ? new Timeline(sampled, times) : null;
  page.append(...[changes(), sweepMap(), claims(), frontier()].filter(Boolean));
  if (maps) {
    page.append(maps.section(timeline));
    onPreview = (us) => maps.preview(us);
    maps.lay();
  }
  page.append(...[chains(timeline)].filter(Boolean));
  if (DATA.ecdf.length) page.append(latencies());
  if (sampled.length) page.append(counters(maps ? null : timeline));
  if (DATA.causes.length) page.append(causes());
  const missing = DATA.missing.map(([what, command]) => el("p", {}, `${what} `, command ? el("code", {}, command) : ""));
  const made = el(
    "p",
    { class: "quiet" },
    "Made by ",
    el("code", {}, DATA.command),
    `; program ${DATA.program}. Lines over time: uPlot 1.6.32, MIT licence.`,
  );
  page.append(el("footer", {}, missing, made));
  window.pagelab = { maps, timeline, state, change };
  // The page is laid out by now, so that a part has its place.
  if (state.at != null || state.zoom) change({ at: state.at, zoom: state.zoom });
  if (state.stall) change({ stall: state.stall });
  if (state.part) requestAnimationFrame(() => document.getElementById(state.part)?.scrollIntoView());
}

build();
