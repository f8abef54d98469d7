"use strict";
// The page from its data, section by section.

const page = document.getElementById("page");

function section(title, id, ...children) {
  return el("section", { id }, el("h2", {}, title), ...children);
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
  return `means of ${old} and ${now} runs, ${lone ? "and no intervals, as one run has none" : "95 % intervals of their difference"}`;
}

function verdict() {
  const holder = el("div");
  const show = (number) => {
    const pair = DATA.pairs[number];
    const parts = [el("p", { class: "verdict" }, pair ? pair.verdict : DATA.verdict)];
    if (pair?.rows.length) {
      const cut = isCut(pair.rows) ? "; an arrow says that an interval goes on beyond the chart" : "";
      const few = cut && Math.min(...pair.runs) < 5 ? " (too few seeds: eight make intervals much narrower)" : "";
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
      parts.push(
        dots(pair.rows, pair.new),
        el(
          "details",
          {},
          el("summary", {}, "Numbers"),
          table(["row", pair.old, pair.new, "unit", "change", "95 % interval", "verdict"], rows),
        ),
      );
      parts.push(
        el(
          "p",
          { class: "quiet" },
          "The rows with the largest changes of those for which a direction is better; ",
          `${spread(pair.runs)}${cut}${few}. All rows: `,
          el("code", {}, DATA.compare),
        ),
      );
    }
    holder.replaceChildren(...parts);
  };
  show(0);
  const pairs = DATA.pairs.map((pair, at) => [String(at), `${pair.old} \u2192 ${pair.new}`]);
  return el(
    "section",
    { id: "verdict" },
    pairs.length > 1
      ? el(
          "div",
          { class: "bar" },
          select("Compared", pairs, "0", (at) => show(Number(at))),
        )
      : null,
    holder,
  );
}

