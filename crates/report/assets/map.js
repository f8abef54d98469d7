"use strict";
// The map of physical memory: address order, row by row, a row a power of two wide. One canvas for each kernel.

/** Inflates the cells of a map and undoes the XOR of samples: one array, sample after sample. */
async function inflate(map) {
  const packed = Uint8Array.from(atob(map.packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = 2 * map.bands.reduce((sum, band) => sum + Math.ceil(band.blocks / map.group), 0);
  const end = length * map.at_us.length;
  for (let at = length; at < end; at += 1) bytes[at] ^= bytes[at - length];
  return { bytes, length, moves: readMoves(bytes.subarray(end), map.at_us.length) };
}

/** A cell in words and numbers. */
function cellOf(first, used) {
  return {
    kind: first & 7,
    huge: !!(first & 8),
    mixed: !!(first & 16),
    reported: !!(first & 32),
    used: used > 16 ? null : used,
  };
}

class MemoryMap {
  constructor(kernel) {
    this.kernel = kernel;
    this.map = kernel.map;
    this.block = 2 ** this.map.pageblock_order / 256;
    this.sample = 0;
    this.cursor = null;
    this.zone = "";
    this.hatch = false;
    this.canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "map of physical memory" });
    this.canvas.setAttribute("aria-label", `Map of physical memory, ${kernel.name}: arrow keys move over pageblocks`);
    this.readout = el("p", { class: "readout" });
    this.live = el("p", { class: "hidden", "aria-live": "polite" });
    this.history = el("div", { class: "history" });
    const caption = el(
      "figcaption",
      {},
      sampleOf(kernel.name),
      " ",
      kernel.name,
      el("span", { class: "quiet" }, ` ${kernel.note}`),
    );
    this.figure = el("figure", {}, caption, this.canvas, this.readout, this.live, this.history);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("dblclick", () => change({ blocks: null }));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  async load() {
    Object.assign(this, await inflate(this.map));
    this.draw = redrawn(this.figure, (width) => this.lay(width));
    this.draw();
  }

  bands() {
    return this.map.bands.filter((band) => !this.zone || band.zone === this.zone);
  }

  /** The cells of a band that are shown: all, or those of the state's stretch of pageblocks; first, and one behind the last. */
  part(band) {
    const { group } = this.map,
      count = Math.ceil(band.blocks / group);
    if (!state.blocks) return [0, count];
    const [low, high] = state.blocks;
    return [Math.max(0, Math.floor((low - band.first) / group)), Math.min(count, Math.floor((high - band.first) / group) + 1)];
  }

  /** Places every cell: [x, y] by its number in the sample. */
  lay(width) {
    const gutter = 56,
      { group } = this.map;
    const part = (band) => this.part(band);
    const cells = this.bands().reduce((sum, band) => sum + Math.max(0, part(band)[1] - part(band)[0]), 0);
    const room = width - gutter - 8;
    let row = state.blocks ? 8 : 32;
    // Cells of a stretch may be large.
    const side = state.blocks ? 22 : 9;
    const isHigh = () => (cells / row) * Math.floor(room / row) > 480;
    while (row < 512 && (Math.floor(room / row) > side || isHigh()) && room / (2 * row) >= 2) row *= 2;
    const cell = Math.max(2, Math.min(state.blocks ? 24 : 12, Math.floor(room / row)));
    Object.assign(this, { gutter, row, cell, places: [], titles: [], labels: [] });
    let y = 0,
      number = 0;
    for (const band of this.map.bands) {
      const count = Math.ceil(band.blocks / group);
      const [from, to] = part(band);
      if ((!this.zone || band.zone === this.zone) && from < to) {
        y += 15;
        this.titles.push([band, y - 3]);
        const first = Math.floor(band.first / group),
          top = Math.floor((first + from) / row);
        for (let at = from; at < to; at += 1) {
          const spot = first + at,
            line = Math.floor(spot / row) - top;
          this.places[number + at] = [gutter + (spot % row) * cell, y + line * cell, band, band.first + at * group];
          const address = spot * group * this.block;
          // Of a stretch every row has its address, of all memory every GiB.
          if (at === from || (spot % row === 0 && (state.blocks || address % 1024 === 0))) {
            this.labels.push([size(at === 0 ? band.first * this.block : address), y + line * cell, at === from]);
          }
        }
        y += (Math.floor((first + to - 1) / row) - top + 1) * cell + 6;
      }
      number += count;
    }
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = y * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${y}px`;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.width = width;
    this.height = y;
    this.ground = css("--ground");
    this.ink = css("--text");
    this.inner = cell >= 4 ? cell - 1 : cell;
    this.pale = mix("#ffffff", this.ground, 0.55);
    this.shades = HUES.map((hue) => [0, 1, 2, 3, 4].map((step) => mix(hue, this.ground, [0.13, 0.38, 0.58, 0.79, 1][step])));
    this.paint();
  }

  paint() {
    const { context } = this;
    if (!context) return;
    context.clearRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.fillStyle = css("--quiet");
    context.textAlign = "left";
    for (const [band, y] of this.titles) {
      context.fillText(`${band.title}, ${size(band.blocks * this.block)}`, this.gutter, y);
    }
    context.textAlign = "right";
    let last = -20;
    for (const [text, y, isFirst] of this.labels) {
      if (isFirst || y - last >= 12) context.fillText(text, this.gutter - 6, y + 9);
      last = isFirst || y - last >= 12 ? y : last;
    }
    this.cells();
    this.scanners();
    if (this.cursor != null && this.places[this.cursor]) {
      const [x, y] = this.places[this.cursor];
      context.lineWidth = 2;
      context.strokeStyle = this.ink;
      context.strokeRect(x - 1.5, y - 1.5, this.inner + 3, this.inner + 3);
      context.lineWidth = 1;
    }
  }

  /** All cells, those of one colour together: to choose a colour takes longer than to fill a cell. */
  cells() {
    const { context, cell, bytes, length, sample, places, inner } = this,
      base = sample * length;
    const fills = new Map(),
      frames = new Map(),
      corners = new Map();
    const put = (into, colour, place) => into.get(colour)?.push(place) ?? into.set(colour, [place]);
    const insets = [],
      changed = [],
      none = css("--line");
    for (let at = 0; at < places.length; at += 1) {
      const place = places[at];
      if (!place) continue;
      const first = bytes[base + 2 * at],
        used = bytes[base + 2 * at + 1],
        kind = first & 7;
      const shades = this.shades[kind];
      if (used > 16) put(frames, none, place);
      else if (first & 32 && cell >= 4) put(frames, shades[4], place);
      else put(fills, shades[used === 0 ? 0 : Math.ceil(used / 4)], place);
      if (first & 8 && cell >= 5) insets.push(place);
      if (first & 16) put(corners, HUES[kind === 1 || kind === 5 ? 0 : 1], place);
      if (sample > 0 && (bytes[base + 2 * at - length] & 7) !== kind) changed.push(place);
    }
    for (const [colour, all] of fills) {
      context.fillStyle = colour;
      for (const [x, y] of all) context.fillRect(x, y, inner, inner);
    }
    for (const [colour, all] of frames) {
      context.strokeStyle = colour;
      for (const [x, y] of all) context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
    }
    const inset = Math.max(2, Math.floor(inner / 3)),
      side = inner - 2 * inset;
    context.fillStyle = this.pale;
    for (const [x, y] of insets) context.fillRect(x + inset, y + inset, side, side);
    const corner = Math.max(2, Math.ceil(inner / 2));
    for (const [colour, all] of corners) {
      context.fillStyle = colour;
      context.beginPath();
      for (const [x, y] of all) {
        context.moveTo(x + inner - corner, y);
        context.lineTo(x + inner, y);
        context.lineTo(x + inner, y + corner);
      }
      context.fill();
    }
    if (this.hatch && cell >= 4) {
      places.forEach(([x, y], at) => this.hatched(x, y, inner, bytes[base + 2 * at] & 7));
    }
    context.strokeStyle = this.ink;
    for (const [x, y] of changed) context.strokeRect(x - 0.5, y - 0.5, inner + 1, inner + 1);
  }

  /** For print and for eyes that see no hues: a stroke of its own direction for each type but Movable. */
  hatched(x, y, side, kind) {
    if (kind === 1) return;
    const strokes = {
      0: [[0, 1, 1, 0]],
      2: [[0, 0.5, 1, 0.5]],
      3: [[0.5, 0, 0.5, 1]],
      4: [
        [0, 0, 1, 1],
        [0, 1, 1, 0],
      ],
    };
    this.context.strokeStyle = this.ink;
    this.context.beginPath();
    for (const [a, b, c, d] of strokes[kind] ?? [[0, 0, 1, 1]]) {
      this.context.moveTo(x + a * side, y + b * side);
      this.context.lineTo(x + c * side, y + d * side);
    }
    this.context.stroke();
  }

  /** Compaction's scanners, in zones in which it has begun: bars with an arrow towards where they go. */
  scanners() {
    let number = 0;
    this.map.bands.forEach((band, at) => {
      const count = Math.ceil(band.blocks / this.map.group);
      const [migrate, free] = this.map.scanners[this.sample][at];
      const hasBegun = migrate !== band.first || free !== band.first + band.blocks - 1;
      for (const [block, isMigrate] of hasBegun
        ? [
            [migrate, true],
            [free, false],
          ]
        : []) {
        const cell = number + Math.min(count - 1, Math.max(0, Math.floor((block - band.first) / this.map.group)));
        const place = this.places[cell];
        if (place) this.bar(place, isMigrate);
      }
      number += count;
    });
  }

  bar([x, y], isMigrate) {
    const { context, cell } = this,
      at = isMigrate ? x : x + cell - 1,
      tip = isMigrate ? 5 : -5;
    context.fillStyle = this.ink;
    context.fillRect(at - 1, y - 2, 2, cell + 3);
    context.beginPath();
    context.moveTo(at, y - 4);
    context.lineTo(at + tip, y - 1);
    context.lineTo(at, y + 2);
    context.fill();
  }

  /** The cell under the pointer; -1 where there is none. */
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    return this.places.findIndex(
      (place) => place && px >= place[0] && px < place[0] + this.cell && py >= place[1] && py < place[1] + this.cell,
    );
  }

  point(event) {
    const found = this.under(event);
    if (found >= 0 && found !== this.cursor) this.move(found, false);
  }

  press(event) {
    this.pressed = this.under(event);
    this.point(event);
  }

  /** A click opens the block; a stroke from one block to another shows the stretch between them. */
  release(event) {
    const [from, to] = [this.pressed, this.under(event)];
    this.pressed = -1;
    if (!(from >= 0) || to < 0) return;
    const [a, b] = [from, to].map((cell) => this.places[cell][3]);
    if (from === to) change({ block: a });
    else if (event.pointerType === "mouse") change({ blocks: [Math.min(a, b), Math.max(a, b) + this.map.group - 1] });
  }

  /** Shows the history of the state's block. */
  tell() {
    const cell = state.block == null ? -1 : this.places.findIndex((place) => place && this.holds(place, state.block));
    if (cell < 0) {
      this.history.replaceChildren();
      return;
    }
    if (this.cursor !== cell) this.move(cell, false);
    this.history.replaceChildren(historyTable(this, cell));
  }

  holds([, , band, block], wanted) {
    return wanted >= block && wanted < Math.min(block + this.map.group, band.first + band.blocks);
  }

  key(event) {
    if (event.key === "Enter" && this.places[this.cursor]) change({ block: this.places[this.cursor][3] });
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.row, ArrowDown: this.row }[event.key];
    if (!step) return;
    event.preventDefault();
    const known = Object.keys(this.places).map(Number);
    const [least, most] = [known[0], known[known.length - 1]];
    const next = this.places[this.cursor] == null ? least : Math.min(most, Math.max(least, this.cursor + step));
    this.move(next, true);
  }

  move(cell, isSpoken) {
    this.cursor = cell;
    this.paint();
    this.say(isSpoken);
  }

  /** Words about the cell under the cursor; spoken when movement stops. */
  words(of = this.cursor) {
    const [, , band, block] = this.places[of];
    const at = this.sample * this.length + 2 * of;
    const cell = cellOf(this.bytes[at], this.bytes[at + 1]);
    const parts = [`${band.title}, ${size(block * this.block)}: ${this.map.types[cell.kind]}`];
    parts.push(inUse(this.bytes[at + 1]));
    if (cell.huge) parts.push("huge page");
    if (cell.mixed) parts.push("pages of another mobility");
    if (cell.reported) parts.push("host knows it is free");
    return parts.join(", ");
  }

  say(isSpoken) {
    if (this.cursor == null || !this.places[this.cursor]) return;
    this.readout.textContent = this.words();
    clearTimeout(this.speech);
    if (isSpoken) this.speech = setTimeout(() => (this.live.textContent = this.words()), 400);
  }

  show(sample) {
    this.sample = Math.min(sample, this.map.at_us.length - 1);
    this.paint();
    this.say(false);
    this.tell();
  }

  /** Pageblocks by zone: exact where the series has them, else of cells. */
  census() {
    const zones = new Map();
    let number = 0,
      base = this.sample * this.length;
    for (const band of this.map.bands) {
      const zone = zones.get(band.zone) ?? { title: band.title, of: new Array(7).fill(0), free: 0, huge: 0, mixed: 0 };
      zones.set(band.zone, zone);
      const count = Math.ceil(band.blocks / this.map.group);
      for (let at = 0; at < count; at += 1) {
        const first = this.bytes[base + 2 * (number + at)],
          used = this.bytes[base + 2 * (number + at) + 1];
        const blocks = Math.min(this.map.group, band.blocks - at * this.map.group);
        zone.of[first & 7] += blocks;
        zone.free += used === 0 ? blocks : 0;
        zone.huge += first & 8 ? 1 : 0;
        zone.mixed += first & 16 ? 1 : 0;
      }
      number += count;
    }
    for (const [path, zone] of zones) {
      const exact = (what, known) => this.kernel.values?.(`${path}/blocks/${what}`)?.[this.map.of_series[this.sample]] ?? known;
      zone.of = zone.of.map((known, kind) => exact(this.map.types[kind], known));
      zone.free = exact("free", zone.free);
    }
    return [...zones.values()];
  }
}
