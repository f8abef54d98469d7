//! An operation and its chain as text: at most ten lines of eighty columns.

use std::cmp::Reverse;

use report::{WIDTH, short::text::fold};
use units::Time;

use super::{
    chain::{self, Sentence},
    explained::Explained,
    numbers::{seconds, span},
};

/// Most lines of an operation.
const LINES: usize = 10;
/// Causes that are named.
const CAUSES: usize = 4;
/// Columns before a sentence: its instant.
const INDENT: usize = 15;

/// The lines of an operation.
pub(super) fn block(explained: &Explained) -> String {
    let Explained { stall, key, what, place: of, is_thread, start_ps, time_ps, task, cpu, vpn, order, parts, facts } =
        explained;
    let of_task = if *is_thread { String::new() } else { format!(" of task {task}") };
    let head = format!(
        "{stall}. {what}{of_task} at {} s, {}: {} {} on {}, seed {}",
        seconds(Time(*start_ps)),
        span(*time_ps),
        key.experiment,
        key.case,
        key.kernel,
        key.seed
    );
    let page = vpn.map(|vpn| format!("page {vpn:#x}, "));
    let order = order.map(|order| format!("order {order}, "));
    let place = format!("{}{}CPU {cpu}: {}", page.unwrap_or_default(), order.unwrap_or_default(), causes(parts));
    let mut lines = indented(&head, 0, 3);
    lines.extend(indented(&place, 3, 3));
    let mut sentences = chain::sentences(facts, (*task, *time_ps));
    if let Some(of) = of {
        for sentence in &mut sentences {
            sentence.text.insert_str(0, &format!("{of}: "));
        }
    }
    let room = LINES.saturating_sub(lines.len());
    let whole = fitting(&sentences, room);
    let kept = if whole.len() < sentences.len() { fitting(&sentences, room.saturating_sub(1)) } else { whole };
    lines.extend(kept.iter().flat_map(|at| told(&sentences[*at])));
    if facts.is_empty() {
        lines.push("   nothing was decided for it: it waited, or worked".to_owned());
    }
    let left_out = sentences.len() - kept.len();
    if left_out > 0 {
        lines.push(format!("   {left_out} more in --format json"));
    }
    lines.join("\n") + "\n"
}

/// The sentences that fit into `room` lines, the highest ranks first; in the order of the chain.
fn fitting(sentences: &[Sentence], room: usize) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..sentences.len()).collect();
    by_rank.sort_by_key(|at| Reverse(sentences[*at].rank));
    let mut used = 0;
    let mut kept: Vec<usize> = Vec::new();
    for at in by_rank {
        let lines = told(&sentences[at]).len();
        if used + lines <= room {
            used += lines;
            kept.push(at);
        }
    }
    kept.sort_unstable();
    kept
}

/// Time by cause, as far as it has room in a line; the rest is one number.
fn causes(parts: &[(String, u64)]) -> String {
    let (named, rest) = parts.split_at(parts.len().min(CAUSES));
    let mut words: Vec<String> = named.iter().map(|(cause, ps)| format!("{cause} {}", span(*ps))).collect();
    match rest {
        [] => {}
        [(cause, ps)] => words.push(format!("{cause} {}", span(*ps))),
        rest => words.push(format!("{} more {}", rest.len(), span(rest.iter().map(|(_, ps)| ps).sum()))),
    }
    words.join(", ")
}

fn told(sentence: &Sentence) -> Vec<String> {
    let text = fold(&sentence.text, WIDTH - INDENT);
    let at = format!("{} s", seconds(sentence.at));
    let heads = std::iter::once(at).chain(std::iter::repeat(String::new()));
    heads.zip(text).map(|(head, line)| format!("{head:>13}  {line}")).collect()
}

/// A text in lines, the first line and the others with their indents.
fn indented(text: &str, first: usize, others: usize) -> Vec<String> {
    let lines = fold(text, WIDTH - first.max(others));
    let indents = std::iter::once(first).chain(std::iter::repeat(others));
    indents.zip(lines).map(|(indent, line)| format!("{:indent$}{line}", "")).collect()
}
