//! Workloads as users name them: each is one program of [`workloads`], or several near-twins, and a parameter says which.
//!
//! Cells name the program that runs ([`report::Key::workload`]); a cell's parameters are the program's parameters alone.

use report::Key;
use workloads::{
    Conditions, ParamInfo, WORKLOADS, Workload, WorkloadInfo, fault_storm, fragmented_fault, thpscale, thpscale_2015,
    vm_larger_than_a_node,
};

use crate::source::unknown;

type Params = [(String, Vec<String>)];

/// A workload in experiment files and in `pagelab list workloads`.
#[derive(Debug)]
pub struct Offered {
    /// Its name.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    programs: &'static [WorkloadInfo],
    choice: Option<Choice>,
}

/// The parameter that says which of several programs runs.
#[derive(Debug)]
struct Choice {
    param: ParamInfo,
    /// Its values, in the order of the programs. That of `param.default` is one of them.
    values: &'static [&'static str],
}

/// A parameter, as `pagelab list workloads` prints it.
#[derive(Debug)]
pub struct OfferedParam {
    /// What the program says of it.
    pub info: ParamInfo,
    /// With which choice it is there, where not with all: `script = 2015`.
    pub only: Option<String>,
}

/// Whose name stands for several.
static MERGED: &[Offered] = &[
    Offered {
        name: "fault-storm",
        about: "will-it-scale's page_fault1, 2 and 3 as a fixed amount of work: mmap, touch, munmap",
        programs: &[fault_storm::INFO, fault_storm::PAGE_FAULT2, fault_storm::PAGE_FAULT3],
        choice: Some(Choice {
            param: ParamInfo {
                name: "backing",
                expects: "\"anonymous\" (page_fault1), \"private-file\" (page_fault2) or \"shared-file\" (page_fault3)",
                default: "anonymous",
                about: "what is mapped; a store into a private mapping of a file copies a page of it",
            },
            values: &["anonymous", "private-file", "shared-file"],
        }),
    },
    Offered {
        name: "thpscale",
        about: "mmtests' thpscale: fill memory, punch holes of 1 MiB, read a file, then fault 2 MiB blocks",
        programs: &[thpscale_2015::INFO, thpscale::THPSCALE, thpscale::THPCOMPACT],
        choice: Some(Choice {
            param: ParamInfo {
                name: "script",
                expects: "\"2015\" (all thread counts in one run, over one file and counted together), \"2018\", or \"2023\" \
                          (called thpcompact there: the first mapping is advised too, and the file is a quarter as large)",
                default: "2018",
                about: "mmtests' script of which year",
            },
            values: &["2015", "2018", "2023"],
        }),
    },
    Offered {
        name: "thp-locality",
        about: "huge pages where a node's memory is short: the memory of a virtual machine, or a region among holes",
        programs: &[vm_larger_than_a_node::INFO, fragmented_fault::INFO],
        choice: Some(Choice {
            param: ParamInfo {
                name: "program",
                expects: "\"vm\" (vm-larger-than-a-node) or \"region\" (fragmented-fault)",
                default: "vm",
                about: "map and pin the memory of a virtual machine, or fault a region while free memory is in holes",
            },
            values: &["vm", "region"],
        }),
    },
];

/// Every workload, in the order of `pagelab list workloads`.
pub fn all() -> Vec<&'static Offered> {
    static ALL: std::sync::LazyLock<Vec<Offered>> = std::sync::LazyLock::new(|| {
        let merged_as = |program: &WorkloadInfo| {
            MERGED.iter().find(|merged| merged.programs.iter().any(|one| one.name == program.name))
        };
        let single = WORKLOADS.iter().filter(|program| merged_as(program).is_none());
        let alone = single.map(|program| Offered {
            name: program.name,
            about: program.about,
            programs: std::slice::from_ref(program),
            choice: None,
        });
        alone.collect()
    });
    MERGED.iter().chain(ALL.iter()).collect()
}

/// The workload of this name, or the message that there is none.
pub fn find(name: &str) -> Result<&'static Offered, String> {
    let all = all();
    if let Some(found) = all.iter().find(|offered| offered.name == name) {
        return Ok(found);
    }
    for offered in &all {
        if let Some((choice, value)) = offered.choice_of(name) {
            return Err(format!("{name} is workload {:?} with {} = {value:?}", offered.name, choice.param.name));
        }
    }
    let names: Vec<_> = all.iter().map(|offered| offered.name).collect();
    Err(unknown("workload", name, &names))
}

impl Offered {
    /// The parameters of all of its programs, the one that chooses between them first.
    pub fn params(&self) -> Vec<OfferedParam> {
        let choice = self.choice.iter().map(|choice| OfferedParam { info: choice.param, only: None });
        let mut params: Vec<_> = choice.collect();
        // Those of the program that runs by default come first.
        let default = self.default_program();
        for program in [default].into_iter().chain(self.programs) {
            for info in program.params {
                if params.iter().all(|known| known.info.name != info.name) {
                    params.push(OfferedParam { info: *info, only: self.only(info.name) });
                }
            }
        }
        for info in default.shared_params() {
            params.push(OfferedParam { info, only: None });
        }
        params
    }

