//! Contents of /proc files, as they were read.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::ProcError;

/// Texts of /proc and /sys by a path that does not depend on where they were found.
///
/// Keys: `zoneinfo` `meminfo` `vmstat` `buddyinfo` `pagetypeinfo` `version` `cmdline` `sys/vm/NAME`
/// `transparent_hugepage/{enabled,defrag}` `node/nodeN/{cpulist,distance,meminfo}` `cpu/cpuN/thread_siblings_list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capture {
    /// Key to text.
    pub texts: BTreeMap<String, String>,
}

const REQUIRED: [&str; 3] = ["zoneinfo", "version", "meminfo"];
const OPTIONAL: [&str; 4] = ["vmstat", "buddyinfo", "pagetypeinfo", "cmdline"];
const HUGEPAGE: [&str; 2] = ["enabled", "defrag"];
const NODE: [&str; 3] = ["cpulist", "distance", "meminfo"];

/// Files of /proc/sys/vm that do something when they are read, or tell nothing.
const ACTIONS: [&str; 3] = ["compact_memory", "drop_caches", "stat_refresh"];

/// Where a directory keeps the kernel's files.
struct Layout {
    proc: PathBuf,
    hugepage: PathBuf,
    node: PathBuf,
    cpu: PathBuf,
    /// Between a CPU's directory and its file.
    topology: &'static str,
}

impl Capture {
    /// This machine, now.
    pub fn live() -> Result<Self, ProcError> {
        Self::from_layout(&Layout::root(Path::new("/")))
    }

    /// A recording: a copy of a root directory (`proc/zoneinfo`, `sys/devices/system/node/...`), or one directory whose
    /// relative paths are our keys.
    pub fn from_dir(dir: &Path) -> Result<Self, ProcError> {
        let root = dir.join("proc/zoneinfo").exists();
        Self::from_layout(&if root { Layout::root(dir) } else { Layout::flat(dir) })
    }

    /// The files that a directory has, however few, in the form of [`Self::from_dir`].
    pub fn gathered(dir: &Path) -> Self {
        let root = dir.join("proc").is_dir();
        let mut capture = Self::default();
        capture.gather(&if root { Layout::root(dir) } else { Layout::flat(dir) });
        capture
    }

    /// The text at `key`.
    pub fn text(&self, key: &str) -> Result<&str, ProcError> {
        self.texts.get(key).map(String::as_str).ok_or_else(|| ProcError::Missing { file: key.to_owned() })
    }

    /// Every text whose key is `prefix`, something, and `suffix`; with the something.
    pub fn matching<'a>(&'a self, prefix: &'a str, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts.iter().filter_map(move |(key, text)| {
            let middle = key.strip_prefix(prefix)?.strip_suffix(suffix)?;
            (!middle.contains('/')).then_some((middle, text.as_str()))
        })
    }

    /// Reads zoneinfo first: the kernel recomputes protection when somebody reads `vm.lowmem_reserve_ratio`
    /// (lowmem_reserve_ratio_sysctl_handler, mm/page_alloc.c, v6.1), so that a second capture may show other figures.
    fn from_layout(layout: &Layout) -> Result<Self, ProcError> {
        let mut capture = Self::default();
        for name in REQUIRED {
            let path = layout.proc.join(name);
            let text = read(&path).map_err(|source| ProcError::Read { path, source })?;
            capture.texts.insert(name.to_owned(), text);
        }
        capture.gather(layout);
        Ok(capture)
    }

    /// Adds every file that is there and not yet read.
    fn gather(&mut self, layout: &Layout) {
        for name in REQUIRED.into_iter().chain(OPTIONAL) {
            self.add(name.to_owned(), &layout.proc.join(name));
        }
        let vm = layout.proc.join("sys/vm");
        for name in names(&vm).filter(|name| !ACTIONS.contains(&name.as_str())) {
            self.add(format!("sys/vm/{name}"), &vm.join(name));
        }
        for name in HUGEPAGE {
            self.add(format!("transparent_hugepage/{name}"), &layout.hugepage.join(name));
        }
        for node in names(&layout.node).filter(|name| is_numbered(name, "node")) {
            for name in NODE {
                self.add(format!("node/{node}/{name}"), &layout.node.join(&node).join(name));
            }
        }
        for cpu in names(&layout.cpu).filter(|name| is_numbered(name, "cpu")) {
            let path = layout.cpu.join(&cpu).join(layout.topology).join("thread_siblings_list");
            self.add(format!("cpu/{cpu}/thread_siblings_list"), &path);
        }
    }

    /// Adds a file, unless it cannot be read: kernels and their configurations differ in which they have.
    fn add(&mut self, key: String, path: &Path) {
        if !self.texts.contains_key(&key)
            && let Ok(text) = read(path)
        {
            self.texts.insert(key, text);
        }
    }
}

impl Layout {
    fn root(dir: &Path) -> Self {
        Self {
            proc: dir.join("proc"),
            hugepage: dir.join("sys/kernel/mm/transparent_hugepage"),
            node: dir.join("sys/devices/system/node"),
            cpu: dir.join("sys/devices/system/cpu"),
            topology: "topology",
        }
    }

    fn flat(dir: &Path) -> Self {
        Self {
            proc: dir.to_owned(),
            hugepage: dir.join("transparent_hugepage"),
            node: dir.join("node"),
            cpu: dir.join("cpu"),
            topology: "",
        }
    }
}

/// The kernel's own files are ASCII; a boot loader's command line need not be.
fn read(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn names(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn both_layouts_give_the_same_keys() {
        let (root, flat) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = [
            ("proc/zoneinfo", "zoneinfo"),
            ("proc/version", "version"),
            ("proc/meminfo", "meminfo"),
            ("proc/sys/vm/min_free_kbytes", "sys/vm/min_free_kbytes"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "transparent_hugepage/enabled"),
            ("sys/devices/system/node/node12/cpulist", "node/node12/cpulist"),
            ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "cpu/cpu3/thread_siblings_list"),
        ];
        write(root.path(), &files.map(|(name, key)| (name, key)));
        write(flat.path(), &files.map(|(_, key)| (key, key)));
        write(root.path(), &[("proc/sys/vm/drop_caches", "0"), ("sys/devices/system/cpu/cpufreq/boost", "1")]);
        let capture = Capture::from_dir(root.path()).unwrap();
        assert_eq!(capture, Capture::from_dir(flat.path()).unwrap());
        assert_eq!(capture.texts.len(), files.len());
        assert!(capture.texts.iter().all(|(key, text)| key == text));
        assert_eq!(capture.matching("node/node", "/cpulist").collect::<Vec<_>>(), [("12", "node/node12/cpulist")]);
    }

    #[test]
    fn a_directory_without_zoneinfo_is_no_capture() {
        let dir = tempfile::tempdir().unwrap();
        let error = Capture::from_dir(dir.path()).unwrap_err();
        assert!(matches!(&error, ProcError::Read { path, .. } if path.ends_with("zoneinfo")), "{error}");
        let missing = Capture::default().text("cmdline").unwrap_err();
        assert_eq!(missing.to_string(), "cmdline is not in this capture");
    }

    #[test]
    fn this_machine_can_be_captured() {
        let capture = Capture::live().unwrap();
        assert!(capture.text("version").unwrap().starts_with("Linux version "));
        assert!(ACTIONS.iter().all(|name| capture.text(&format!("sys/vm/{name}")).is_err()));
        let json = serde_json::to_string(&capture).unwrap();
        assert_eq!(serde_json::from_str::<Capture>(&json).unwrap(), capture);
    }
}