/** Maps side by side, and the chart over them that is their place in time. */
class Maps {
  constructor(kernels) {
    this.kernels = kernels;
    this.maps = new Map();
    this.shown = kernels.slice(0, 2);
    this.sample = 0;
    this.zone = "";
    this.times = [...new Set(kernels.flatMap((kernel) => kernel.map.at_us))].sort((a, b) => a - b);
    this.end = this.times[this.times.length - 1] || 1;
    this.holder = el("div", {});
    this.census = el("div", {});
    this.time = el("span", { class: "time" });
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: this.times.length - 1,
      value: 0,
      "aria-label": "Instant of the maps",
    });
    this.slider.addEventListener("input", () => this.seek(this.times[Number(this.slider.value)]));
    this.playing = el("button", { type: "button", onclick: () => this.play() }, "Play");
    this.strip = el("div", {});
  }

  section() {
    const step = (by) => () => this.seek(this.times[Math.max(0, Math.min(this.times.length - 1, this.at() + by))]);
    const bar = el(
      "div",
      { class: "bar" },
      this.playing,
      el("button", { type: "button", onclick: step(-1), "aria-label": "One sample back" }, "\u25c2"),
      el("button", { type: "button", onclick: step(1), "aria-label": "One sample on" }, "\u25b8"),
      this.time,
    );
    const names = this.kernels.map((kernel, at) => [String(at), kernel.name]);
    for (const side of [0, 1].slice(0, this.kernels.length > 2 ? 2 : 0)) {
      bar.append(
        select(side ? "Right" : "Left", names, String(side), (at) => {
          this.shown[side] = this.kernels[Number(at)];
          this.lay();
        }),
      );
    }
    const zones = [
      ...new Map(this.kernels.flatMap((kernel) => kernel.map.bands.map((band) => [band.zone, band.title]))).entries(),
    ];
    if (zones.length > 1) {
      bar.append(
        select("Zone", [["", "all"], ...zones], "", (zone) => {
          this.zone = zone;
          this.all((map) => map.draw());
        }),
      );
    }
    const hatch = el("input", { type: "checkbox", onchange: () => this.hatched(hatch.checked) });
    bar.append(el("label", { class: "quiet" }, hatch, "hatched"));
    addEventListener("beforeprint", () => this.hatched(true));
    addEventListener("afterprint", () => this.hatched(hatch.checked));
    const about =
      "The chart is the unusable free index of a pageblock (the kernel's extfrag/unusable_index), of all zones together: " +
      "the share of free memory in blocks too small for one. Ticks above it are the longest stalls. Drag it, or use the slider.";
    return section(
      "Physical memory",
      "map",
      el("p", { class: "quiet" }, about),
      bar,
      this.strip,
      this.slider,
      this.holder,
      this.legend(),
      this.census,
    );
  }

  legend() {
    const types = this.kernels[0].map.types,
      there = new Set();
    for (const kernel of this.kernels) for (const kind of kernel.map.seen) there.add(kind);
    const items = [...there]
      .sort()
      .map((kind) => el("span", {}, el("span", { class: "swatch", style: `background:${HUES[kind]}` }), types[kind]));
    const words = [
      "paler: less in use",
      "inset: huge page",
      "corner: pages of another mobility",
      "hollow: host knows it is free",
      "framed: type changed",
      "flags: compaction's scanners",
    ];
    return el(
      "div",
      { class: "legend" },
      items,
      words.map((word) => el("span", { class: "quiet" }, word)),
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
      if (!map) continue;
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
    this.scrubber = new Scrubber(this.shown, this.end, (us) => this.seek(us));
    this.strip.replaceChildren(this.scrubber.holder);
    this.scrubber.draw();
    for (const map of maps) if (!map.bytes) await map.load();
    this.all((map) => map.draw());
    this.seek(this.now ?? this.times[0]);
  }

  at() {
    let [low, high] = [0, this.times.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.times[middle] <= this.now) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  seek(us) {
    this.now = us;
    const at = this.at();
    this.now = this.times[at];
    this.slider.value = at;
    this.slider.setAttribute("aria-valuetext", instant(this.now));
    this.time.textContent = `${instant(this.now)} of ${instant(this.end)}`;
    this.scrubber.show(this.now);
    this.all((map) => {
      const times = map.map.at_us;
      let sample = 0;
      while (sample + 1 < times.length && times[sample + 1] <= this.now) sample += 1;
      map.show(sample);
    });
    this.count();
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
    if (this.at() === this.times.length - 1) this.seek(this.times[0]);
    this.timer = setInterval(
      () => {
        const next = this.at() + 1;
        if (next < this.times.length) this.seek(this.times[next]);
        else this.play();
      },
      Math.max(40, Math.min(250, 20000 / this.times.length)),
    );
  }
}

function counters(seek) {
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
  const first = names.includes("pgfault") ? "pgfault" : names[0],
    own = el("div", {});
  const choose = (name) => own.replaceChildren(overTime(name, kernels, (kernel) => kernel.values(name), seek));
  choose(first);
  return section(
    "Over time",
    "over-time",
    columnLegend(kernels.map((kernel) => kernel.name)),
    el(
      "div",
      { class: "two" },
      there.map(([title, of]) => overTime(title, kernels, of, seek)),
    ),
    el(
      "div",
      { class: "bar" },
      select(
        "Any column",
        names.map((name) => [name, name]),
        first,
        choose,
      ),
    ),
    own,
  );
}

function latencies() {
  const holder = el("div", {});
  const show = (at) => {
    holder.replaceChildren(ecdf(DATA.ecdf[at]));
  };
  show(0);
  const kinds = DATA.ecdf.map((set, at) => [String(at), set.title]);
  return section(
    "Distributions",
    "distributions",
    el("p", { class: "quiet" }, "Share of all samples of all seeds that are at most so large."),
    el(
      "div",
      { class: "bar" },
      select("Of", kinds, "0", (at) => show(Number(at))),
    ),
    columnLegend(DATA.ecdf.flatMap((set) => set.curves.map((curve) => curve.kernel))),
    holder,
  );
}

function causes() {
  const holder = el("div", {});
  const show = (at) => holder.replaceChildren(stacks(DATA.causes[at]));
  show(0);
  const kinds = DATA.causes.map((set, at) => [String(at), set.title]);
  return section(
    "Time by cause",
    "causes",
    el("p", { class: "quiet" }, "All tasks and kernel threads from start to end, mean of seeds; with a CPU, or waiting for one."),
    el(
      "div",
      { class: "bar" },
      select("Case", kinds, "0", (at) => show(Number(at))),
    ),
    columnLegend(DATA.causes.flatMap((set) => set.columns)),
    holder,
  );
}

function build() {
  document.title = `pagelab: ${DATA.title}`;
  DATA.kernels.forEach(unfold);
  page.replaceChildren(el("h1", {}, DATA.title, el("span", { class: "quiet" }, ` ${DATA.subtitle}`)), verdict());
  const withMaps = DATA.kernels.filter((kernel) => kernel.map);
  const maps = withMaps.length ? new Maps(withMaps) : null;
  if (maps) {
    page.append(maps.section());
    maps.lay();
  }
  if (DATA.ecdf.length) page.append(latencies());
  if (DATA.kernels.some((kernel) => kernel.series)) page.append(counters(maps && ((us) => maps.seek(us))));
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
  window.pagelab = { maps };
}

build();
