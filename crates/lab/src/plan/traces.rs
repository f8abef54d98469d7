//! `--set trace=FILE`: what a workload holds when, in a file of the user. What is in it becomes the parameter's value, so that
//! guests and workers need no file, and another content is another run.

use std::path::Path;

use workloads::guest_footprint::{INFO, Trace};

use crate::{
    source::{Source, unknown},
    usage::UsageError,
};

/// The value of parameter `name` of a workload: of a trace that is a file, its content.
pub(super) fn read(workload: &str, name: &str, value: String) -> Result<String, UsageError> {
    if workload != INFO.name || name != "trace" || Trace::built_in(&value).is_some() {
        return Ok(value);
    }
    if !value.contains(['/', '.']) && !Path::new(&value).exists() {
        let problem = unknown("trace", &value, &Trace::names());
        return Err(UsageError::of_key("--set trace", format!("{problem}, and there is no such file")));
    }
    let source = Source::read(Path::new(&value))?;
    let trace = Trace::from_csv(source.file(), source.text());
    let trace = trace.map_err(|error| UsageError::in_line(&value, error.line, error.problem))?;
    Ok(trace.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_its_mistakes_have_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.csv");
        let place = file.display().to_string();
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(INFO.name, "trace", place.clone()).map_err(|error| error.to_string())
        };
        assert_eq!(read("seconds,anonymous,file\n0,1MiB,0\n1,0,0\n").unwrap(), "mine.csv 2:0/1MiB/0B 3:1/0B/0B");
        assert_eq!(read("").unwrap_err(), format!("{place}:1: the trace is empty; expected seconds,anonymous,file"));
        let back = read("seconds,anonymous,file\n1,0,0\n0,0,0\n").unwrap_err();
        assert_eq!(back, format!("{place}:3: seconds: expected more than 1, found 0"));
    }

    #[test]
    fn names_and_other_parameters_stay_as_they_are() {
        let of = |workload: &str, name: &str, value: &str| read(workload, name, value.to_owned());
        assert_eq!(of(INFO.name, "trace", "build").unwrap(), "build");
        assert_eq!(of(INFO.name, "size", "1GiB").unwrap(), "1GiB");
        assert_eq!(of("week", "trace", "x").unwrap(), "x");
        let message = of(INFO.name, "trace", "biuld").unwrap_err().to_string();
        assert!(message.starts_with("--set trace: unknown trace \"biuld\"; did you mean \"build\"?"), "{message}");
        let missing = of(INFO.name, "trace", "no/such.csv").unwrap_err().to_string();
        assert_eq!(missing, "no/such.csv: cannot be read: No such file or directory (os error 2)");
    }
}
