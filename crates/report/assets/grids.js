"use strict";
// Many results at once: columns by row, the map of a sweep, the claims of a series, the frontier of a guest.

/** A cell's ground by how far its row went: better and worse have hues of their own, what is not told apart has none. */
function groundOf(change, verdict) {
  const hue = { better: "--better", worse: "--worse" }[verdict];
  if (!hue) return "";
  // Twice or half is full; the text stays dark enough on all of them.
  const size = Math.min(1, Math.abs(change ?? 100) / 100);
  return `background:color-mix(in srgb, var(${hue}) ${Math.round(12 + 30 * size)}%, var(--ground))`;
}

/** Every column with every row, as changes; a cell opens the comparison that it is of. */
function changes() {
  const isFull = (pairs) => pairs.some((pair) => pair.all.length);
  if (!isFull(DATA.pairs)) return null;
  const holder = el("div", {});
  const olds = new Set(DATA.pairs.map((pair) => pair.old));
  const base = olds.size === 1 ? `from ${[...olds][0]}` : "each from the column that it is compared with";
  const ways = [["", base], ...(isFull(DATA.steps) ? [["steps", "each from the column before"]] : [])];
  const show = (way) => holder.replaceChildren(...changesOf((way ? DATA.steps : DATA.pairs).filter((pair) => pair.all.length)));
  let chosen = null;
  if (ways.length > 1) chosen = el("div", { class: "bar" }, chooser("Changes", "from", ways, show));
  else show("");
  const about =
    `Changes${ways.length > 1 ? "" : ` ${base}`}, in per cent. ` +
    "Blue is better, orange is worse, without colour is not told apart. A cell opens its comparison.";
  return section("Columns by row", "changes", el("p", { class: "quiet" }, about), chosen, holder);
}

/** The rows of some pairs: those with a change, and the others folded. */
function changesOf(pairs) {
  const keys = [...new Map(pairs.flatMap((pair) => pair.all.map((row) => [row.name, row]))).values()];
  const rowOf = (pair, name) => pair.all.find((one) => one.name === name);
  const isSame = ({ name }) => pairs.every((pair) => (rowOf(pair, name)?.verdict ?? "same") === "same");
  const head = () =>
    el(
      "tr",
      {},
      el("th", { scope: "col" }, "row"),
      pairs.map((pair) => el("th", { scope: "col", title: nameOfPair(pair) }, named(pair.new))),
    );
  const line = ({ name, unit }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, `${name}, ${unit}`),
      pairs.map((pair) => {
        const row = rowOf(pair, name);
        if (!row) return el("td", {}, "-");
        const open = el("button", { type: "button", class: "cell", onclick: () => openPair(pair) }, changeOf(row));
        const words = `${nameOfPair(pair)}: ${short(row.old)} to ${short(row.new)} ${unit}, ${row.verdict}`;
        open.setAttribute("aria-label", `${name}, ${words}: ${changeOf(row)}`);
        open.title = words;
        return el("td", { style: groundOf(row.change, row.verdict) }, open);
      }),
    );
  const grid = (rows) =>
    el("div", { class: "wide" }, el("table", { class: "grid" }, el("thead", {}, head()), el("tbody", {}, rows.map(line))));
  const [same, moved] = [keys.filter(isSame), keys.filter((key) => !isSame(key))];
  const many = same.length === 1 ? "1 row is" : `${same.length} rows are`;
  return [
    ...(moved.length ? [grid(moved)] : []),
    ...(same.length ? [el("details", {}, el("summary", {}, `${many} the same in all columns`), grid(same))] : []),
  ];
}

function openPair(pair) {
  change({ pair: nameOfPair(pair) });
  document.getElementById("verdict").scrollIntoView();
}

