//! Kernel modules: which files to load, and in which order, so that a wanted module works in the guest.
//!
//! Debian's packages carry no `modules.dep` (depmod runs at installation), so dependencies come from the modules
//! themselves: the `depends=` entry of their `.modinfo` section. Soft dependencies and aliases are not followed; whoever
//! needs one names it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use liblzma::read::XzDecoder;
use object::{Object, ObjectSection};
use thiserror::Error;

use crate::kernel_image::KernelImage;

/// A module ready for `init_module`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The module's name as `lsmod` prints it, with underscores.
    pub name: String,
    /// The ELF file, uncompressed.
    pub bytes: Vec<u8>,
}

/// Why modules cannot be loaded.
#[derive(Debug, Error)]
pub enum ModuleError {
    /// No such module, neither as a file nor built in.
    #[error(
        "{}: no module {name}{}; expected a file kernel/**/{name}.ko or .ko.xz{}",
        dir.display(), needed(wanted_by.as_deref()), nearest_hint(nearest)
    )]
    Unknown {
        /// The directory of the kernel's modules.
        dir: PathBuf,
        /// The module.
        name: String,
        /// The module that depends on it; none when the caller named it.
        wanted_by: Option<String>,
        /// Names that are there and look alike.
        nearest: Vec<String>,
    },
    /// A compression we do not read.
    #[error("{}: unknown compression; expected .ko or .ko.xz", path.display())]
    Compression {
        /// The file.
        path: PathBuf,
    },
    /// The file is no module.
    #[error("{}: not a module: {reason}; expected a 64-bit ELF file with a .modinfo section", path.display())]
    NotAModule {
        /// The file.
        path: PathBuf,
        /// The mistake in the file.
        reason: String,
    },
    /// Modules that depend on each other in a circle.
    #[error("{}: module {name} depends on itself through others; expected no cycle", dir.display())]
    Cycle {
        /// The directory of the kernel's modules.
        dir: PathBuf,
        /// A module of the circle.
        name: String,
    },
    /// The kernel came without modules.
    #[error("{} has no modules beside it, but these are needed: {}", kernel.display(), wanted.join(", "))]
    None {
        /// The image.
        kernel: PathBuf,
        /// Modules that are needed.
        wanted: Vec<String>,
    },
    /// Reading failed.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system or the decompressor.
        source: io::Error,
    },
}

/// The wanted modules of a kernel with all that they depend on, in load order.
pub fn of_kernel(kernel: &KernelImage, wanted: &[String]) -> Result<Vec<Module>, ModuleError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let dir = kernel
        .modules
        .as_ref()
        .ok_or_else(|| ModuleError::None { kernel: kernel.path.clone(), wanted: wanted.to_vec() })?;
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    ModuleTree::open(dir)?.closure(&wanted)
}

/// Whether a kernel has the wanted modules.
pub fn check(kernel: &KernelImage, wanted: &[String]) -> Result<(), ModuleError> {
    of_kernel(kernel, wanted).map(drop)
}

/// The names that are files beside the kernel: a kernel with a driver built in has no file of that driver, and a kernel put
/// there by hand has no files of modules.
pub fn those_there(kernel: &KernelImage, names: &[String]) -> Result<Vec<String>, ModuleError> {
    let Some(dir) = &kernel.modules else { return Ok(Vec::new()) };
    let tree = ModuleTree::open(dir)?;
    Ok(names.iter().filter(|name| tree.files.contains_key(&canonical(name))).cloned().collect())
}

/// The modules of one kernel, by name.
#[derive(Clone, Debug)]
pub struct ModuleTree {
    dir: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// State of one closure: a depth-first walk that lists dependencies before dependents.
struct Closure<'a> {
    tree: &'a ModuleTree,
    loaded: Vec<Module>,
    done: BTreeSet<String>,
    in_progress: BTreeSet<String>,
}

impl ModuleTree {
    /// Lists what `dir` (the `modules` of a [`KernelImage`](crate::kernel_image::KernelImage)) holds.
    pub fn open(dir: &Path) -> Result<Self, ModuleError> {
        let mut tree = Self { dir: dir.to_owned(), files: BTreeMap::new(), builtin: BTreeSet::new() };
        tree.walk(&dir.join("kernel"))?;
        let list = dir.join("modules.builtin");
        match fs::read_to_string(&list) {
            Ok(text) => tree.builtin = text.lines().filter_map(|line| module_name(Path::new(line))).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ModuleError::Io { path: list, source }),
        }
        Ok(tree)
    }

    /// Is this module part of the kernel image, so that nothing is to load?
    pub fn is_builtin(&self, name: &str) -> bool {
        self.builtin.contains(&canonical(name))
    }

    /// The wanted modules and all that they depend on, in an order in which they load. Built-in ones are left out.
    pub fn closure(&self, wanted: &[&str]) -> Result<Vec<Module>, ModuleError> {
        let mut closure =
            Closure { tree: self, loaded: Vec::new(), done: BTreeSet::new(), in_progress: BTreeSet::new() };
        for name in wanted {
            closure.add(&canonical(name), None)?;
        }
        Ok(closure.loaded)
    }

    /// Recursion is as deep as the directories are; symbolic links are not followed.
    fn walk(&mut self, dir: &Path) -> Result<(), ModuleError> {
        let broken = |source| ModuleError::Io { path: dir.to_owned(), source };
        for entry in fs::read_dir(dir).map_err(broken)? {
            let entry = entry.map_err(broken)?;
            if entry.file_type().map_err(broken)?.is_dir() {
                self.walk(&entry.path())?;
            } else if let Some(name) = module_name(&entry.path()) {
                self.files.insert(name, entry.path());
            }
        }
        Ok(())
    }

    fn unknown(&self, name: &str, wanted_by: Option<&str>) -> ModuleError {
        let mut near: Vec<_> =
            self.files.keys().chain(&self.builtin).map(|known| (strsim::levenshtein(name, known), known)).collect();
        near.sort();
        near.retain(|(distance, _)| *distance <= name.len().div_ceil(3));
        ModuleError::Unknown {
            dir: self.dir.clone(),
            name: name.to_owned(),
            wanted_by: wanted_by.map(str::to_owned),
            nearest: near.into_iter().take(3).map(|(_, known)| known.clone()).collect(),
        }
    }
}