    /// The names of its parameters.
    pub fn param_names(&self) -> Vec<&'static str> {
        self.params().iter().map(|param| param.info.name).collect()
    }

    /// The names of its programs.
    pub(crate) fn program_names(&self) -> Vec<&'static str> {
        self.programs.iter().map(|program| program.name).collect()
    }

    /// Which program runs when nobody chooses.
    pub(crate) fn default_program(&self) -> &'static WorkloadInfo {
        let Some(choice) = &self.choice else { return &self.programs[0] };
        let index = choice.values.iter().position(|value| *value == choice.param.default);
        &self.programs[index.expect("the default is among the values")]
    }

    /// The programs that these parameters choose, in the order of their values; or the value that chooses none.
    pub(crate) fn chosen(&self, params: &Params) -> Result<Vec<&'static WorkloadInfo>, BadChoice> {
        let values = params.iter().find(|(name, _)| self.chooses(name)).map(|(_, values)| values.as_slice());
        let (Some(choice), Some(values)) = (&self.choice, values) else { return Ok(vec![self.default_program()]) };
        let program = |value: &String| match choice.values.iter().position(|known| known == value) {
            Some(index) => Ok(&self.programs[index]),
            None => Err(BadChoice { param: choice.param, found: value.clone() }),
        };
        values.iter().map(program).collect()
    }

    /// Whether the parameter of this name says which program runs.
    pub(crate) fn chooses(&self, name: &str) -> bool {
        self.choice.as_ref().is_some_and(|choice| choice.param.name == name)
    }

    /// With which choice a parameter is there, where not with all.
    pub(crate) fn only(&self, param: &str) -> Option<String> {
        let choice = self.choice.as_ref()?;
        let programs = choice.values.iter().zip(self.programs);
        let values: Vec<_> = programs.filter(|(_, program)| has(program, param)).map(|(value, _)| *value).collect();
        (values.len() < self.programs.len()).then(|| format!("{} = {}", choice.param.name, values.join(" or ")))
    }

    fn choice_of(&self, program: &str) -> Option<(&Choice, &'static str)> {
        let choice = self.choice.as_ref()?;
        let index = self.programs.iter().position(|one| one.name == program)?;
        Some((choice, choice.values[index]))
    }
}

/// Whether a program has a parameter of this name.
pub(crate) fn has(program: &WorkloadInfo, param: &str) -> bool {
    program.params.iter().any(|known| known.name == param)
        || program.shared_params().iter().any(|known| known.name == param)
}

/// The parameters among `names` that the program of a cell has, for messages.
pub(crate) fn those(key: &Key, names: &[&str]) -> String {
    let program =
        WORKLOADS.iter().find(|program| program.name == key.workload).expect("it was found when it was planned");
    let names: Vec<_> = names.iter().copied().filter(|name| has(program, name)).collect();
    names.join(", ")
}

/// Whether a name after `--set` means a kernel setting: those have a dot or a slash, parameters of workloads do not.
pub fn is_setting(name: &str) -> bool {
    name.contains(['.', '/'])
}

/// The workload of a key. Keys carry settings too, which workloads do not see.
pub(crate) fn of_key(key: &Key) -> Result<Workload, String> {
    let params = key.params.iter().filter(|(name, _)| !is_setting(name));
    Workload::parse(&key.workload, params.map(|(name, value)| (name.as_str(), value.as_str())))
        .map_err(|error| error.to_string())
}

/// Conditions that are set before the workload of a key starts.
pub(crate) fn conditions(key: &Key) -> Result<Conditions, String> {
    let params = key.params.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Conditions::of(&key.workload, params).map_err(|error| error.to_string())
}

/// The workload of a planned cell.
pub(crate) fn planned(key: &Key) -> Workload {
    of_key(key).expect("it was parsed when the grid was laid")
}

/// A value that chooses no program.
#[derive(Debug)]
pub(crate) struct BadChoice {
    pub(crate) param: ParamInfo,
    pub(crate) found: String,
}

impl std::fmt::Display for BadChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {}, found {:?}", self.param.expects, self.found)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_program_is_offered_once() {
        let offered: Vec<_> = all().iter().flat_map(|offered| offered.programs).map(|program| program.name).collect();
        let known: BTreeSet<_> = WORKLOADS.iter().map(|program| program.name).collect();
        assert_eq!(offered.len(), known.len());
        assert_eq!(offered.into_iter().collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn what_shares_a_name_is_alike() {
        for offered in all() {
            let values = offered.choice.as_ref().map_or(1, |choice| choice.values.len());
            assert_eq!(values, offered.programs.len(), "{}", offered.name);
            let presses = |program: &WorkloadInfo| Workload::parse(program.name, []).unwrap().presses();
            let first = presses(offered.default_program());
            assert!(offered.programs.iter().all(|program| presses(program) == first), "{}", offered.name);
            let names = offered.param_names();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}: {names:?}", offered.name);
        }
    }

    #[test]
    fn a_parameter_chooses_the_program() {
        let thpscale = find("thpscale").unwrap();
        let chosen = |values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let programs = thpscale.chosen(&[("script".to_owned(), values)]).map_err(|error| error.to_string())?;
            Ok::<_, String>(programs.iter().map(|program| program.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["2015"]).unwrap(), ["thpscale-2015"]);
        assert_eq!(chosen(&["2023", "2018"]).unwrap(), ["thpcompact", "thpscale"]);
        assert_eq!(thpscale.chosen(&[]).unwrap()[0].name, "thpscale");
        assert!(chosen(&["2019"]).unwrap_err().starts_with("expected \"2015\" ("));
        assert_eq!(thpscale.only("counts").as_deref(), Some("script = 2015"));
        assert_eq!(thpscale.only("threads").as_deref(), Some("script = 2018 or 2023"));
        assert_eq!(thpscale.only("size"), None);
    }

    #[test]
    fn the_name_of_a_program_leads_to_its_workload() {
        assert_eq!(find("thpcompact").unwrap_err(), "thpcompact is workload \"thpscale\" with script = \"2023\"");
        assert!(find("thpscal").unwrap_err().contains("did you mean \"thpscale\"?"));
    }
}
