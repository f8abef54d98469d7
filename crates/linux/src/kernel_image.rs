//! Kernel images: what a bzImage says about itself, and the cache where fetched kernels live.
//!
//! The layout of the cache is `CACHE/kernels/RELEASE/{vmlinuz,modules/}`; `cargo xtask kernel` fills it.

use std::{
    cmp::Ordering,
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A bootable x86-64 bzImage, and the modules that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// The image file.
    pub path: PathBuf,
    /// The release that `uname -r` will print in the guest, such as `6.1.0-50-cloud-amd64`.
    pub release: String,
    /// The directory that holds `kernel/` and `modules.builtin`; none when the kernel came without modules.
    pub modules: Option<PathBuf>,
}

/// Why a kernel cannot be used.
#[derive(Debug, Error)]
pub enum KernelImageError {
    /// There is no such file.
    #[error("{}: no such file; expected an x86-64 bzImage", path.display())]
    Missing {
        /// The file as given.
        path: PathBuf,
    },
    /// The file is there, but reading it failed.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "{}: {found}; expected an x86-64 bzImage (arch/x86/boot/bzImage of a build, or a distribution's vmlinuz)",
        path.display()
    )]
    NotBzImage {
        /// The file.
        path: PathBuf,
        /// The kind of the file.
        found: FileKind,
    },
    /// The file ends before the image does.
    #[error("{}: truncated: {actual_bytes} bytes, and its header promises {expected_bytes}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length by the header: set-up sectors and `syssize`.
        expected_bytes: u64,
        /// Length of the file.
        actual_bytes: u64,
    },
    /// A kernel for 32-bit machines.
    #[error("{}: a 32-bit kernel (xloadflags has no XLF_KERNEL_64); expected an x86-64 bzImage", path.display())]
    Bits32 {
        /// The file.
        path: PathBuf,
    },
    /// An image from before the header said what we need.
    #[error("{}: boot protocol {}.{}; expected 2.12 (Linux 3.8) or later", path.display(), version >> 8, version & 0xff)]
    OldProtocol {
        /// The file.
        path: PathBuf,
        /// Major version in the high byte, minor in the low one.
        version: u16,
    },
    /// The header points at no version string.
    #[error("{}: the header names no kernel release; expected a version string such as 6.1.0", path.display())]
    NoRelease {
        /// The file.
        path: PathBuf,
    },
    /// The cache holds no kernel of this version.
    #[error(
        "kernel {wanted} is not in the cache {} (there: {}); `cargo xtask kernel {}` fetches it",
        dir.display(), listed(cached), version_or_example(wanted)
    )]
    NotFetched {
        /// The version as given.
        wanted: String,
        /// The directory looked into.
        dir: PathBuf,
        /// The releases that are there, oldest first.
        cached: Vec<String>,
    },
    /// None of the three variables that could name the cache is set.
    #[error("no place for the cache; expected PAGELAB_CACHE, XDG_CACHE_HOME or HOME in the environment")]
    NoCacheDir,
}

/// The kind of a file that is no bzImage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Zero bytes.
    Empty,
    /// A directory.
    Directory,
    /// An ELF file for the machine of this number (`e_machine`).
    Elf(u16),
    /// An ARM64 `Image`.
    Arm64Image,
    /// An EFI zboot wrapper, as arm64 and RISC-V use it.
    Zboot,
    /// A RISC-V `Image`.
    RiscvImage,
    /// gzip data.
    Gzip,
    /// Nothing we know.
    Unknown,
}

/// Opens the kernel that a user names on the command line: a path, or a version looked up in the user's cache.
pub fn resolve(name_or_path: &str) -> Result<KernelImage, KernelImageError> {
    let path = Path::new(name_or_path);
    if name_or_path.contains('/') || path.exists() {
        return KernelImage::open(path);
    }
    KernelCache::at(cache_dir()?).resolve_version(name_or_path)
}

/// Releases in the user's cache, oldest first.
pub fn list_cached() -> Result<Vec<String>, KernelImageError> {
    KernelCache::at(cache_dir()?).releases()
}

/// Where pagelab keeps what it fetched: `$PAGELAB_CACHE`, else `pagelab` in the user's cache directory.
pub fn cache_dir() -> Result<PathBuf, KernelImageError> {
    cache_dir_from(|name| std::env::var_os(name))
}