impl Closure<'_> {
    /// Recursion is bounded by the number of modules: one in progress is never entered again.
    fn add(&mut self, name: &str, wanted_by: Option<&str>) -> Result<(), ModuleError> {
        if self.done.contains(name) || self.tree.builtin.contains(name) {
            return Ok(());
        }
        let Some(path) = self.tree.files.get(name) else {
            return Err(self.tree.unknown(name, wanted_by));
        };
        if !self.in_progress.insert(name.to_owned()) {
            return Err(ModuleError::Cycle { dir: self.tree.dir.clone(), name: name.to_owned() });
        }
        let bytes = read_module(path)?;
        for needed in dependencies(path, &bytes)? {
            self.add(&needed, Some(name))?;
        }
        self.in_progress.remove(name);
        self.done.insert(name.to_owned());
        self.loaded.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }
}

/// The kernel treats `-` and `_` alike in module names; files use either.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The module that a file `virtio-blk.ko` or `virtio_blk.ko.xz` holds; none for other files.
fn module_name(path: &Path) -> Option<String> {
    let (stem, compression) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(compression, "" | ".xz" | ".zst" | ".gz").then(|| canonical(stem))
}

fn read_module(path: &Path) -> Result<Vec<u8>, ModuleError> {
    let broken = |source| ModuleError::Io { path: path.to_owned(), source };
    let bytes = fs::read(path).map_err(broken)?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => Ok(bytes),
        Some("xz") => {
            let mut plain = Vec::new();
            XzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map_err(broken)?;
            Ok(plain)
        }
        _ => Err(ModuleError::Compression { path: path.to_owned() }),
    }
}

/// The names in `depends=` of the `.modinfo` section, whose entries are `key=value` and end in NUL.
fn dependencies(path: &Path, bytes: &[u8]) -> Result<Vec<String>, ModuleError> {
    let bad = |reason: String| ModuleError::NotAModule { path: path.to_owned(), reason };
    let elf = object::File::parse(bytes).map_err(|error| bad(error.to_string()))?;
    let section = elf.section_by_name(".modinfo").ok_or_else(|| bad("no .modinfo section".to_owned()))?;
    let modinfo = section.data().map_err(|error| bad(error.to_string()))?;
    let depends = modinfo.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let depends = str::from_utf8(depends.unwrap_or_default()).map_err(|error| bad(error.to_string()))?;
    Ok(depends.split(',').filter(|name| !name.is_empty()).map(canonical).collect())
}

fn needed(wanted_by: Option<&str>) -> String {
    wanted_by.map_or_else(String::new, |by| format!(", which {by} depends on"))
}

