"use strict";
// The history of a pageblock from sample to sample, and the glyphs of the map for its legend.

/** Frames in use in a cell, in words. */
function inUse(used) {
  return used > 16 ? "no memory" : used === 0 ? "free" : `${used}/16 in use`;
}

/**
 * The moves behind the cells of a map, by sample, each as [cell, mover, reason, pages that came, pages that left] with mover and
 * reason as indices of names; null where none were recorded. Numbers stand in columns, as LEB128.
 */
function readMoves(bytes, samples) {
  if (!bytes.length) return null;
  let at = bytes.indexOf(10) + 1;
  const names = JSON.parse(new TextDecoder().decode(bytes.subarray(0, at)));
  const next = () => {
    let number = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++];
      number += (byte & 127) * 2 ** shift;
      if (byte < 128) return number;
    }
  };
  const found = Array.from({ length: samples }, () => Array.from({ length: next() }, () => [0, 0, 0, 0, 0]));
  for (let column = 0; column < 5; column += 1) {
    for (const moves of found) {
      let before = 0;
      for (const move of moves) {
        move[column] = before + next();
        before = column === 0 ? move[column] : 0;
      }
    }
  }
  return { ...names, samples: found };
}

/** The moves of a cell since the sample before, in words: who, why, and how many pages. */
function moversOf(map, cell, sample) {
  if (!map.moves) return [];
  const { movers, reasons, samples } = map.moves;
  return samples[sample]
    .filter(([of]) => of === cell)
    .sort((a, b) => b[3] + b[4] - a[3] - a[4])
    .map(([, mover, reason, came, left]) => {
      const name = movers[mover],
        why = reasons[reason];
      if (/^makes /.test(why)) return `${name} ${why}`;
      const pages = [
        [came, /^fallback/.test(why) ? "taken" : "came"],
        [left, "left"],
      ].filter(([count]) => count > 0);
      return `${name}, ${why}: ${pages.map(([count, word]) => `${grouped(count)} ${word}`).join(", ")}`;
    });
}

/**
 * The changes of a cell that a map's samples show: [instant, words] for each sample that differs from the one
 * before, or since which pages moved; the scanners of compaction are named where they went over the cell meanwhile.
 */
function historyOf(map, cell, place) {
  const [, , band, block] = place,
    found = [];
  const number = map.map.bands.indexOf(band);
  for (let sample = 0; sample < map.map.at_us.length; sample += 1) {
    const at = sample * map.length + 2 * cell;
    const [before, now] = [sample > 0 ? at - map.length : at, at].map((byte) => ({
      ...cellOf(map.bytes[byte], map.bytes[byte + 1]),
      raw: map.bytes[byte + 1],
    }));
    const words = [];
    if (before.kind !== now.kind) words.push(`${map.map.types[before.kind]} \u2192 ${map.map.types[now.kind]}`);
    if (before.huge !== now.huge) words.push(now.huge ? "a huge page begins here" : "its huge page is gone");
    if (before.raw !== now.raw) words.push(`${inUse(before.raw)} \u2192 ${inUse(now.raw)}`);
    if (before.mixed !== now.mixed)
      words.push(now.mixed ? "pages of another mobility came" : "pages of another mobility are gone");
    if (before.reported !== now.reported)
      words.push(now.reported ? "reported to the host" : "no longer known to the host as free");
    const movers = moversOf(map, cell, sample);
    if (!words.length && !movers.length) continue;
    const [was, is] = [Math.max(0, sample - 1), sample].map((of) => map.map.scanners[of][number]);
    const end = block + map.map.group;
    // The migrate scanner goes up and begins again at the bottom, the free scanner goes down and begins again at the top.
    if (was[0] < end && is[0] >= block && was[0] !== is[0]) words.push("the migrate scanner went over");
    if (was[1] >= block && is[1] < end && was[1] !== is[1]) words.push("the free scanner went over");
    found.push([map.map.at_us[sample], words.join(", "), movers]);
  }
  return found;
}

/** The history of a cell, with a button for each instant. */
function historyTable(map, cell) {
  const place = map.places[cell],
    all = historyOf(map, cell, place),
    after = all.findIndex(([us]) => us > map.map.at_us[map.sample]);
  const middle = after < 0 ? all.length : after;
  const from = Math.max(0, Math.min(middle - 10, all.length - 20));
  const rows = all.slice(from, from + 20).map(([us, words, movers]) => {
    const go = el("button", { type: "button", onclick: () => change({ at: us }) }, instant(us));
    if (us === map.map.at_us[map.sample]) go.setAttribute("aria-current", "true");
    return map.moves ? [go, words || "-", movers.length ? movers.map((words) => el("div", {}, words)) : "-"] : [go, words];
  });
  const around = all.length > 20 ? `; ${rows.length} of them around this instant` : "";
  const title = `${all.length} of ${map.map.at_us.length} samples changed this block${around}`;
  const [, , , block] = place;
  const now = `Pageblock ${block}, ${map.words(cell)}, at ${instant(map.map.at_us[map.sample])}`;
  const heads = ["instant", "what changed since the sample before", ...(map.moves ? ["who moved or took its pages"] : [])];
  return el(
    "div",
    {},
    el("p", {}, map.map.group > 1 ? now.replace("Pageblock", `${map.map.group} pageblocks from`) : now),
    el("p", { class: "quiet" }, title, aboutMoves(map)),
    rows.length ? table(heads, rows) : null,
  );
}

/** What the movers of a map do not say. */
function aboutMoves(map) {
  if (!map.moves) return "; who moved its pages was not recorded";
  const { least } = map.moves;
  return least > 1 ? `; movers of fewer than ${least} pages in a sample are left out` : "";
}

/** A cell as the map draws it, for the legend. */
function glyph(draw) {
  return svg("svg", { viewBox: "0 0 14 14", class: "glyph", "aria-hidden": "true" }, ...draw);
}

const rect = (x, y, side, attributes) => svg("rect", { x, y, width: side, height: side, ...attributes });

/** Glyphs and their meanings, in the colours of a Movable pageblock. */
function glyphs() {
  const full = HUES[1];
  const shade = (at, share) => svg("rect", { x: at * 3.5, y: 1, width: 3.5, height: 12, fill: full, "fill-opacity": share });
  return [
    [glyph([0, 1, 2, 3].map((at) => shade(at, [0.13, 0.38, 0.7, 1][at]))), "paler: less in use"],
    [glyph([rect(1, 1, 12, { fill: full }), rect(5, 5, 4, { fill: "#ffffff", "fill-opacity": 0.75 })]), "huge page begins"],
    [glyph([rect(1, 1, 12, { fill: full }), svg("path", { d: "M6 1H13V8Z", fill: HUES[0] })]), "pages of another mobility"],
    [glyph([rect(2, 2, 10, { fill: "none", stroke: full, "stroke-width": 2 })]), "host knows it is free"],
    [glyph([rect(2, 2, 10, { fill: full, class: "framed" })]), "type changed"],
    [glyph([svg("path", { d: "M2 1V13M2 1L9 4L2 7Z", class: "flag" })]), "migrate scanner"],
    [glyph([svg("path", { d: "M12 1V13M12 1L5 4L12 7Z", class: "flag" })]), "free scanner"],
  ];
}