fn cache_dir_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, KernelImageError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("PAGELAB_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("pagelab")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/pagelab")))
        .ok_or(KernelImageError::NoCacheDir)
}

/// The kernels under one cache directory.
#[derive(Clone, Debug)]
pub struct KernelCache {
    dir: PathBuf,
}

impl KernelCache {
    /// The cache rooted at `dir`, which need not exist.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Where the kernel of this release is, or would be.
    pub fn release_dir(&self, release: &str) -> PathBuf {
        self.kernels_dir().join(release)
    }

    /// The releases in the cache, oldest first.
    pub fn releases(&self) -> Result<Vec<String>, KernelImageError> {
        let dir = self.kernels_dir();
        let broken = |source| KernelImageError::Io { path: dir.clone(), source };
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(broken(source)),
        };
        let mut releases = Vec::new();
        for entry in entries {
            let entry = entry.map_err(broken)?;
            if let Ok(release) = entry.file_name().into_string()
                && entry.path().join("vmlinuz").is_file()
            {
                releases.push(release);
            }
        }
        releases.sort_by(|a, b| compare_versions(a, b));
        Ok(releases)
    }

    /// The newest cached kernel whose release begins with `version`, component by component.
    pub fn resolve_version(&self, version: &str) -> Result<KernelImage, KernelImageError> {
        let cached = self.releases()?;
        match cached.iter().rfind(|release| release_matches(release, version)) {
            Some(release) => KernelImage::open(&self.release_dir(release).join("vmlinuz")),
            None => Err(KernelImageError::NotFetched { wanted: version.to_owned(), dir: self.kernels_dir(), cached }),
        }
    }

    fn kernels_dir(&self) -> PathBuf {
        self.dir.join("kernels")
    }
}

impl KernelImage {
    /// Whether the checksum that the build appends to an image is right: the CRC-32 of the whole file leaves no remainder
    /// (Documentation/x86/boot.rst, "The image checksum", v6.1). A signed image, and one of a kernel that dropped the
    /// checksum, do not match either, so this only explains an image that does not boot.
    pub fn checksum_matches(&self) -> bool {
        // The usual final inversion turns a remainder of zero into all ones.
        const NO_REMAINDER: u32 = u32::MAX;
        fs::read(&self.path).is_ok_and(|image| {
            let mut crc = flate2::Crc::new();
            crc.update(&image);
            crc.sum() == NO_REMAINDER
        })
    }

    /// Reads the boot header of the image at `path` and finds the modules beside it.
    pub fn open(path: &Path) -> Result<Self, KernelImageError> {
        let broken = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => KernelImageError::Missing { path: path.to_owned() },
            _ => KernelImageError::Io { path: path.to_owned(), source },
        };
        let metadata = fs::metadata(path).map_err(broken)?;
        if metadata.is_dir() {
            return Err(KernelImageError::NotBzImage { path: path.to_owned(), found: FileKind::Directory });
        }
        let mut head = Vec::new();
        File::open(path).and_then(|file| file.take(SETUP_BYTES_MAX).read_to_end(&mut head)).map_err(broken)?;
        let release = read_release(path, &head, metadata.len())?;
        let modules = find_modules(path, &release);
        Ok(Self { path: path.to_owned(), release, modules })
    }
}

// Offsets: Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
const SETUP_SECTS: usize = 0x1f1;
const SYSSIZE: usize = 0x1f4; // in paragraphs of 16 bytes
const BOOT_FLAG: usize = 0x1fe;
const MAGIC: usize = 0x202;
const PROTOCOL: usize = 0x206;
const VERSION_POINTER: usize = 0x20e; // relative to 0x200
const XLOADFLAGS: usize = 0x236;
const XLF_KERNEL_64: u16 = 1;
/// `setup_sects` is one byte; the boot sector comes on top.
const SETUP_BYTES_MAX: u64 = 256 * 512;

