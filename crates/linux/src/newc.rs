//! Writes initramfs images: cpio archives in the `newc` format, without root and without `cpio`.
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst. The same calls give the same bytes: times are
//! zero, owners are root, inode numbers count up.

use std::collections::BTreeSet;

use thiserror::Error;

/// An archive under construction, in memory. Paths are relative to the root of the guest; a leading `/` is dropped.
/// Parent directories that were not added before appear with mode 0755.
#[derive(Debug, Default)]
pub struct Newc {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
    others: BTreeSet<String>,
}

/// The numbers of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl DeviceNumber {
    /// `/dev/console`: what init has as its three standard streams.
    pub const CONSOLE: Self = Self { major: 5, minor: 1 };
    /// `/dev/null`.
    pub const NULL: Self = Self { major: 1, minor: 3 };
}

/// Why an entry cannot be written.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum NewcError {
    /// Not a path inside the guest.
    #[error("{path:?}: expected a path in the guest without empty, `.` or `..` parts and without NUL")]
    BadPath {
        /// The path as given.
        path: String,
    },
    /// Something is already there.
    #[error("{path:?}: added twice; expected each path once, and no file where a directory is")]
    Duplicate {
        /// The path as given.
        path: String,
    },
    /// Sizes are 32 bits.
    #[error("{path:?}: {size_bytes} bytes; expected less than 4 GiB, which is what newc can say")]
    TooLarge {
        /// The path as given.
        path: String,
        /// How large it is.
        size_bytes: u64,
    },
}

/// The fields in which two headers differ.
struct Header<'a> {
    mode: u32,
    links: u32,
    device: DeviceNumber,
    name: &'a str,
    data: &'a [u8],
}

const NO_DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 0 };
const TRAILER: &str = "TRAILER!!!";

impl Newc {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory with these permission bits. One that is already there stays as it is.
    pub fn directory(&mut self, path: &str, permissions: u32) -> Result<(), NewcError> {
        let path = self.prepare(path)?;
        if self.others.contains(path) {
            return Err(NewcError::Duplicate { path: path.to_owned() });
        }
        if self.directories.insert(path.to_owned()) {
            self.append(&Header { mode: 0o04_0000 | permissions, links: 2, device: NO_DEVICE, name: path, data: &[] });
        }
        Ok(())
    }

    /// A regular file.
    pub fn file(&mut self, path: &str, permissions: u32, data: &[u8]) -> Result<(), NewcError> {
        self.leaf(path, 0o10_0000 | permissions, NO_DEVICE, data)
    }

