//! The guard: a small process of our own that puts back what we changed, however we end.
//!
//! Before a setting is changed or a scratch directory is filled, the guard is told how to undo it and has said that it
//! knows. When its input closes (we finished, panicked, were interrupted or were killed outright) it undoes everything
//! in reverse order and ends. It is a session of its own, so that Ctrl-C does not reach it.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use nix::{
    sys::signal::{SigSet, Signal},
    unistd::setsid,
};
use serde::{Deserialize, Serialize};

use crate::setting;

/// The hidden subcommand that runs [`serve`].
pub const GUARD_COMMAND: &str = "guard";

/// One thing to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Undo {
    Restore { name: String, value: String },
    Remove { directory: PathBuf },
}

/// A handle on the guard process. Dropping it, on whatever path, makes the guard undo everything.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    restores: Vec<String>,
}

impl Guard {
    /// Starts the guard: this program again.
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(GUARD_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
        #[expect(unsafe_code, reason = "only pre_exec runs between fork and exec")]
        // SAFETY: setsid and sigprocmask are async-signal-safe, and nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).thread_block()?;
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("the guard's output is a pipe"));
        Ok(Self { child, orders, answers, restores: Vec::new() })
    }

    /// Changes a setting; the value it has now is put back at the end, once, however often it is changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), setting::SettingError> {
        setting::check_writable(name)?;
        if !self.restores.iter().any(|known| known == name) {
            let old = setting::read(name)?;
            self.order(&Undo::Restore { name: name.to_owned(), value: old }).map_err(|source| {
                setting::SettingError::Io { name: name.to_owned(), path: PathBuf::from("the guard process"), source }
            })?;
            self.restores.push(name.to_owned());
        }
        setting::write(name, value)
    }

    /// Removes a directory with all its contents at the end.
    pub fn remove_at_end(&mut self, directory: &Path) -> io::Result<()> {
        self.order(&Undo::Remove { directory: directory.to_owned() })
    }

    fn order(&mut self, undo: &Undo) -> io::Result<()> {
        let orders = self.orders.as_mut().expect("orders are only closed when the guard is dropped");
        let mut line = serde_json::to_vec(undo)?;
        line.push(b'\n');
        orders.write_all(&line)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer == "noted\n" { Ok(()) } else { Err(io::Error::other("the guard process died")) }
    }

    /// Undoes everything now. The error lists what could not be undone.
    pub fn finish(mut self) -> Result<(), String> {
        self.close()
    }

    fn close(&mut self) -> Result<(), String> {
        if self.orders.take().is_none() {
            return Ok(());
        }
        let mut failures = String::new();
        let read = io::Read::read_to_string(&mut self.answers, &mut failures);
        let status = self.child.wait();
        match (read, status) {
            (Ok(_), Ok(status)) if status.success() => Ok(()),
            (Ok(_), Ok(_)) => Err(failures.trim_end().to_owned()),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // On an error path nobody can be told but the user.
        if let Err(failures) = self.close() {
            let _ = writeln!(io::stderr(), "pagelab: not everything could be put back: {failures}");
        }
    }
}

/// The guard process: notes orders until its input closes, then undoes them in reverse order. The error says what could
/// not be undone.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<(), String> {
    let mut undos = Vec::new();
    for line in input.lines() {
        let Ok(line) = line else { break };
        // A line cut off by the death of its writer was never answered, so its change was never made.
        let Ok(undo) = serde_json::from_str::<Undo>(&line) else { break };
        undos.push(undo);
        if output.write_all(b"noted\n").and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    let failures: Vec<_> = undos.iter().rev().filter_map(|undo| perform(undo).err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

fn perform(undo: &Undo) -> Result<(), String> {
    match undo {
        Undo::Restore { name, value } => setting::write(name, value).map_err(|error| error.to_string()),
        Undo::Remove { directory } => match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", directory.display())),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_go_when_the_input_closes() {
        let scratch = tempfile::tempdir().unwrap();
        let doomed = scratch.path().join("doomed");
        std::fs::create_dir_all(doomed.join("inside")).unwrap();
        let order = serde_json::to_string(&Undo::Remove { directory: doomed.clone() }).unwrap();
        let mut answers = Vec::new();
        assert_eq!(serve(format!("{order}\n{{\"torn").as_bytes(), &mut answers), Ok(()));
        assert_eq!(answers, b"noted\n");
        assert!(!doomed.exists());
    }

    #[test]
    fn what_cannot_be_undone_is_said() {
        let order = Undo::Restore { name: "vm.no_such_setting".to_owned(), value: "1".to_owned() };
        let order = serde_json::to_string(&order).unwrap();
        let failure = serve(format!("{order}\n").as_bytes(), Vec::new()).unwrap_err();
        assert!(failure.contains("vm.no_such_setting"), "{failure}");
    }
}