/// Checks the header in `head`, the first bytes of the file, and returns the release it names.
fn read_release(path: &Path, head: &[u8], actual_bytes: u64) -> Result<String, KernelImageError> {
    let path = path.to_owned();
    if u16_at(head, BOOT_FLAG) != Some(0xaa55) || head.get(MAGIC..MAGIC + 4) != Some(b"HdrS".as_slice()) {
        return Err(KernelImageError::NotBzImage { path, found: FileKind::of(head) });
    }
    let (Some(version), Some(flags), Some(syssize)) =
        (u16_at(head, PROTOCOL), u16_at(head, XLOADFLAGS), u32_at(head, SYSSIZE))
    else {
        return Err(KernelImageError::Truncated { path, expected_bytes: XLOADFLAGS as u64 + 2, actual_bytes });
    };
    if version < 0x020c {
        return Err(KernelImageError::OldProtocol { path, version });
    }
    if flags & XLF_KERNEL_64 == 0 {
        return Err(KernelImageError::Bits32 { path });
    }
    // Zero means four, by the documentation.
    let setup_sects = if head[SETUP_SECTS] == 0 { 4 } else { u64::from(head[SETUP_SECTS]) };
    let expected_bytes = (setup_sects + 1) * 512 + u64::from(syssize) * 16;
    if actual_bytes < expected_bytes {
        return Err(KernelImageError::Truncated { path, expected_bytes, actual_bytes });
    }
    let release = match u16_at(head, VERSION_POINTER) {
        None | Some(0) => None,
        Some(pointer) => first_word(head, usize::from(pointer) + 0x200),
    };
    release.ok_or(KernelImageError::NoRelease { path })
}

/// The word at `offset`, up to a blank or a zero byte.
fn first_word(bytes: &[u8], offset: usize) -> Option<String> {
    let word = bytes.get(offset..)?.split(|&byte| byte == 0 || byte == b' ').next()?;
    let word =
        str::from_utf8(word).ok().filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic()))?;
    (!word.contains('/')).then(|| word.to_owned())
}

/// `modules/` beside the image, as in our cache; else `lib/modules/RELEASE` of the root whose `boot/` holds the image.
fn find_modules(image: &Path, release: &str) -> Option<PathBuf> {
    let dir = match image.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    let installed = |lib: &str| dir.join("..").join(lib).join("modules").join(release);
    [dir.join("modules"), installed("lib"), installed("usr/lib")].into_iter().find(|candidate| candidate.is_dir())
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

impl FileKind {
    fn of(head: &[u8]) -> Self {
        if head.is_empty() {
            Self::Empty
        } else if head.starts_with(b"\x7fELF") {
            Self::Elf(elf_machine(head).unwrap_or(0))
        } else if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if head.get(4..8) == Some(b"zimg") {
            Self::Zboot
        } else if head.get(0x38..0x3c) == Some(b"ARM\x64") {
            Self::Arm64Image
        } else if head.get(0x38..0x3c) == Some(b"RSC\x05") {
            Self::RiscvImage
        } else {
            Self::Unknown
        }
    }
}

/// `e_machine`, in the byte order that `e_ident` announces.
fn elf_machine(head: &[u8]) -> Option<u16> {
    let machine = u16_at(head, 18)?;
    Some(if head.get(5) == Some(&2) { machine.swap_bytes() } else { machine })
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "an empty file",
            Self::Directory => "a directory",
            Self::Elf(62) => "an ELF file for x86-64 (the vmlinux of a build?)",
            // Numbers: include/uapi/linux/elf-em.h.
            Self::Elf(3) => "an ELF file for i386",
            Self::Elf(21) => "an ELF file for ppc64",
            Self::Elf(22) => "an ELF file for s390",
            Self::Elf(40) => "an ELF file for arm",
            Self::Elf(183) => "an ELF file for aarch64",
            Self::Elf(243) => "an ELF file for riscv",
            Self::Elf(258) => "an ELF file for loongarch",
            Self::Elf(machine) => return write!(f, "an ELF file for machine {machine}"),
            Self::Arm64Image => "an arm64 Image",
            Self::Zboot => "an EFI zboot image, which x86 does not use",
            Self::RiscvImage => "a riscv Image",
            Self::Gzip => "gzip data",
            Self::Unknown => "no boot header",
        })
    }
}

fn listed(releases: &[String]) -> String {
    if releases.is_empty() { "nothing".to_owned() } else { releases.join(", ") }
}

/// A version that the user may fetch: a name that is no version cannot be fetched.
fn version_or_example(wanted: &str) -> &str {
    if wanted.starts_with(|c: char| c.is_ascii_digit()) { wanted } else { "6.1" }
}

// ---- Versions