    /// A symbolic link at `path` that says `target`.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), NewcError> {
        self.leaf(path, 0o12_0777, NO_DEVICE, target.as_bytes())
    }

    /// A character device node.
    pub fn char_device(&mut self, path: &str, permissions: u32, device: DeviceNumber) -> Result<(), NewcError> {
        self.leaf(path, 0o02_0000 | permissions, device, &[])
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.append(&Header { mode: 0, links: 1, device: NO_DEVICE, name: TRAILER, data: &[] });
        self.bytes
    }

    /// Anything but a directory.
    fn leaf(&mut self, path: &str, mode: u32, device: DeviceNumber, data: &[u8]) -> Result<(), NewcError> {
        if u32::try_from(data.len()).is_err() {
            return Err(NewcError::TooLarge { path: path.to_owned(), size_bytes: data.len() as u64 });
        }
        let path = self.prepare(path)?;
        if self.directories.contains(path) || !self.others.insert(path.to_owned()) {
            return Err(NewcError::Duplicate { path: path.to_owned() });
        }
        self.append(&Header { mode, links: 1, device, name: path, data });
        Ok(())
    }

    /// Checks `path` and adds the directories above it: the kernel unpacks in order and makes none by itself.
    fn prepare<'a>(&mut self, path: &'a str) -> Result<&'a str, NewcError> {
        let name = path.strip_prefix('/').unwrap_or(path);
        let is_bad = |part: &str| matches!(part, "" | "." | "..");
        if name.split('/').any(is_bad) || name.contains('\0') || name == TRAILER {
            return Err(NewcError::BadPath { path: path.to_owned() });
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent, 0o755)?;
        }
        Ok(name)
    }

    fn append(&mut self, header: &Header<'_>) {
        self.entries += 1;
        let inode = if header.name == TRAILER { 0 } else { self.entries };
        let size = u32::try_from(header.data.len()).expect("leaf() refused what does not fit");
        let name_size = u32::try_from(header.name.len() + 1).expect("a path is shorter than 4 GiB");
        let DeviceNumber { major, minor } = header.device;
        // Owner, group and time are zero; so are the numbers of the device that holds the archive, and the checksum.
        let fields = [inode, header.mode, 0, 0, header.links, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(header.name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(header.data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Entry {
        inode: u32,
        mode: u32,
        mtime: u32,
        device: (u32, u32),
        name: String,
        data: Vec<u8>,
    }

    /// Reads an archive back by the format's text alone, up to the trailer, which must end it.
    fn read(archive: &[u8]) -> Vec<Entry> {
        let mut at = 0;
        let mut entries = Vec::new();
        loop {
            assert_eq!(at % 4, 0, "headers are aligned");
            let header = str::from_utf8(&archive[at..at + 110]).unwrap();
            let field = |n: usize| u32::from_str_radix(&header[6 + 8 * n..14 + 8 * n], 16).unwrap();
            assert_eq!(&header[..6], "070701");
            let name_end = at + 110 + field(11) as usize;
            let name = String::from_utf8(archive[at + 110..name_end - 1].to_vec()).unwrap();
            assert_eq!(archive[name_end - 1], 0);
            let data_start = name_end.next_multiple_of(4);
            let data = archive[data_start..data_start + field(6) as usize].to_vec();
            at = (data_start + data.len()).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(at, archive.len());
                return entries;
            }
            let (inode, mode, mtime, device) = (field(0), field(1), field(5), (field(9), field(10)));
            entries.push(Entry { inode, mode, mtime, device, name, data });
        }
    }

    fn sample() -> Vec<u8> {
        let mut archive = Newc::new();
        archive.directory("dev", 0o755).unwrap();
        archive.char_device("dev/console", 0o600, DeviceNumber::CONSOLE).unwrap();
        archive.char_device("/dev/null", 0o666, DeviceNumber::NULL).unwrap();
        archive.file("lib/deep/data", 0o640, b"12345").unwrap();
        archive.file("init", 0o755, b"").unwrap();
        archive.symlink("lib64", "lib").unwrap();
        archive.finish()
    }

    #[test]
    fn round_trip() {
        let entry = |inode, mode, device, name: &str, data: &[u8]| Entry {
            inode,
            mode,
            mtime: 0,
            device,
            name: name.to_owned(),
            data: data.to_vec(),
        };
        let expected = [
            entry(1, 0o04_0755, (0, 0), "dev", b""),
            entry(2, 0o02_0600, (5, 1), "dev/console", b""),
            entry(3, 0o02_0666, (1, 3), "dev/null", b""),
            entry(4, 0o04_0755, (0, 0), "lib", b""),
            entry(5, 0o04_0755, (0, 0), "lib/deep", b""),
            entry(6, 0o10_0640, (0, 0), "lib/deep/data", b"12345"),
            entry(7, 0o10_0755, (0, 0), "init", b""),
            entry(8, 0o12_0777, (0, 0), "lib64", b"lib"),
        ];
        assert_eq!(read(&sample()), expected);
        assert_eq!(sample(), sample());
    }

    #[test]
    fn bad_entries_are_refused() {
        let mut archive = Newc::new();
        archive.file("bin/sh", 0o755, b"#").unwrap();
        archive.directory("bin", 0o700).unwrap();
        for path in ["", "/", "a//b", "a/../b", "./a", "a\0b", "TRAILER!!!"] {
            assert_eq!(archive.file(path, 0o644, b""), Err(NewcError::BadPath { path: path.to_owned() }));
        }
        for path in ["bin/sh", "/bin/sh", "bin"] {
            assert!(matches!(archive.file(path, 0o644, b""), Err(NewcError::Duplicate { .. })), "{path}");
        }
        assert!(matches!(archive.file("bin/sh/x", 0o644, b""), Err(NewcError::Duplicate { .. })));
        assert_eq!(read(&archive.finish()).len(), 2);
    }

    #[test]
    fn cpio_agrees() {
        let cpio = Command::new("cpio").args(["-t", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut cpio = match cpio {
            Ok(child) => child,
            Err(error) => {
                return crate::module::tests::skip("newc::cpio_agrees", &format!("cpio does not run: {error}"));
            }
        };
        cpio.stdin.take().unwrap().write_all(&sample()).unwrap();
        let output = cpio.wait_with_output().unwrap();
        assert!(output.status.success());
        let listing = String::from_utf8(output.stdout).unwrap();
        let expected = "dev\ndev/console\ndev/null\nlib\nlib/deep\nlib/deep/data\ninit\nlib64\n";
        assert_eq!(listing, expected);
    }
}