/** The row of a sweep over the first two axes, a panel for each combination of the others. */
function heat(sweep, row) {
  const [down, across] = sweep.axes.length > 1 ? sweep.axes : [{ name: "", values: [""] }, sweep.axes[0]];
  const isLine = sweep.axes.length === 1;
  const values = row.points.map((point) => point.value).filter((value) => value != null);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const rests = [...new Set(row.points.map((point) => point.place.slice(2).join()))];
  const panel = (rest) => {
    const pointAt = (y, x) => {
      const place = [...(isLine ? [x] : [y, x]), ...(rest ? rest.split(",").map(Number) : [])];
      return row.points.find((point) => point.place.join() === place.join());
    };
    const head = el(
      "tr",
      {},
      el("th", {}, `${shortName(down.name)} \\ ${shortName(across.name)}`),
      across.values.map((value) => el("th", {}, valueOf(across, value))),
    );
    const body = down.values.map((name, y) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, valueOf(down, name)),
        across.values.map((_, x) => {
          const point = pointAt(y, x);
          if (point?.value == null) return el("td", {}, "-");
          const size = most > least ? (point.value - least) / (most - least) : 0;
          const isFlat = row.regions.some((region) => region.is_sure && holds(region, point.place));
          const isDefault = sweep.default?.join() === point.place.join();
          const cell = el("td", {
            style: `background:color-mix(in srgb, var(--accent) ${Math.round(45 * size)}%, var(--ground))`,
          });
          cell.className = `${isFlat ? "flat" : ""} ${isDefault ? "default" : ""}`.trim();
          cell.append(short(point.value));
          const range = point.low == null ? "" : `, single runs ${short(point.low)} to ${short(point.high)}`;
          cell.title = `${point.runs} runs${range}${isDefault ? ", the default" : ""}${isFlat ? ", in a flat region" : ""}`;
          return cell;
        }),
      ),
    );
    const of = (at, axis) => `${shortName(sweep.axes[axis + 2].name)}=${sweep.axes[axis + 2].values[at]}`;
    const caption = rest
      ? rest
          .split(",")
          .map((at, axis) => of(Number(at), axis))
          .join(", ")
      : null;
    return el(
      "figure",
      {},
      caption ? el("figcaption", {}, caption) : null,
      el("div", { class: "wide" }, el("table", { class: "grid" }, el("thead", {}, head), el("tbody", {}, body))),
    );
  };
  return el("div", { class: rests.length > 1 ? "two" : "one" }, rests.map(panel));
}

/** A value of a setting, with a word where it is the default. */
const valueOf = (axis, value) => (value === axis.default ? `${value} (default)` : value);

const shortName = (name) => name.split(/[./]/).pop();

/** Whether a region of a sweep holds a place. */
function holds(region, place) {
  return place.every((at, axis) => region.from[axis] <= at && at <= region.to[axis]);
}

function sweepMap() {
  const { sweep } = DATA;
  if (!sweep?.rows.length) return null;
  const holder = el("div", {});
  const label = (row) => `${row.metric} ${row.case}`;
  const show = (name) => {
    const row = sweep.rows.find((one) => label(one) === name);
    const effects = row.effects.filter(Boolean).map((effect) => {
      const by = effect.percent == null ? short(effect.difference) : percent(effect.percent);
      const moved = `${effect.from} \u2192 ${effect.to}`;
      return [
        effect.axis,
        effect.reaction.replaceAll("_", " "),
        moved,
        by,
        effect.p_holm == null ? "-" : effect.p_holm.toPrecision(2),
      ];
    });
    const better = { lower: "lower is better", higher: "higher is better" }[row.better] ?? "";
    holder.replaceChildren(
      el("p", { class: "quiet" }, `${row.unit}${better ? `, ${better}` : ""}`),
      heat(sweep, row),
      ...(effects.length ? [table(["setting", "does it move the row", "from", "by", "p (Holm)"], effects)] : []),
    );
  };
  const names = sweep.rows.map((row) => [label(row), label(row)]);
  const about =
    "Each value of the settings, deeper for more. The frame marks the defaults; strokes lie over flat regions, where no " +
    "difference between neighbours is large enough to matter.";
  return section(
    "Map of the settings",
    "sweep",
    el("p", { class: "quiet" }, about),
    el("div", { class: "bar" }, chooser("Row", "row", names, show)),
    holder,
  );
}

/** A number of a claim, in the claim's unit. */
function figure(value, unit) {
  if (unit === "deviation") return percent(value * 100);
  return unit === "factor"
    ? `x${+value.toPrecision(3)}`
    : unit === "percent"
      ? `${+(value * 100).toPrecision(3)} %`
      : short(value);
}

/** The claims of a published series: what was published beside what came out. */
function claims() {
  const judged = DATA.claims;
  if (!judged?.claims.length) return null;
  const range = (ends, unit) => {
    if (!ends) return "-";
    const [low, high] = ends.map((end) => figure(end, unit));
    return low === high ? low : `${low} to ${high}`;
  };
  const word = (verdict) => (typeof verdict === "string" ? verdict : "not yet");
  const rows = judged.claims.flatMap((claim) =>
    claim.parts.map((part, at) => ({
      cells: [
        at ? "" : claim.id,
        el("span", { title: claim.reason }, at ? "" : claim.claim),
        part.what,
        part.published_words ?? range(part.published, part.unit === "deviation" ? "plain" : part.unit),
        range(part.ours, part.unit),
        part.wanted,
        el("span", { class: word(part.verdict) === "fails" ? "worse" : "" }, word(part.verdict)),
      ],
    })),
  );
  const held = judged.claims.filter((claim) => claim.verdict === "holds" && !claim.unsettled).length;
  const tested = judged.claims.filter((claim) => typeof claim.verdict === "string").length;
  const seeds = judged.seeds.join(", ");
  const about = `${held} of ${tested} claims of series ${judged.series} that could be judged hold, with seeds ${seeds}.`;
  const heads = ["claim", "says", "figure", "published", "ours", "wanted", "verdict"];
  const found = table(heads, rows);
  found.classList.add("words");
  return section("Claims of the series", "claims", el("p", { class: "quiet" }, about), found);
}

