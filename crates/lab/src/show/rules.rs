//! Lines on rules: the rules of another release that a simulated column uses, and mechanisms of the column's release
//! that no rule has.

use ::rules::variant::major_minor;
use report::{WIDTH, short::text::fold};

use crate::plan::SimulatedColumn;

/// Settings and builds of distributions that no variant has, whatever its release.
const OF_DISTRIBUTIONS: &str = "MGLRU and memory cgroups where a distribution has them on";

/// Lines for above the tables; none where every column has the rules of its release, and all that its release brought.
pub(super) fn lines(simulated: &[SimulatedColumn]) -> Vec<String> {
    let (mut whose, mut lacks): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for column in simulated {
        let others = of_another(column);
        whose.extend(others.filter(|words| !whose.contains(words)));
        for what in &column.variant.not_modelled {
            if !lacks.contains(&what.as_str()) {
                lacks.push(what);
            }
        }
    }
    let whose = (!whose.is_empty()).then(|| whose.join("; "));
    let lacks = (!lacks.is_empty()).then(|| format!("not modelled: {}; {OF_DISTRIBUTIONS}", lacks.join(", ")));
    whose.into_iter().chain(lacks).flat_map(|line| fold(&line, WIDTH)).collect()
}

/// `v5.15: rules of 5.14`, for a column whose rules are of another release than its kernel.
fn of_another(column: &SimulatedColumn) -> Option<String> {
    let bare = |name: &str| name.trim_start_matches('v').to_owned();
    if let Some((release, rules)) = &column.variant.stands_in {
        return Some(format!("{release}: rules of {}", bare(rules)));
    }
    let release = column.chosen_for.as_deref()?;
    let rules = bare(&column.variant.name);
    (major_minor(release) != major_minor(&rules)).then(|| format!("{release}: rules of {rules}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::simulated_by;

    #[test]
    fn columns_say_whose_rules_they_have_and_what_their_releases_lack() {
        let of = |names: &[(&str, Option<&str>)]| {
            let columns: Vec<SimulatedColumn> =
                names.iter().map(|(name, release)| simulated_by(name, *release)).collect();
            lines(&columns)
        };
        assert_eq!(of(&[("v6.1", None), ("v4.1-rc2+1", None), ("v6.1", Some("6.1.0-25-amd64"))]), [""; 0]);
        assert_eq!(
            of(&[("v5.15", None), ("v4.9", None), ("v5.15", None)]),
            ["v5.15: rules of 5.14; v4.9: rules of 4.8"]
        );
        assert_eq!(of(&[("v5.14", Some("5.15.0-91-generic"))]), ["5.15.0-91-generic: rules of 5.14"]);
        let newest = of(&[("v6.18", None), ("v7.2", None)]);
        assert_eq!(newest[0], "v6.18: rules of 6.15; v7.2: rules of 6.18");
        assert_eq!(
            newest[1..].join(" "),
            "not modelled: multi-size huge pages (6.8), exact free lists (6.10), defrag_mode (6.15); MGLRU and memory \
             cgroups where a distribution has them on"
        );
        assert!(newest.iter().all(|line| line.chars().count() <= WIDTH), "{newest:?}");
    }
}
