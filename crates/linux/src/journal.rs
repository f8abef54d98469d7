//! The journal of settings: on disk until they are put back, what they were before a run changed them.
//!
//! The guard puts settings back when its run is killed. Where both are killed at once (a control group, a container), their
//! journal stays, and the next start does it. Run and guard have a lock on their journal for as long as they live.
//!
//! A journal is a line that names the boot, and a line for each change, on disk before the change is made. Nothing in it is done
//! that a run would not have written: known settings get values of their form, from a file of this user alone.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::{
    host::monotonic_ns,
    kernel_image::cache_dir,
    setting::{self, SettingError},
};

const SUFFIX: &str = "journal";
const VERSION: u32 = 1;
/// More than a line for every setting takes.
const BYTES_MAX: u64 = 1 << 20;
/// A new one with each boot of the kernel, which starts with its own settings (drivers/char/random.c, v6.1).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    pagelab_settings: u32,
    boot: String,
}

/// A change that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) name: String,
    /// The value before the run's first change.
    pub(crate) value: String,
    /// The value that the run writes; none where it changes with another setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
}

/// The journal of a run that lives.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    pub(crate) path: PathBuf,
}

/// The folder of journals: in the cache, or where there is no home for one.
fn folder() -> PathBuf {
    cache_dir().unwrap_or_else(|_| PathBuf::from("/var/lib/pagelab")).join("settings")
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

impl Journal {
    /// Begins one, with the lock of a run.
    pub(crate) fn begin() -> io::Result<Self> {
        let folder = folder();
        let explain = |error: io::Error| {
            let place = folder.display();
            io::Error::new(error.kind(), format!("{place}: {error} (PAGELAB_CACHE chooses another place)"))
        };
        Self::begin_in(&folder).map_err(explain)
    }

    fn begin_in(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let name = format!("{}-{}", std::process::id(), monotonic_ns());
        // The journal gets its name when it has its lock: before that another start might take it for one of the dead.
        let partial = folder.join(format!(".{name}"));
        let path = folder.join(format!("{name}.{SUFFIX}"));
        let mut file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&partial)?;
        let begun = file.lock_shared().and_then(|()| {
            append(&mut file, &Head { pagelab_settings: VERSION, boot: boot()? })?;
            fs::rename(&partial, &path)?;
            File::open(folder)?.sync_all()
        });
        begun.inspect_err(|_| drop(fs::remove_file(&partial)))?;
        Ok(Self { file, path })
    }

    /// Has a change on disk, before it is made.
    pub(crate) fn note(&mut self, change: &Change) -> io::Result<()> {
        append(&mut self.file, change)
    }
}

fn append(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    file.sync_all()
}

/// The lock of a guard on the journal of its run.
pub(crate) fn attend(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    file.lock_shared()?;
    Ok(file)
}

/// Removes a journal whose settings are as they were. One that is gone is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Puts back the settings of runs that were killed with their guards, and says so: a line for each such run.
pub fn put_back() -> Vec<String> {
    put_back_in(&folder())
}

/// Puts back what the journals in a folder say.
pub fn put_back_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut journals: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == SUFFIX)).collect();
    journals.sort();
    let line = |path: &PathBuf| match of_dead_run(path) {
        Ok(done) if done.is_empty() => None,
        Ok(done) => Some(format!("a run that was killed left settings of this machine changed; {}", done.join("; "))),
        Err(problem) => Some(format!(
            "{}: a run that was killed may have left settings of this machine changed, and this cannot be put back: {problem}",
            path.display()
        )),
    };
    journals.iter().filter_map(line).collect()
}

/// Puts back the settings of one journal, and removes it. Those that were put back, or not and why.
fn of_dead_run(path: &Path) -> Result<Vec<String>, String> {
    let text = |error: io::Error| error.to_string();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(text)?,
    };
    let own = file.metadata().map_err(text)?;
    let is_own = own.is_file() && own.uid() == geteuid().as_raw() && own.mode() & 0o777 == 0o600 && own.nlink() == 1;
    if !is_own {
        return Err("expected a file that this user alone can read and write".to_owned());
    }
    match file.try_lock() {
        // The journal's run, or the guard of the run, lives.
        Err(TryLockError::WouldBlock) => return Ok(Vec::new()),
        locked => locked.map_err(|error| error.to_string())?,
    }
    if !fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
        // Another start was faster.
        return Ok(Vec::new());
    }
    let mut journal = String::new();
    Read::take(&file, BYTES_MAX).read_to_string(&mut journal).map_err(text)?;
    let Some(changes) = changes(&journal, &boot().map_err(text)?)? else {
        remove(path).map_err(text)?;
        return Ok(Vec::new());
    };
    // Another run that has changed one of them puts it back itself, to what this one left: not now.
    let mut reserved = Vec::new();
    for change in &changes {
        match setting::reserve(&change.name).map_err(|error| error.to_string())? {
            Some(lock) => reserved.push(lock),
            None => return Ok(Vec::new()),
        }
    }
    let mut done = Vec::new();
    // As the guard does: in reverse order.
    for change in changes.iter().rev() {
        done.extend(undo(change).map_err(|error| error.to_string())?);
    }
    remove(path).map_err(text)?;
    Ok(done)
}

