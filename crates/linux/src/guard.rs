//! The guard: a small process of our own that puts back what we changed, however we end.
//!
//! The guard itself can be killed with its run: what settings were is in a [journal](crate::journal) until it has put them back.
//!
//! Before a setting is changed or a scratch directory is filled, the guard is told how to undo it and has said that it
//! knows. When its input closes (we finished, panicked, were interrupted or were killed outright) it undoes everything
//! in reverse order and ends. It is a session of its own, so that Ctrl-C does not reach it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use nix::{
    fcntl::Flock,
    sys::signal::{SigSet, Signal},
    unistd::setsid,
};
use serde::{Deserialize, Serialize};

use crate::{
    journal::{self, Change, Journal},
    setting::{self, SettingError},
};

/// The hidden subcommand that runs [`serve`].
pub const GUARD_COMMAND: &str = "guard";

/// One thing to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Undo {
    Restore {
        name: String,
        value: String,
    },
    Remove {
        directory: PathBuf,
    },
    RemoveInstance {
        directory: PathBuf,
    },
    /// The journal of what is restored: the first order, and the last to be carried out.
    Forget {
        journal: PathBuf,
    },
}

/// A handle on the guard process. Dropping it, on whatever path, makes the guard undo everything.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// A copy of the guard's list, in case it dies before us.
    undos: Vec<Undo>,
    /// Settings that are ours while these are open.
    reserved: Vec<Flock<File>>,
    /// Begun with the first setting.
    journal: Option<Journal>,
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
        Ok(Self { child, orders, answers, undos: Vec::new(), reserved: Vec::new(), journal: None })
    }

    /// Changes a setting. The value that it has now is put back at the end, once, however often the setting is changed; so are
    /// the values of settings that change with it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        setting::check_writable(name)?;
        for disturbed in setting::disturbed_by(name) {
            match self.note(disturbed, None) {
                // A kernel without it cannot disturb it.
                Err(SettingError::Absent { .. }) => {}
                noted => noted?,
            }
        }
        self.note(name, Some(value))?;
        setting::write(name, value)
    }

    /// Has the value that a setting has now put back at the end. What is noted first is put back last.
    fn note(&mut self, name: &str, to: Option<&str>) -> Result<(), SettingError> {
        let known = self.undos.iter().find_map(|undo| match undo {
            Undo::Restore { name: known, value } if known == name => Some(value.clone()),
            _ => None,
        });
        let is_new = known.is_none();
        let value = if let Some(value) = known {
            value
        } else {
            let reserved = setting::reserve(name)?.ok_or_else(|| SettingError::Busy { name: name.to_owned() })?;
            self.reserved.push(reserved);
            setting::read(name)?
        };
        let failed = |path: &str, source| SettingError::Io { name: name.to_owned(), path: path.into(), source };
        let change = Change { name: name.to_owned(), value: value.clone(), to: to.map(str::to_owned) };
        self.journal(&change).map_err(|source| failed("the journal of settings", source))?;
        if !is_new {
            return Ok(());
        }
        self.order(Undo::Restore { name: name.to_owned(), value }).map_err(|source| failed("the guard process", source))
    }

    /// Has a change in the journal, which the guard attends to from its first line on.
    fn journal(&mut self, change: &Change) -> io::Result<()> {
        if self.journal.is_none() {
            let journal = Journal::begin()?;
            let path = journal.path.clone();
            self.order(Undo::Forget { journal: path.clone() }).inspect_err(|_| drop(journal::remove(&path)))?;
            self.journal = Some(journal);
        }
        self.journal.as_mut().expect("it was begun").note(change)
    }

    /// Removes a directory with all its contents at the end.
    pub fn remove_at_end(&mut self, directory: &Path) -> io::Result<()> {
        self.order(Undo::Remove { directory: directory.to_owned() })
    }

    /// Removes a trace instance at the end; what its directory holds is the kernel's.
    pub fn remove_instance_at_end(&mut self, directory: &Path) -> io::Result<()> {
        self.order(Undo::RemoveInstance { directory: directory.to_owned() })
    }

    fn order(&mut self, undo: Undo) -> io::Result<()> {
        let orders = self.orders.as_mut().expect("orders are only closed when the guard is dropped");
        let mut line = serde_json::to_vec(&undo)?;
        line.push(b'\n');
        orders.write_all(&line)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer != "noted\n" {
            return Err(io::Error::other("the guard process died"));
        }
        self.undos.push(undo);
        Ok(())
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
        let ended = self.child.wait();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if status.code().is_some() && read.is_ok() => Err(failures.trim_end().to_owned()),
            // It was killed: what it would have done is ours to do.
            _ => undo_all(&self.undos),
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
    let (mut undos, mut attended) = (Vec::new(), Vec::new());
    for line in input.lines() {
        let Ok(line) = line else { break };
        // A line cut off by the death of its writer was never answered, so its change was never made.
        let Ok(undo) = serde_json::from_str::<Undo>(&line) else { break };
        if let Undo::Forget { journal } = &undo {
            match journal::attend(journal) {
                Ok(lock) => attended.push(lock),
                Err(_) => break,
            }
        }
        undos.push(undo);
        if output.write_all(b"noted\n").and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    undo_all(&undos)
}

/// In reverse order, each whether or not the others succeed; but a journal is kept where something could not be restored.
fn undo_all(undos: &[Undo]) -> Result<(), String> {
    let mut failures = Vec::new();
    for undo in undos.iter().rev() {
        let is_due = failures.is_empty() || !matches!(undo, Undo::Forget { .. });
        failures.extend(is_due.then(|| perform(undo).err()).flatten());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

fn perform(undo: &Undo) -> Result<(), String> {
    match undo {
        // Writing even the same value can mean something: min_free_kbytes counts as set by the user from then on.
        Undo::Restore { name, value } if setting::read(name).is_ok_and(|now| now == *value) => Ok(()),
        Undo::Restore { name, value } => setting::write(name, value).map_err(|error| error.to_string()),
        Undo::Remove { directory } => match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", directory.display())),
            _ => Ok(()),
        },
        Undo::RemoveInstance { directory } => remove_instance(directory),
        Undo::Forget { journal } => journal::remove(journal).map_err(|error| format!("{}: {error}", journal.display())),
    }
}

/// A worker that was killed may still have a file of it open: then the kernel says that it is busy.
fn remove_instance(directory: &Path) -> Result<(), String> {
    let mut attempts = 0;
    // Bound: attempts.
    loop {
        match std::fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempts < BUSY_ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(error) => return Err(format!("{}: {error}", directory.display())),
        }
    }
}

/// How often a busy instance is tried again, and after how long.
const BUSY_ATTEMPTS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

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