/** A guest's ways of giving memory back: memory on the host against the time that it costs. */
function frontier() {
  const rows = DATA.frontier;
  if (!rows.length) return null;
  const cases = [...new Set(rows.map((row) => row.case))];
  const number = (value) => (value == null ? "-" : short(value));
  const parts = cases.flatMap((name) => {
    const here = rows.filter((row) => row.case === name);
    const way = ({ column, is_default }, at) => {
      const words = `${column.kernel}${is_default ? " (default)" : ""}`;
      return column.kernel === "ideal" ? words : el("span", { class: "named" }, `${at + 1}`, sampleOf(column.kernel), words);
    };
    const cells = here.map((row, at) => [
      way(row, at),
      ...[row.area_gib_min, row.end_mib, row.process_s, row.host_s, row.refaults].map(number),
    ]);
    const numbers = table([name, "GiB min", "end MiB", "process s", "host s", "re-faults"], cells);
    numbers.classList.add("whole-names");
    return [frontierChart(name, here), numbers];
  });
  const about =
    "Memory that the guest occupies on its host, over time, against the host's work for it. Down and left is better; " +
    "ideal is computed. Numbers are those of the table; ways that lie on each other share a label.";
  return section("Frontier of guests", "frontier", el("p", { class: "quiet" }, about), ...parts);
}

/** Points whose labels would lie on each other, group by group. */
function together(points) {
  const groups = [];
  for (const point of points) {
    const near = ([[x, y]]) => Math.abs(x - point[0]) < 40 && Math.abs(y - point[1]) < 12;
    const group = groups.find(near);
    if (group) group.push(point);
    else groups.push([point]);
  }
  return groups;
}

function frontierChart(name, rows) {
  const known = rows.map((row, at) => ({ ...row, number: at + 1 })).filter((row) => row.host_s != null);
  const ideal = rows.find((row) => row.column.kernel === "ideal");
  const holder = el("div", { class: "chart" });
  const draw = redrawn(holder, (width) => {
    const [left, right, top, height] = [56, 16, 10, 300],
      bottom = height - 34;
    const most = (values) => Math.max(1e-9, ...values) * 1.06;
    const [x1, y1] = [most(known.map((row) => row.host_s)), most(rows.map((row) => row.area_gib_min))];
    const x = (value) => left + (value / x1) * (width - left - right);
    const y = (value) => bottom - (value / y1) * (bottom - top);
    const root = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `Frontier of ${name}; the table has the numbers`,
    });
    for (const tick of ticks(0, x1, width < 560 ? 3 : 6)) {
      root.append(svg("line", { x1: x(tick), x2: x(tick), y1: top, y2: bottom, class: "axis" }));
      root.append(svg("text", { x: x(tick), y: bottom + 14, "text-anchor": "middle", class: "quiet" }, `${short(tick)} s`));
    }
    for (const tick of ticks(0, y1, 5)) {
      root.append(svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "axis" }));
      root.append(svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end", class: "quiet" }, short(tick)));
    }
    root.append(svg("text", { x: left, y: height - 4, class: "quiet" }, "time of the host; upward: GiB minutes on the host"));
    if (ideal) {
      const at = y(ideal.area_gib_min),
        middle = left + (width - left - right) / 2;
      root.append(svg("line", { x1: left, x2: width - right, y1: at, y2: at, class: "zero" }));
      root.append(svg("text", { x: middle, y: at + 13, "text-anchor": "middle", class: "quiet" }, "ideal"));
    }
    known.forEach((row) => {
      const mark = svg("circle", {
        cx: x(row.host_s),
        cy: y(row.area_gib_min),
        r: row.is_default ? 7 : 5,
        style: `fill:${hueOf(row.column.kernel)}`,
      });
      mark.append(svg("title", {}, `${row.column.kernel}: ${short(row.area_gib_min)} GiB min, ${short(row.host_s)} s`));
      root.append(mark);
    });
    for (const group of together(known.map((row) => [x(row.host_s), y(row.area_gib_min), row]))) {
      const [[px, py, first]] = group,
        isRight = px > left + 0.6 * (width - left - right);
      const name = group.length === 1 && width >= 560 ? ` ${first.column.kernel}` : "";
      const words = group.map(([, , row]) => row.number).join(", ") + name;
      root.append(svg("text", { x: px + (isRight ? -11 : 11), y: py - 5, "text-anchor": isRight ? "end" : "start" }, words));
    }
    holder.replaceChildren(root);
  });
  requestAnimationFrame(draw);
  return holder;
}
