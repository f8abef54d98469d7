//! Frames that the kernel takes and gives back for other things than anonymous memory.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use nix::{
    fcntl::{FallocateFlags, OFlag, fallocate},
    sys::memfd::{MFdFlags, memfd_create},
    unistd::{ftruncate, pipe2, read, write},
};

use super::{Found, MANY_PAGES, Raw, absent, each, failed, probe, timed};

/// Packets in the pipe at most, each in a page of its own: below the default of 16 pages, of which one stays free.
const PACKETS: i64 = 15;
const BURSTS: i64 = 100;
/// Bytes in the pipe at most: they all fit into one page.
const BYTES: i64 = 1000;
/// Pairs of one packet written and read, for which the pipe keeps its page (`tmp_page`, fs/pipe.c).
const PAIRS: i64 = 1000;
const READS: i64 = 1000;
/// Far behind the end of what a process was started with.
const BEHIND: u64 = 1 << 40;

pub(super) fn probes() -> Vec<Found> {
    vec![pages_of_a_pipe(), page_of_a_read(), pages_of_a_file()]
}

/// A read of `/proc/self/environ` passes through a page that lives as long as the read; where there is nothing to read,
/// nothing else happens. A read of `cmdline` looks first and takes the page later.
fn page_of_a_read() -> Found {
    const GIVES: &[Raw] = &[Raw::EnvironRead, Raw::CmdlineRead];
    let open = |path| File::open(path).map_err(|error| format!("{path}: {error}"));
    let (environ, cmdline) = match (open("/proc/self/environ"), open("/proc/self/cmdline")) {
        (Ok(environ), Ok(cmdline)) => (environ, cmdline),
        (Err(why), _) | (_, Err(why)) => return absent(GIVES, why),
    };
    probe(GIVES, move |samples| {
        for (raw, file) in [(Raw::EnvironRead, &environ), (Raw::CmdlineRead, &cmdline)] {
            let mut ends = 0;
            let read = || matches!(file.read_at(&mut [0; 8], BEHIND), Ok(0));
            let ns = timed(|| (0..READS).for_each(|_| ends += i64::from(read())));
            if ends < READS {
                return Err("files of /proc/self cannot be read behind their ends".to_owned());
            }
            samples.set(raw, each(ns, READS));
        }
        Ok(())
    })
}

/// A pipe in packet mode puts each write into a page of its own; an ordinary one fills its last page first.
fn pages_of_a_pipe() -> Found {
    const GIVES: &[Raw] = &[Raw::PacketPair, Raw::PacketWrite, Raw::PacketRead, Raw::ByteWrite, Raw::ByteRead];
    let (packets, bytes) = match (Pipe::new(OFlag::O_DIRECT), Pipe::new(OFlag::empty())) {
        (Ok(packets), Ok(bytes)) => (packets, bytes),
        (Err(why), _) | (_, Err(why)) => return absent(GIVES, why),
    };
    probe(GIVES, move |samples| {
        let (mut writes, mut reads) = (0, 0);
        for _ in 0..BURSTS {
            writes += packets.write(PACKETS)?;
            reads += packets.read(PACKETS)?;
        }
        samples.set(Raw::PacketWrite, each(writes, PACKETS * BURSTS));
        samples.set(Raw::PacketRead, each(reads, PACKETS * BURSTS));
        let mut result = Ok(());
        let pair = || packets.write_one().and_then(|()| packets.read_one());
        let pairs = timed(|| (0..PAIRS).for_each(|_| result = result.and_then(|()| pair())));
        result.map_err(failed("a pipe"))?;
        samples.set(Raw::PacketPair, each(pairs, PAIRS));
        samples.set(Raw::ByteWrite, each(bytes.write(BYTES)?, BYTES));
        samples.set(Raw::ByteRead, each(bytes.read(BYTES)?, BYTES));
        Ok(())
    })
}

struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

impl Pipe {
    fn new(flags: OFlag) -> Result<Self, String> {
        let (from, to) = pipe2(flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed("pipe2"))?;
        Ok(Self { from, to })
    }

    fn write_one(&self) -> nix::Result<()> {
        write(&self.to, &[0]).map(drop)
    }

    fn read_one(&self) -> nix::Result<()> {
        read(&self.from, &mut [0]).map(drop)
    }

    /// Nanoseconds for a number of writes of one byte.
    fn write(&self, times: i64) -> Result<i64, String> {
        let mut result = Ok(());
        let ns = timed(|| (0..times).for_each(|_| result = result.and_then(|()| self.write_one())));
        result.map(|()| ns).map_err(failed("write to a pipe"))
    }

    /// Nanoseconds for a number of reads of one byte.
    fn read(&self, times: i64) -> Result<i64, String> {
        let mut result = Ok(());
        let ns = timed(|| (0..times).for_each(|_| result = result.and_then(|()| self.read_one())));
        result.map(|()| ns).map_err(failed("read from a pipe"))
    }
}

/// `fallocate` gives a file in memory its pages without clearing them: that waits for the first access.
fn pages_of_a_file() -> Found {
    const GIVES: &[Raw] = &[Raw::Fallocate, Raw::Truncate];
    let file = match memfd_create(c"pagelab-probe", MFdFlags::MFD_CLOEXEC) {
        Ok(file) => file,
        Err(errno) => return absent(GIVES, failed("memfd_create")(errno)),
    };
    probe(GIVES, move |samples| {
        let mut result = Ok(());
        let allocate = timed(|| result = fallocate(&file, FallocateFlags::empty(), 0, MANY_PAGES * 4096));
        result.map_err(failed("fallocate"))?;
        let truncate = timed(|| result = ftruncate(&file, 0));
        result.map_err(failed("ftruncate"))?;
        samples.set(Raw::Fallocate, each(allocate, MANY_PAGES));
        samples.set(Raw::Truncate, each(truncate, MANY_PAGES));
        Ok(())
    })
}
