//! A guest's disk: ext4 for the files of workloads, and swap.
//!
//! Ordinary guests have virtio disks that are sparse files of this host. Their completions come at instants of the host's, so
//! a replayable guest has none: its disk is memory that the kernel's command line calls persistent (`memmap=SIZE!START`,
//! Documentation/admin-guide/kernel-parameters.txt, v6.1), and what mke2fs wrote here is written to it there.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    unistd::{Whence, lseek64},
};
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::qemu::Accelerator;

/// Where files live in the guest.
pub const DIRECTORY: &str = "/disk";
/// The output of mke2fs, in the guest's archive.
pub(crate) const IMAGE_PATH: &str = "disk.image";
/// Makes file systems; in /sbin, which is not on everybody's PATH.
const MKE2FS: &str = "mke2fs";
/// How long a disk may take to appear after its driver was loaded.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that are looked at and copied at a time.
const BLOCK: usize = 4096;

/// The disks of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Size of the file system.
    pub size: Bytes,
    /// Size of the swap device; none of size 0.
    pub swap: Bytes,
    /// The medium of both.
    pub medium: Medium,
}

/// The medium of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// A file of the host, as a virtio disk.
    Virtio,
    /// Memory of the guest.
    Pmem,
}

impl Disk {
    /// A disk with room for `files` bytes of files, and for swap.
    pub fn new(files: Bytes, swap: Bytes, accelerator: Accelerator) -> Self {
        let medium = match accelerator {
            Accelerator::Replayable { .. } => Medium::Pmem,
            Accelerator::Kvm | Accelerator::Tcg => Medium::Virtio,
        };
        Self { size: Self::size_for(files), swap: Bytes(swap.0.next_multiple_of(Bytes::HUGE_PAGE.0)), medium }
    }

    /// The size of a disk that holds `files` bytes of files, each of 4 KiB or more, beside what the file system itself takes:
    /// inodes, directories, the journal.
    pub fn size_for(files: Bytes) -> Bytes {
        Bytes((files.0 + files.0 / 4 + Bytes::mib(64).0).next_multiple_of(Bytes::HUGE_PAGE.0))
    }

    /// Modules that a kernel needs for it, where they are not built in. Nothing depends on the checksums by name, but ext4
    /// asks for them (ext4_fill_super, fs/ext4/super.c, v6.1).
    pub fn modules(self) -> Vec<String> {
        let drivers: &[&str] = match self.medium {
            Medium::Virtio => &["virtio_pci", "virtio_blk"],
            Medium::Pmem => &["nd_e820", "nd_pmem"],
        };
        drivers.iter().chain(&["crc32c_generic", "ext4"]).map(|name| (*name).to_owned()).collect()
    }

    fn devices(self) -> [&'static str; 2] {
        match self.medium {
            Medium::Virtio => ["/dev/vda", "/dev/vdb"],
            Medium::Pmem => ["/dev/pmem0", "/dev/pmem1"],
        }
    }
}

// ---- On the host

/// Where mke2fs is.
pub fn find_mke2fs() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = places.map(|place| place.join(MKE2FS)).find(|file| file.is_file());
    found.ok_or_else(|| format!("{MKE2FS} is not there; Debian's package e2fsprogs has it"))
}

/// Makes the file system in a sparse file. The same size gives the same bytes.
pub(crate) fn make(disk: Disk, image: &Path) -> Result<(), String> {
    let explain = |error: io::Error| format!("{}: {error}", image.display());
    File::create(image).and_then(|file| file.set_len(disk.size.0)).map_err(explain)?;
    let mut command = Command::new(find_mke2fs()?);
    // One inode per 4 KiB: files may be that small. Nothing is zeroed that is zero already. All that mke2fs would draw or
    // look up is given.
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "4096", "-m", "0", "-L", "pagelab"]);
    command.args(["-O", "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super"]);
    command.args(["-O", "large_file,huge_file,dir_nlink,extra_isize,metadata_csum"]);
    command.args(["-U", "70616765-6c61-4220-8000-000000000001"]);
    command.args(["-E", "lazy_itable_init=1,lazy_journal_init=1,hash_seed=70616765-6c61-4220-8000-000000000002"]);
    command.env("E2FSPROGS_FAKE_TIME", "1767225600").env("MKE2FS_CONFIG", "/dev/null").arg(image);
    let made = command.stdin(Stdio::null()).output().map_err(|error| format!("{MKE2FS}: {error}"))?;
    if made.status.success() {
        return Ok(());
    }
    Err(format!("{MKE2FS} {}: {}", made.status, String::from_utf8_lossy(&made.stderr).trim()))
}

