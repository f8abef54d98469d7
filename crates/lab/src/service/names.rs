//! Names of processes and phases in a service's file, and values that several tables have.

use workloads::service::{Advising, Event};

use crate::{
    source::{TableReader, unknown},
    usage::UsageError,
};

/// Where a process or a phase stands in the file, for messages about what was found later.
pub(super) struct Written<'a, 'd> {
    pub(super) process: &'a TableReader<'d>,
    pub(super) phases: Vec<TableReader<'d>>,
}

/// Names of processes, each with the names of its phases.
pub(super) type Names = Vec<(String, Vec<String>)>;

pub(super) fn names(written: &[Written<'_, '_>]) -> Result<Names, UsageError> {
    let mut names: Names = Vec::new();
    for one in written {
        let name: String = one.process.required("name")?;
        check_name(one.process, &name)?;
        if names.iter().any(|(known, _)| *known == name) {
            return Err(one.process.error("name", format!("there is another process {name:?} already")));
        }
        let mut phases: Vec<String> = Vec::new();
        for phase in &one.phases {
            let name: String = phase.required(if phase.has("name") { "name" } else { "do" })?;
            check_name(phase, &name)?;
            if phases.contains(&name) {
                return Err(phase.error("name", format!("there is another phase {name:?} already: give it a name")));
            }
            phases.push(name);
        }
        names.push((name, phases));
    }
    Ok(names)
}

/// Names stand in tables and in names of rows.
pub(super) fn check_name(table: &TableReader<'_>, name: &str) -> Result<(), UsageError> {
    const MAX: usize = 32;
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if name.is_empty() || name.len() > MAX || !name.chars().all(is_fine) {
        let expected = format!("expected up to {MAX} letters, digits, - and _");
        return Err(table.error("name", format!("{expected}, found {}", report::brief(format_args!("{name:?}")))));
    }
    Ok(())
}

/// Advice about huge pages.
pub(super) fn advising(table: &TableReader<'_>, key: &str) -> Result<Advising, UsageError> {
    match table.optional::<String>(key)?.as_deref() {
        None | Some("default") => Ok(Advising::Default),
        Some("huge") => Ok(Advising::Huge),
        Some("base") => Ok(Advising::Base),
        Some(other) => Err(table.error(key, unknown("value", other, &["default", "huge", "base"]))),
    }
}

/// A phase that another key names: `store.fill`, or `fill` of the same process.
pub(super) fn event(
    table: &TableReader<'_>,
    key: &str,
    names: &Names,
    own: Option<usize>,
) -> Result<Option<Event>, UsageError> {
    let Some(text) = table.optional::<String>(key)? else { return Ok(None) };
    let all: Vec<String> = names
        .iter()
        .flat_map(|(process, phases)| phases.iter().map(move |phase| format!("{process}.{phase}")))
        .collect();
    let bare = |process: usize| names[process].1.iter().position(|phase| *phase == text).map(|phase| (process, phase));
    let full = |(process, (name, phases)): (usize, &(String, Vec<String>))| {
        let phase = text.strip_prefix(name.as_str())?.strip_prefix('.')?;
        phases.iter().position(|known| known == phase).map(|phase| (process, phase))
    };
    let found = own.and_then(bare).or_else(|| names.iter().enumerate().find_map(full));
    let Some((process, phase)) = found else {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        return Err(table.error(key, unknown("phase", &text, &all)));
    };
    Ok(Some(Event { process: index(process), phase: index(phase) }))
}

pub(super) fn index(number: usize) -> u32 {
    u32::try_from(number).expect("a file has few tables")
}