/// Orders kernel releases by age: numbers as numbers, and a release candidate before its release.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    let (a, b) = (components(a), components(b));
    if let Some((a, b)) = a.iter().zip(&b).find(|(a, b)| a != b) {
        return a.cmp(b);
    }
    let common = a.len().min(b.len());
    let is_candidate = |tail: &[Component]| tail.first() == Some(&Component::Word("rc".to_owned()));
    match (is_candidate(&a[common..]), is_candidate(&b[common..])) {
        (true, _) => Ordering::Less,
        (_, true) => Ordering::Greater,
        _ => a.len().cmp(&b.len()),
    }
}

/// Does `release` begin with `version`, component by component? `6.1` takes 6.1.0-50, and never 6.12.
pub fn release_matches(release: &str, version: &str) -> bool {
    let wanted = components(version.strip_prefix('v').unwrap_or(version));
    matches!(wanted.first(), Some(Component::Number(_))) && components(release).starts_with(&wanted)
}

/// A word sorts before a number: 6.12-rc1 before 6.12.1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Component {
    Word(String),
    Number(u64),
}

fn components(version: &str) -> Vec<Component> {
    let mut found = Vec::new();
    for part in version.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut rest = part;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c: char| c.is_ascii_digit() != first.is_ascii_digit()).unwrap_or(rest.len());
            let (run, tail) = rest.split_at(end);
            found.push(run.parse().map_or_else(|_| Component::Word(run.to_owned()), Component::Number));
            rest = tail;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image whose header holds exactly what `open` reads: one set-up sector, one paragraph of kernel.
    fn image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 3 * 512 + 16];
        bytes[SETUP_SECTS] = 2;
        bytes[SYSSIZE] = 1;
        bytes[BOOT_FLAG..BOOT_FLAG + 2].copy_from_slice(&[0x55, 0xaa]);
        bytes[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        bytes[PROTOCOL..PROTOCOL + 2].copy_from_slice(&[0x0f, 0x02]);
        bytes[VERSION_POINTER..VERSION_POINTER + 2].copy_from_slice(&[0x00, 0x01]);
        bytes[XLOADFLAGS] = 0x7f;
        let banner = format!("{release} (someone@somewhere) #1 SMP");
        bytes[0x300..0x300 + banner.len()].copy_from_slice(banner.as_bytes());
        bytes
    }

    fn open_bytes(bytes: &[u8]) -> Result<KernelImage, KernelImageError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmlinuz");
        fs::write(&path, bytes).unwrap();
        KernelImage::open(&path)
    }

    fn found(bytes: &[u8]) -> FileKind {
        match open_bytes(bytes) {
            Err(KernelImageError::NotBzImage { found, .. }) => found,
            other => panic!("expected NotBzImage, got {other:?}"),
        }
    }

    #[test]
    fn reads_the_release_and_finds_modules_in_both_layouts() {
        let root = tempfile::tempdir().unwrap();
        let boot = root.path().join("boot");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("vmlinuz"), image("6.1.0-50-cloud-amd64")).unwrap();
        let opened = KernelImage::open(&boot.join("vmlinuz")).unwrap();
        assert_eq!((opened.release.as_str(), &opened.modules), ("6.1.0-50-cloud-amd64", &None));

        let installed = root.path().join("lib/modules/6.1.0-50-cloud-amd64");
        fs::create_dir_all(&installed).unwrap();
        let modules = KernelImage::open(&boot.join("vmlinuz")).unwrap().modules.unwrap();
        assert_eq!(modules.canonicalize().unwrap(), installed.canonicalize().unwrap());

        fs::create_dir_all(boot.join("modules")).unwrap();
        assert_eq!(KernelImage::open(&boot.join("vmlinuz")).unwrap().modules, Some(boot.join("modules")));
    }

    #[test]
    fn says_what_the_file_is_instead() {
        let mut elf = vec![0; 1024];
        elf[..4].copy_from_slice(b"\x7fELF");
        elf[18] = 183;
        assert_eq!(found(&elf), FileKind::Elf(183));
        assert_eq!(FileKind::Elf(183).to_string(), "an ELF file for aarch64");
        elf[5] = 2;
        elf[18..20].copy_from_slice(&[0, 22]);
        assert_eq!(found(&elf), FileKind::Elf(22));
        let mut arm = vec![0; 1024];
        arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
        assert_eq!(found(&arm), FileKind::Arm64Image);
        assert_eq!(found(&[0x1f, 0x8b, 8, 0]), FileKind::Gzip);
        assert_eq!(found(b""), FileKind::Empty);
        assert_eq!(found(b"#!/bin/sh\n"), FileKind::Unknown);

        let dir = tempfile::tempdir().unwrap();
        let error = KernelImage::open(dir.path()).unwrap_err();
        assert!(matches!(error, KernelImageError::NotBzImage { found: FileKind::Directory, .. }), "{error}");
        let error = KernelImage::open(&dir.path().join("none")).unwrap_err();
        assert!(matches!(error, KernelImageError::Missing { .. }), "{error}");
    }

    #[test]
    fn refuses_images_that_cannot_boot() {
        let whole = image("6.1.0");
        let error = open_bytes(&whole[..whole.len() - 1]).unwrap_err();
        assert!(error.to_string().ends_with("truncated: 1551 bytes, and its header promises 1552"), "{error}");
        let error = open_bytes(&whole[..0x220]).unwrap_err();
        assert!(matches!(error, KernelImageError::Truncated { .. }), "{error}");

        let mut narrow = whole.clone();
        narrow[XLOADFLAGS] = 0x7e;
        assert!(matches!(open_bytes(&narrow), Err(KernelImageError::Bits32 { .. })));
        let mut old = whole.clone();
        old[PROTOCOL] = 0x0b;
        let error = open_bytes(&old).unwrap_err();
        assert!(error.to_string().contains("boot protocol 2.11;"), "{error}");
        let mut nameless = whole;
        nameless[VERSION_POINTER..VERSION_POINTER + 2].fill(0);
        assert!(matches!(open_bytes(&nameless), Err(KernelImageError::NoRelease { .. })));
    }

    #[test]
    fn versions_resolve_by_component_and_newest_wins() {
        let dir = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(dir.path());
        assert_eq!(cache.releases().unwrap(), Vec::<String>::new());
        for release in ["6.12.9+deb13-cloud-amd64", "6.1.0-9-cloud-amd64", "6.1.0-50-cloud-amd64"] {
            fs::create_dir_all(cache.release_dir(release)).unwrap();
            fs::write(cache.release_dir(release).join("vmlinuz"), image(release)).unwrap();
        }
        fs::create_dir_all(cache.release_dir("6.1.0-99-without-image")).unwrap();

        let release = |version| cache.resolve_version(version).map(|kernel| kernel.release);
        assert_eq!(release("6.1").unwrap(), "6.1.0-50-cloud-amd64");
        assert_eq!(release("v6.1.0-9").unwrap(), "6.1.0-9-cloud-amd64");
        assert_eq!(release("6.12").unwrap(), "6.12.9+deb13-cloud-amd64");
        for absent in ["5.10", "6.1.0-5", "", "bzimage"] {
            assert!(matches!(release(absent), Err(KernelImageError::NotFetched { .. })), "{absent:?} must not resolve");
        }
        let error = release("5.10").unwrap_err().to_string();
        assert!(error.contains("6.1.0-9-cloud-amd64, 6.1.0-50-cloud-amd64, 6.12.9+deb13-cloud-amd64"), "{error}");
        assert!(error.contains("`cargo xtask kernel 5.10`"), "{error}");
    }

    #[test]
    fn versions_sort_as_kernels_age() {
        let sorted =
            ["5.10.0", "6.1.0-0.deb11.52", "6.1.0-9", "6.1.0-50", "6.12-rc1", "6.12", "6.12.1", "6.12.1+deb13"];
        for pair in sorted.windows(2) {
            assert_eq!(compare_versions(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare_versions(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare_versions("6.1.0", "6.1.0"), Ordering::Equal);
    }

    #[test]
    fn the_cache_follows_the_environment() {
        let env = |set: &'static [(&str, &str)]| {
            cache_dir_from(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(env(&[("HOME", "/h")]).unwrap(), Path::new("/h/.cache/pagelab"));
        assert_eq!(env(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(), Path::new("/x/pagelab"));
        assert_eq!(env(&[("PAGELAB_CACHE", "/p"), ("XDG_CACHE_HOME", "/x")]).unwrap(), Path::new("/p"));
        assert_eq!(env(&[("PAGELAB_CACHE", ""), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/pagelab"));
        assert!(matches!(env(&[]), Err(KernelImageError::NoCacheDir)));
    }
}