fn nearest_hint(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!(" (did you mean {}?)", nearest.join(", ")) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs::OpenOptions, io::Write};

    use units::Bytes;

    use super::*;
    use crate::{
        disk::{Disk, Medium},
        kernel_image,
    };

    /// The skip protocol of `cargo xtask test`: print the reason, and record it where the summary reads it.
    pub(crate) fn skip(name: &str, reason: &str) {
        println!("skipped {name}: {reason}");
        if let Some(path) = std::env::var_os("PAGELAB_SKIPS") {
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            writeln!(file, "{name}\t{reason}").unwrap();
        }
    }

    /// The smallest ELF64 object with a `.modinfo`: header, its data, the section names, three section headers.
    fn elf(modinfo: &[u8]) -> Vec<u8> {
        const NAMES: &[u8] = b"\0.modinfo\0.shstrtab\0";
        let names_at = 64 + modinfo.len();
        let sections_at = (names_at + NAMES.len()).next_multiple_of(8);
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        for half in [1_u16, 62] {
            bytes.extend(half.to_le_bytes()); // relocatable, x86-64
        }
        bytes.extend(1_u32.to_le_bytes());
        for word in [0, 0, sections_at as u64] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        for half in [64_u16, 0, 0, 64, 3, 2] {
            bytes.extend(half.to_le_bytes());
        }
        assert_eq!(bytes.len(), 64);
        bytes.extend(modinfo);
        bytes.extend(NAMES);
        bytes.resize(sections_at, 0);
        for (name, kind, at, len) in [(0_u32, 0_u32, 0, 0), (1, 1, 64, modinfo.len()), (10, 3, names_at, NAMES.len())] {
            bytes.extend(name.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            for word in [0, 0, at as u64, len as u64, 0, 1, 0] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        liblzma::read::XzEncoder::new(bytes, 1).read_to_end(&mut packed).unwrap();
        packed
    }

    /// A tree of module files, by path under `kernel/`, and a `modules.builtin` with virtio_ring in it.
    fn tree(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, ModuleTree) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("kernel")).unwrap();
        for (path, bytes) in files {
            let path = dir.path().join("kernel").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::write(dir.path().join("modules.builtin"), "kernel/drivers/virtio/virtio_ring.ko\n").unwrap();
        let tree = ModuleTree::open(dir.path()).unwrap();
        (dir, tree)
    }

    fn names(modules: &[Module]) -> Vec<&str> {
        modules.iter().map(|module| module.name.as_str()).collect()
    }

    #[test]
    fn dependencies_load_first_and_once() {
        let plain = elf(b"license=GPL\0depends=\0name=virtio\0");
        let (_dir, tree) = tree(&[
            ("drivers/block/virtio_blk.ko.xz", xz(&elf(b"depends=virtio-pci,virtio,virtio_ring\0"))),
            ("drivers/virtio/virtio-pci.ko", elf(b"alias=x\0depends=virtio\0")),
            ("drivers/virtio/virtio.ko.xz", xz(&plain)),
            ("drivers/virtio/README", b"no module".to_vec()),
        ]);
        let modules = tree.closure(&["virtio-blk", "virtio_ring", "virtio"]).unwrap();
        assert_eq!(names(&modules), ["virtio", "virtio_pci", "virtio_blk"]);
        assert_eq!(modules[0].bytes, plain);
        assert!(tree.is_builtin("virtio-ring") && !tree.is_builtin("virtio"));
    }

    #[test]
    fn wrong_modules_are_named() {
        let (_dir, tree) = tree(&[
            ("a.ko", elf(b"depends=b\0")),
            ("b.ko", elf(b"depends=a\0")),
            ("virtio_net.ko", elf(b"depends=gone\0")),
            ("text.ko", b"#!/bin/sh".to_vec()),
            ("bare.ko", elf(b"")),
            ("packed.ko.zst", Vec::new()),
        ]);
        let error = |name: &str| tree.closure(&[name]).unwrap_err();
        assert!(matches!(error("a"), ModuleError::Cycle { .. }));
        assert!(matches!(error("text"), ModuleError::NotAModule { .. }));
        assert!(matches!(error("packed"), ModuleError::Compression { .. }));
        assert!(error("virtio_net").to_string().contains("no module gone, which virtio_net depends on"));
        let text = error("virtio-nett").to_string();
        assert!(text.contains("no module virtio_nett;") && text.contains("(did you mean virtio_net"), "{text}");
        assert_eq!(names(&tree.closure(&["bare"]).unwrap()), ["bare"]);
        let missing = ModuleTree::open(Path::new("no/such/tree")).unwrap_err();
        assert!(missing.to_string().starts_with("no/such/tree/kernel: cannot be read"), "{missing}");
    }

    #[test]
    fn fetched_kernels_have_their_disk_driver() {
        let releases = kernel_image::list_cached().unwrap_or_default();
        if releases.is_empty() {
            let reason = "no kernel in the cache; `cargo xtask kernel 6.1` fetches one";
            return skip("module::fetched_kernels_have_their_disk_driver", reason);
        }
        for release in releases {
            let Some(dir) = kernel_image::resolve(&release).unwrap().modules else {
                continue; // put there by hand, all built in
            };
            let tree = ModuleTree::open(&dir).unwrap();
            let modules = tree.closure(&["virtio_blk", "virtio_pci"]).unwrap();
            let position = |wanted: &str| names(&modules).iter().position(|name| *name == wanted);
            for module in ["virtio", "virtio_ring", "virtio_pci", "virtio_blk"] {
                let is_there = position(module).is_some() || tree.is_builtin(module);
                assert!(is_there, "{release}: {module} is neither loaded nor built in");
            }
            assert!(position("virtio_ring") < position("virtio_blk"), "{release}: {:?}", names(&modules));
            for medium in [Medium::Virtio, Medium::Pmem] {
                let wanted = Disk { size: Bytes::mib(64), swap: Bytes(0), medium }.modules();
                let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
                let modules = tree.closure(&wanted).unwrap_or_else(|error| panic!("{release}: {error}"));
                let last = names(&modules).contains(&"ext4") || tree.is_builtin("ext4");
                assert!(last, "{release}: {:?}", names(&modules));
            }
            assert!(modules.iter().all(|module| module.bytes.starts_with(b"\x7fELF")), "{release}");
        }
    }
}
