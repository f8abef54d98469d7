//! Names that results of a series' experiments can have, whichever parameters and columns were run.

use memory::event::Event;
use report::{
    Published,
    published::{Possible, words},
};
use workloads::Workload;

use crate::{experiment::Experiment, published, workload::Offered};

/// The names of its experiments' columns, of their workloads' parameters, and of the built-in series about the same experiments,
/// whose rows are made.
pub(super) fn possible(series: &Published) -> Possible {
    let mut possible = Possible::default();
    let experiments: Vec<&str> = experiments(series).collect();
    for experiment in experiments.iter().filter_map(|name| Experiment::load(name).ok()) {
        possible.sets.extend(experiment.columns.iter().filter_map(|column| column.tables.clone()));
        possible.sets.insert(experiment.name.clone());
        add_workload(&mut possible, experiment.workload);
    }
    let is_about = |built_in: &Published| self::experiments(built_in).any(|name| experiments.contains(&name));
    for built_in in published::built_in().filter(is_about) {
        for [set, metric, case, _] in built_in.all().iter().map(report::Printed::place) {
            possible.sets.insert(set.to_owned());
            possible.rows.insert((metric.to_owned(), case.to_owned()));
        }
    }
    // A table of counters leaves out those that did not move.
    possible.metrics.extend(Event::ALL.iter().map(|event| event.name().to_owned()));
    possible
}

fn experiments(series: &Published) -> impl Iterator<Item = &str> {
    series.source.experiment.iter().chain(&series.source.also).map(String::as_str)
}

/// Parameters, the words that they take, and the sets and cases that come of each.
fn add_workload(possible: &mut Possible, workload: &Offered) {
    for param in workload.params() {
        possible.words.extend(words(param.info.name));
        // `"no" or "yes"`: every second piece is a word.
        let quoted = param.info.expects.split('"').skip(1).step_by(2).chain([param.info.default]);
        for word in quoted {
            possible.words.extend(words(word));
            let of = |program: &&str| Workload::parse(program, [(param.info.name, word)]).ok();
            for cell in workload.program_names().iter().filter_map(of) {
                possible.words.extend(words(&cell.case()));
                possible.sets.extend(cell.tables());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_takes_sets_and_parameter_words_of_its_experiments() {
        let possible = possible(&published::load("s2").expect("a series"));
        for set in ["will-it-scale-processes", "will-it-scale-threads", "memhog", "two-guests", "free-page-reporting"] {
            assert!(possible.sets.contains(set), "{set} is not among {:?}", possible.sets);
        }
        assert!(["tasks", "threads", "processes"].iter().all(|word| possible.words.contains(*word)), "{possible:?}");
        assert!(possible.metrics.contains("compact_stall"));
    }
}
