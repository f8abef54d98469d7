"use strict";
// The timeline: the unusable free index of all kernels, the slider over the same axis, and stalls as marks that open.

class Timeline {
  /** `times` are the instants that the slider stops at. */
  constructor(kernels, times) {
    this.kernels = kernels;
    this.times = times;
    this.end = endOfTime();
    this.stalls = kernels
      .flatMap((kernel) => kernel.stalls.map((stall) => ({ kernel, stall })))
      .sort((a, b) => a.stall.at_us - b.stall.at_us);
    this.chosen = -1;
    this.strip = el("div", { class: "strip" });
    this.detail = el("div", { class: "detail", role: "region", "aria-label": "Stall", "aria-live": "polite", tabindex: -1 });
    for (const node of [this.strip, this.detail]) {
      node.addEventListener("keydown", (event) => event.key === "Escape" && state.stall && this.close());
    }
    this.chart = new TimeChart(
      "Unusable free index of a pageblock",
      kernels,
      (kernel) => kernel.unusable?.map((of) => of / 1000),
      130,
    );
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: this.end,
      step: "any",
      value: 0,
      "aria-label": "Instant of the page",
    });
    this.slider.addEventListener("input", () => change({ at: this.nearest(Number(this.slider.value)) }));
    this.slider.addEventListener("keydown", (event) => this.key(event));
    this.draw = redrawn(this.strip, (width) => this.lay(width));
    withColumns(this.strip, this.draw);
    onState((some) => this.hear(some));
  }

  parts() {
    const { caption, holder, readout, lines, figure } = this.chart;
    const strip = this.stalls.length ? [this.strip] : [];
    if (lines.length) figure.replaceChildren(caption, ...strip, holder, this.slider, readout.line);
    else figure.replaceChildren(...strip, this.slider);
    return [figure, this.detail];
  }

  nearest(us) {
    const at = sampleAt(this.times, us),
      next = this.times[at + 1];
    return next != null && next - us < us - this.times[at] ? next : this.times[at];
  }

  step(by) {
    const at = sampleAt(this.times, state.at ?? 0) + by;
    change({ at: this.times[Math.max(0, Math.min(this.times.length - 1, at))] });
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -1e9, End: 1e9 }[
      event.key
    ];
    if (!by) return;
    event.preventDefault();
    this.step(by);
  }

  hear(some) {
    if ("stall" in some) this.tell();
    if ("zoom" in some) {
      [this.slider.min, this.slider.max] = shownTime();
      this.draw();
    }
    if (state.at == null) return;
    this.slider.value = state.at;
    this.slider.setAttribute("aria-valuetext", instant(state.at));
  }

  /** A lane of marks for each kernel, each as wide as its stall was long, but at least as a finger can see. */
  lay(width) {
    const lane = 10,
      shown = this.kernels.filter((kernel) => isOn(kernel.name) && kernel.stalls.length);
    const [least, most] = shownTime();
    const x = (us) => LEFT + ((us - least) / (most - least)) * (width - LEFT - RIGHT);
    const root = svg("svg", { viewBox: `0 0 ${width} ${Math.max(1, shown.length) * lane}`, tabindex: 0, role: "group" });
    root.setAttribute("aria-label", "Longest stalls: arrow keys go from one to the next");
    root.append(svg("text", { x: LEFT - 6, y: 9, "text-anchor": "end", class: "quiet" }, "stalls"));
    this.stalls.forEach(({ kernel, stall }, number) => {
      const at = shown.indexOf(kernel),
        [from, to] = [stall.at_us, stall.at_us + stall.ms * 1000];
      if (at < 0 || to < least || from > most) return;
      const left = Math.max(x(from), LEFT),
        right = Math.min(Math.max(x(to), left + 3), width);
      const mark = svg("rect", { x: left, y: at * lane + 1, width: right - left, height: lane - 2, class: "stall" });
      mark.setAttribute("style", `fill:${hueOf(kernel.name)}`);
      if (number === this.chosen) mark.setAttribute("class", "stall chosen");
      mark.append(svg("title", {}, `${kernel.name}: ${stall.what}, ${short(stall.ms)} ms at ${instant(stall.at_us)}`));
      mark.addEventListener("click", () => this.open(nameOfStall(kernel, stall.number)));
      root.append(mark);
    });
    root.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      let next = this.chosen + by;
      while (this.stalls[next] && !isOn(this.stalls[next].kernel.name)) next += by;
      if (!this.stalls[next]) return;
      const { kernel, stall } = this.stalls[next];
      this.open(nameOfStall(kernel, stall.number));
      this.strip.querySelector("svg").focus();
    });
    this.strip.replaceChildren(root);
  }

  /** Opens an operation by its name, at the instant of its begin. */
  open(name) {
    const found = stallOf(name);
    if (found) change({ stall: name, at: found.stall.at_us });
  }

  close() {
    change({ stall: "" });
    this.strip.querySelector("svg")?.focus();
  }

  /** Shows the log's entry of the state's operation, and its chain, or the command that prints it. */
  tell() {
    const found = stallOf(state.stall);
    this.chosen = found ? this.stalls.findIndex(({ kernel, stall }) => kernel === found.kernel && stall === found.stall) : -1;
    this.draw();
    if (!found) {
      this.detail.replaceChildren();
      return;
    }
    const { kernel, stall } = found;
    const order = stall.order == null ? "" : `, order ${stall.order}`;
    const by = `${stall.what} of task ${stall.task} on CPU ${stall.cpu}${order}`;
    const title = `${by}: ${short(stall.ms)} ms from ${instant(stall.at_us)}`;
    const rank = `number ${stall.number} of this run, ${kernel.note}`;
    const parts = stall.parts.map(([cause, ms]) => [cause, short(ms), percentOf(ms, stall.ms)]);
    const text = chainOf(kernel, stall);
    const command = kernel.why ? el("code", {}, `${kernel.why} ${stall.number}`) : null;
    const how = command && el("p", {}, "Its chain, from the request to the outcome: ", command);
    const why = text != null ? chainText(text, true) : how;
    const rest = text?.includes("--format json") && command;
    const facts = rest ? el("p", { class: "quiet" }, "Every fact: ", command, el("code", {}, " --format json")) : null;
    const close = el("button", { type: "button", class: "close", onclick: () => this.close() }, "Close");
    close.title = "Escape closes it, too";
    this.detail.replaceChildren(
      el("h3", {}, sampleOf(kernel.name), ` ${kernel.name}: ${title} `, el("span", { class: "quiet" }, rank), " ", close),
      table(["cause", "ms", "share"], parts),
      ...[why, facts].filter(Boolean),
    );
  }
}

function percentOf(part, whole) {
  return whole > 0 ? `${((part / whole) * 100).toFixed(1)} %` : "-";
}