/// A sparse file for the swap device; the guest writes its header.
pub(crate) fn make_swap(disk: Disk, image: &Path) -> Result<(), String> {
    let made = File::create(image).and_then(|file| file.set_len(disk.swap.0));
    made.map_err(|error| format!("{}: {error}", image.display()))
}

/// The blocks of an image that are not zero: place, length and bytes of each run.
pub(crate) fn pack(image: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(image)?;
    let (end, mut at) = (file.metadata()?.len(), 0);
    let mut packed = Vec::new();
    while at < end {
        at = match lseek64(&file, at.cast_signed(), Whence::SeekData) {
            Ok(data) => data.cast_unsigned() / BLOCK as u64 * BLOCK as u64,
            // There is nothing but a hole.
            Err(nix::errno::Errno::ENXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let hole = lseek64(&file, at.cast_signed(), Whence::SeekHole)?.cast_unsigned();
        file.seek(SeekFrom::Start(at))?;
        let mut block = [0; BLOCK];
        while at < hole {
            file.read_exact(&mut block)?;
            if block.iter().any(|byte| *byte != 0) {
                packed.extend(at.to_le_bytes());
                packed.extend(block);
            }
            at += BLOCK as u64;
        }
    }
    Ok(packed)
}

/// Where the guest's memory ends when its last part is a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Memory of the guest beside that of its nodes.
    pub(crate) extra: Bytes,
    /// Words about the disk on the kernel's command line.
    pub(crate) words: String,
}

/// The guest's archive lies at the top of what is below 4 GiB; there must be room for it that is no disk.
const TOP: Bytes = Bytes::mib(64);
/// From this memory size on, QEMU's `pc` machine has 3 GiB below 4 GiB, and the rest above (hw/i386/pc_piix.c, 7.2).
const SPLIT_FROM: Bytes = Bytes::mib(3584);
const LOW: Bytes = Bytes::gib(3);
const HIGH: Bytes = Bytes::gib(4);

/// Lays a disk of memory behind `memory`. All memory that is neither is reserved, so that the kernel manages what it would
/// without the disk, but for its struct pages (1.6 % of the disk).
pub(crate) fn layout(memory: Bytes, disk: Disk) -> Layout {
    let devices = disk.size + disk.swap;
    let all = memory + devices + TOP;
    let kib = |size: Bytes| format!("{}K", size.as_kib());
    let part = |size: Bytes, sign: &str, start: Bytes| format!("memmap={}{sign}{}", kib(size), kib(start));
    let (start, size, extra, reserved) = if all < SPLIT_FROM {
        let top = Bytes(memory.0 + devices.0);
        (memory, disk.size, devices + TOP, Some(part(TOP, "$", top)))
    } else if memory >= LOW {
        (Bytes(HIGH.0 + memory.0 - LOW.0), disk.size, devices, None)
    } else {
        // All of the disk above 4 GiB, and enough of it that there is an above.
        let size = Bytes(disk.size.0.max(SPLIT_FROM.0 - LOW.0));
        let gap = Bytes(LOW.0 - memory.0);
        (HIGH, size, gap + size + disk.swap, Some(part(gap, "$", memory)))
    };
    let mut words = vec![part(size, "!", start)];
    if disk.swap > Bytes(0) {
        words.push(part(disk.swap, "!", Bytes(start.0 + size.0)));
    }
    words.extend(reserved);
    Layout { extra, words: words.join(" ") }
}

// ---- In the guest

/// Mounts the file system and switches swap on.
pub(crate) fn attach(disk: Disk) -> Result<(), String> {
    let [files, swap] = disk.devices();
    wait_for(files)?;
    let explain = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    if disk.medium == Medium::Pmem {
        unpack(&Path::new("/").join(IMAGE_PATH), Path::new(files)).map_err(|error| explain(files, &error))?;
    }
    fs::create_dir_all(DIRECTORY).map_err(|error| explain(DIRECTORY, &error))?;
    // Inode tables are zero already; no thread shall zero them again while something is measured.
    mount(Some(files), DIRECTORY, Some("ext4"), MsFlags::MS_NOATIME, Some("noinit_itable"))
        .map_err(|error| explain(&format!("mount {files} on {DIRECTORY}"), &error))?;
    if disk.swap > Bytes(0) {
        wait_for(swap)?;
        swap_on(swap, disk.swap).map_err(|error| explain(&format!("swap on {swap}"), &error))?;
    }
    Ok(())
}

fn wait_for(device: &str) -> Result<(), String> {
    const LOOK_UP: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while !Path::new(device).exists() {
        if waited >= PATIENCE {
            return Err(format!("{device} does not appear; does the kernel have its driver?"));
        }
        thread::sleep(LOOK_UP);
        waited += LOOK_UP;
    }
    Ok(())
}

fn unpack(packed: &Path, device: &Path) -> io::Result<()> {
    let packed = fs::read(packed)?;
    let device = File::options().write(true).open(device)?;
    for run in packed.chunks_exact(size_of::<u64>() + BLOCK) {
        let (at, block) = run.split_at(size_of::<u64>());
        device.write_all_at(block, u64::from_le_bytes(at.try_into().expect("eight bytes")))?;
    }
    device.sync_all()
}

/// Writes the header of a swap area (union swap_header, include/linux/swap.h, v6.1) and switches it on.
fn swap_on(device: &str, size: Bytes) -> io::Result<()> {
    let pages = u32::try_from(size.frames().0).map_err(|_| io::Error::other("too large"))?;
    let mut file = File::options().write(true).open(device)?;
    file.write_all(&swap_header(pages))?;
    file.sync_all()?;
    drop(file);
    let path = std::ffi::CString::new(device).expect("device names hold no NUL");
    #[expect(unsafe_code, reason = "nix does not wrap swapon")]
    // SAFETY: the kernel only reads the path, which ends in NUL.
    let status = unsafe { libc::swapon(path.as_ptr(), 0) };
    nix::errno::Errno::result(status).map(drop).map_err(Into::into)
}

fn swap_header(pages: u32) -> [u8; BLOCK] {
    const SIGNATURE: &[u8] = b"SWAPSPACE2";
    let mut header = [0; BLOCK];
    header[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&(pages - 1).to_le_bytes());
    header[BLOCK - SIGNATURE.len()..].copy_from_slice(SIGNATURE);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::skip;

    fn disk(size: u64, swap: u64) -> Disk {
        Disk { size: Bytes::mib(size), swap: Bytes::mib(swap), medium: Medium::Pmem }
    }

    #[test]
    fn a_disk_lies_behind_memory_and_never_across_the_hole() {
        let small = layout(Bytes::mib(512), disk(1024, 512));
        assert_eq!(small.words, "memmap=1048576K!524288K memmap=524288K!1572864K memmap=65536K$2097152K");
        assert_eq!(small.extra, Bytes::mib(1600));
        let without = layout(Bytes::mib(512), disk(1024, 0));
        assert_eq!(without.words, "memmap=1048576K!524288K memmap=65536K$1572864K");
        // 4 GiB: 3 below the hole, 1 above, then the disk.
        let large = layout(Bytes::gib(4), disk(1024, 0));
        assert_eq!((large.words.as_str(), large.extra), ("memmap=1048576K!5242880K", Bytes::gib(1)));
        // 2 GiB and a disk that would reach over the hole: it begins above.
        let across = layout(Bytes::gib(2), disk(2048, 0));
        assert_eq!(across.words, "memmap=2097152K!4194304K memmap=1048576K$2097152K");
        assert_eq!(across.extra, Bytes::gib(3));
    }

    #[test]
    fn a_swap_header_has_its_signature_and_last_page() {
        let header = swap_header(256);
        assert_eq!(&header[4086..], b"SWAPSPACE2");
        assert_eq!(header[1028..1032], 255_u32.to_le_bytes());
    }

    #[test]
    fn the_same_size_gives_the_same_small_image() {
        if let Err(reason) = find_mke2fs() {
            return skip("disk::the_same_size_gives_the_same_small_image", &reason);
        }
        let scratch = tempfile::tempdir().unwrap();
        let packed = |name: &str| {
            let image = scratch.path().join(name);
            make(disk(128, 0), &image).unwrap();
            pack(&image).unwrap()
        };
        let (one, two) = (packed("one"), packed("two"));
        assert_eq!(one, two);
        assert!((16 << 10..4 << 20).contains(&one.len()), "{} bytes", one.len());
        // What is packed is the image: the rest of it is zero.
        let (copy, original) = (scratch.path().join("copy"), fs::read(scratch.path().join("one")).unwrap());
        File::create(&copy).unwrap().set_len(128 << 20).unwrap();
        fs::write(scratch.path().join("packed"), &one).unwrap();
        unpack(&scratch.path().join("packed"), &copy).unwrap();
        assert!(fs::read(&copy).unwrap() == original, "unpacking gives the image back");
    }
}
