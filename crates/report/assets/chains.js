"use strict";
// Chains of the slowest operations: the lines of `pagelab why`, in the panel of a stall and in a list of their own.

/** The name of an operation in links: its number, and its run's kernel. */
const nameOfStall = (kernel, number) => `${number} ${kernel.name}`;

/** The operation that a link names, among the marks of the runs. */
function stallOf(name) {
  const [, number, of] = /^(\d{1,9}) (.*)$/s.exec(name) ?? [];
  const kernel = DATA.kernels.find((one) => one.name === of);
  const stall = kernel?.stalls.find((one) => one.number === Number(number));
  return stall ? { kernel, stall } : null;
}

const chainOf = (kernel, stall) => kernel.chains.find((chain) => chain.number === stall.number)?.text;

/** The lines of a chain; an instant at the begin of a line is a button, where the page has a timeline. */
function chainText(text, hasTimeline) {
  const lines = text.replace(/\n$/, "").split("\n");
  const parts = lines.flatMap((line, at) => {
    const end = at + 1 < lines.length ? "\n" : "";
    const [, indent, s, rest] = (hasTimeline && /^( *)(\d+\.\d{6}) s(  .*)$/s.exec(line)) || [];
    if (s == null) return [line + end];
    const go = el("button", { type: "button", class: "at", onclick: () => change({ at: Number(s) * 1e6 }) }, `${s} s`);
    return [indent, go, rest + end];
  });
  return el("pre", { class: "chain", tabindex: 0, "aria-label": "Chain, line by line" }, parts);
}

/** All chains, the longest operation first. */
function chains(timeline) {
  const all = DATA.kernels
    .flatMap((kernel) => kernel.stalls.map((stall) => ({ kernel, stall, text: chainOf(kernel, stall) })))
    .filter(({ text }) => text != null)
    .sort((a, b) => b.stall.ms - a.stall.ms);
  const without = DATA.kernels.filter((kernel) => kernel.no_chains != null);
  if (!all.length && !without.length) return null;
  const rows = all.map(({ kernel, stall, text }) => {
    const by = `${stall.what} of task ${stall.task}, ${short(stall.ms)} ms at ${instant(stall.at_us)}`;
    const name = nameOfStall(kernel, stall.number);
    const go = el("a", { href: `#${new URLSearchParams({ stall: name, at: seconds(stall.at_us) })}` }, instant(stall.at_us));
    go.addEventListener("click", (event) => {
      event.preventDefault();
      timeline.open(name);
      timeline.detail.scrollIntoView({ block: "nearest" });
      timeline.detail.focus();
    });
    const head = el("summary", {}, sampleOf(kernel.name), ` ${kernel.name}: ${by}`);
    const from = timeline ? go : instant(stall.at_us);
    const where = el("p", { class: "quiet" }, "From ", from, `; number ${stall.number} of this run`);
    return el("details", { class: "of-chain" }, head, where, chainText(text, timeline != null));
  });
  const counts = DATA.kernels
    .filter((kernel) => kernel.chains.length)
    .map((kernel) => `${kernel.chains.length} of ${kernel.name} (${kernel.note})`);
  const about =
    "What made the slowest operations of tasks slow: these runs were run once more, with each decision recorded " +
    "where it was made. " +
    (counts.length ? `Chains: ${counts.join("; ")}.` : "");
  const more = DATA.more_chains;
  return section(
    "Slowest operations",
    "chains",
    el("p", { class: "quiet" }, about),
    without.map((kernel) => el("p", { class: "quiet" }, `No chain of ${kernel.name}: ${kernel.no_chains}.`)),
    rows,
    more ? el("p", { class: "quiet" }, `${more[0]} `, el("code", {}, more[1])) : null,
  );
}