/// Puts one setting back, unless it is as it was or was changed again since.
fn undo(change: &Change) -> Result<Option<String>, SettingError> {
    let Change { name, value, to } = change;
    let now = setting::read(name)?;
    if now == *value {
        return Ok(None);
    }
    if to.as_ref().is_some_and(|to| !setting::is_kept(name, to, &now)) {
        return Ok(Some(format!("{name} was changed again since, and stays {now}")));
    }
    setting::write(name, value)?;
    Ok(Some(format!("{name} is {value} again (it was {now})")))
}

/// The changes in a journal, a setting once; none of an earlier boot.
///
/// # Errors
/// Anything that no run has written.
fn changes(text: &str, boot: &str) -> Result<Option<Vec<Change>>, String> {
    // A line that was cut off was about a change that was not made.
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
    let head = head.filter(|head| head.pagelab_settings == VERSION).ok_or("its first line is no journal's")?;
    if head.boot != boot {
        return Ok(None);
    }
    let mut changes: Vec<Change> = Vec::new();
    for (number, line) in (2..).zip(lines) {
        let change: Change = serde_json::from_str(line).map_err(|_| format!("line {number} is no journal's"))?;
        setting::check_found(&change.name, &change.value)
            .map_err(|problem| format!("line {number}: {:?}: {problem}", change.name))?;
        match changes.iter_mut().find(|before| before.name == change.name) {
            Some(before) => before.to = change.to,
            None => changes.push(change),
        }
    }
    Ok(Some(changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(boot: &str, lines: &[&str]) -> String {
        let head = format!("{{\"pagelab_settings\":1,\"boot\":\"{boot}\"}}");
        std::iter::once(head.as_str()).chain(lines.iter().copied()).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_journal_says_what_a_run_would_and_nothing_else() {
        let swap = r#"{"name":"vm.swappiness","value":"60","to":"10"}"#;
        let again = r#"{"name":"vm.swappiness","value":"60","to":"20"}"#;
        let whole = journal("b", &[swap, r#"{"name":"vm.min_free_kbytes","value":"8192"}"#, again]);
        let found = changes(&whole, "b").unwrap().unwrap();
        let found: Vec<_> =
            found.iter().map(|Change { name, value, to }| (name.as_str(), value.as_str(), to.as_deref())).collect();
        assert_eq!(found, [("vm.swappiness", "60", Some("20")), ("vm.min_free_kbytes", "8192", None)]);
        assert_eq!(changes(&whole, "another boot"), Ok(None));
        let cut = &whole[..whole.len() - 3];
        assert_eq!(changes(cut, "b").unwrap().unwrap()[0].to.as_deref(), Some("10"), "the last line was cut off");
        let foreign = [
            ("", "its first line"),
            ("{}\n", "its first line"),
            (&whole[1..], "its first line"),
            (
                &journal("b", &[r#"{"name":"vm.swappiness","value":"sixty"}"#]),
                "line 2: \"vm.swappiness\": expected a whole",
            ),
            (
                &journal("b", &[swap, r#"{"name":"vm.../../../etc/passwd","value":"1"}"#]),
                "line 3: \"vm.../../../etc/passwd\": no setting",
            ),
            (
                &journal("b", &[r#"{"name":"../../etc/passwd","value":"1"}"#]),
                "line 2: \"../../etc/passwd\": no setting",
            ),
            (&journal("b", &[r#"{"name":"slab.allocator","value":"slab"}"#]), "line 2: \"slab.allocator\": no setting"),
            (
                &journal("b", &[r#"{"name":"vm.dirty_bytes","value":"-1"}"#]),
                "line 2: \"vm.dirty_bytes\": expected a whole",
            ),
            (&journal("b", &[r#"{"name":"vm.swappiness","value":"60","path":"/etc"}"#]), "line 2 is no journal's"),
            (&journal("b", &["{", swap]), "line 2 is no journal's"),
        ];
        for (text, expected) in foreign {
            let said = changes(text, "b").unwrap_err();
            assert!(said.starts_with(expected), "{said} of {text}");
        }
    }

    #[test]
    fn only_a_file_of_this_user_alone_is_believed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(format!("{name}.{SUFFIX}"));
        // Changes nothing, as the kernel was booted again since.
        let text = journal("another boot", &[r#"{"name":"vm.swappiness","value":"60","to":"10"}"#]);
        let write = |name: &str| {
            fs::write(path(name), &text).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("own");
        assert!(put_back_in(folder.path()).is_empty() && !path("own").exists());
        write("open");
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o644)).unwrap();
        write("target");
        fs::rename(path("target"), folder.path().join("target")).unwrap();
        symlink(folder.path().join("target"), path("link")).unwrap();
        write("twice");
        fs::hard_link(path("twice"), folder.path().join("twice")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let lines = put_back_in(folder.path());
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("cannot be put back: ")), "{lines:?}");
        for name in ["open", "link", "twice", "pipe", "folder"] {
            assert!(path(name).symlink_metadata().is_ok(), "{name} is not ours to remove");
        }
        assert!(put_back_in(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn the_journal_of_a_run_that_lives_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::begin_in(folder.path()).unwrap();
        let guard = attend(&journal.path).unwrap();
        let Journal { file, path } = journal;
        drop(file);
        assert!(put_back_in(folder.path()).is_empty() && path.exists(), "its guard lives");
        drop(guard);
        assert!(put_back_in(folder.path()).is_empty() && !path.exists(), "it had changed nothing");
    }
}
