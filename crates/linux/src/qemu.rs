//! Booting a guest: QEMU's command line, the stream of records, and every way in which a boot can end.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use units::{Bytes, NodeId};

use crate::{
    balloon,
    disk::{self, Disk, Medium},
    footprint::Footprint,
    guest::{GuestRecord, Plan, Problem},
    host::monotonic_ns,
    initramfs,
    kernel_image::KernelImage,
    monitor::{self, Monitor, Operator},
    process::{die_with_parent, ending},
};

/// The emulator's name on PATH.
pub const EMULATOR: &str = "qemu-system-x86_64";

/// How often the stream is looked at.
const LOOK_UP: Duration = Duration::from_millis(5);
/// How often a guest is booted that never says anything. Under multi-threaded translation a kernel with several CPUs stands
/// still early in its boot once in some hundred boots, and the next boot of the same guest is well.
const BOOTS: u64 = 2;
/// How long a guest that has sent its exit record may take to power off before it is ended.
const POWER_OFF_S: u64 = 10;
/// Lines of the guest's console shown with an error.
const TAIL: usize = 12;
/// Words of the kernel where a long complaint begins.
const CAUSES: [&str; 3] = ["Kernel panic", "Oops", "Out of memory"];

/// The engine that runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The host's processor.
    Kvm,
    /// QEMU's own translation: counters are trustworthy, times are not.
    Tcg,
    /// Translation on one CPU with time counted in instructions: the same run gives the same bytes.
    Replayable {
        /// log2 of the nanoseconds that one instruction takes (QEMU's icount shift).
        shift: u8,
    },
}

impl Accelerator {
    /// A word for tables and results.
    pub fn name(self) -> String {
        match self {
            Self::Kvm => "kvm".to_owned(),
            Self::Tcg => "tcg".to_owned(),
            Self::Replayable { shift } => format!("tcg,icount={shift}"),
        }
    }

    /// The part of QEMU's command line that stands for it. What ran under other words is another run.
    pub fn words(self) -> Vec<String> {
        let mut words = Words::default();
        accelerate(self, "", &mut words);
        words.0
    }
}

/// One guest, ready to boot.
#[derive(Clone, Debug)]
pub struct Guest<'a> {
    /// The guest's kernel.
    pub kernel: &'a KernelImage,
    /// The engine that runs the guest's instructions.
    pub accelerator: Accelerator,
    /// Distances between nodes, one row per node of the plan.
    pub distances: Vec<Vec<u32>>,
    /// Modules that the kernel needs on this machine.
    pub modules: &'a [String],
    /// The guest's work, and its nodes.
    pub plan: &'a Plan,
    /// Where its memory on this host is noted, if anybody wants to know.
    pub footprint: Option<&'a RefCell<Footprint>>,
    /// The operator who decides how large the balloon shall be, if there is one.
    pub operator: Option<&'a RefCell<Operator>>,
    /// Seconds from the start of QEMU to the first operation. A guest that has not said a word after half of them is booted
    /// again, once.
    pub boot_timeout_s: u64,
    /// Seconds for each job.
    pub job_timeout_s: u64,
}

/// The results of a boot besides its records.
#[derive(Clone, Debug)]
pub struct Boot {
    /// Nanoseconds from the start of QEMU to the first-operation record.
    pub first_operation_ns: u64,
    /// The stream, byte for byte.
    pub stream: Vec<u8>,
    /// The last lines of the guest's console, for the explanation of a job that failed.
    pub tail: String,
}

/// Why a boot gave no complete stream.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The emulator is not installed.
    #[error("{EMULATOR} is not on PATH; Debian's package qemu-system-x86 has it")]
    NoEmulator,
    /// Building the initramfs or talking to QEMU failed.
    #[error("{0}")]
    Setup(String),
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// The guest ended without the exit record.
    #[error("the guest ended without an exit record (QEMU {how}); its last lines:\n{tail}")]
    Ended {
        /// How QEMU ended.
        how: String,
        /// The guest's last lines.
        tail: String,
    },
    /// The guest is silent.
    #[error("no {awaited} from the guest within {seconds} s; its last lines:\n{tail}")]
    Silent {
        /// The record that did not come.
        awaited: String,
        /// How long it was waited for.
        seconds: u64,
        /// The guest's last lines.
        tail: String,
    },
    /// The guest's kernel does not take a setting that was asked for.
    #[error("{0}")]
    Refused(String),
    /// The guest's init gave up and said why.
    #[error("the guest gave up: {message}; its last lines:\n{tail}")]
    GaveUp {
        /// Why.
        message: String,
        /// The guest's last lines.
        tail: String,
    },
    /// The stream is not what a guest sends.
    #[error("the guest's stream is damaged: {problem}; its last lines:\n{tail}")]
    Damaged {
        /// The damage.
        problem: String,
        /// The guest's last lines.
        tail: String,
    },
}

/// Where the emulator is.
pub fn find_emulator() -> Result<PathBuf, GuestError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidate = |directory: PathBuf| Some(directory.join(EMULATOR)).filter(|file| file.is_file());
    std::env::split_paths(&path).find_map(candidate).ok_or(GuestError::NoEmulator)
}

/// QEMU while it runs. Dropping it ends it.
struct Emulator {
    child: Child,
    monitor: Option<Monitor>,
}

impl Emulator {
    fn ended(&mut self) -> Result<Option<ExitStatus>, GuestError> {
        self.child.try_wait().map_err(|error| GuestError::Setup(format!("waiting for {EMULATOR}: {error}")))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Boots the guest, hands over each record as it comes, and returns when the guest has powered off.
///
/// Files go to `scratch`. Must be called from a thread that lives as long as the guest: QEMU dies with it.
pub fn boot(
    guest: &Guest<'_>,
    scratch: &Path,
    stop: &AtomicBool,
    mut each: impl FnMut(GuestRecord),
) -> Result<Boot, GuestError> {
    let emulator = find_emulator()?;
    let setup = |what: &str, error: &dyn std::fmt::Display| GuestError::Setup(format!("{what}: {error}"));
    let disk = Disks::make(guest.plan.disk, scratch).map_err(GuestError::Setup)?;
    let initramfs = initramfs::build(guest.kernel, guest.modules, guest.plan, disk.packed.as_deref());
    let archive = scratch.join("initramfs");
    fs::write(&archive, initramfs.map_err(GuestError::Setup)?)
        .map_err(|error| setup("writing the initramfs", &error))?;
    let files = Files::create(scratch).map_err(|error| setup("creating the guest's ports", &error))?;
    let log = File::create(&files.log).map_err(|error| setup("creating QEMU's log", &error))?;
    let mut command = Command::new(emulator);
    command.args(arguments(guest, &archive, &files, &disk)).stdout(Stdio::null()).stderr(log);
    for attempt in 1..=BOOTS {
        let boot_timeout_s = (guest.boot_timeout_s * attempt / BOOTS).max(1);
        let mut watch = Watch::new(guest, &files, boot_timeout_s);
        let mut emulator =
            start(&mut command, guest).map_err(|error| GuestError::Setup(format!("starting QEMU: {error}")))?;
        let stream = match watch.follow(&mut emulator, stop, &mut each) {
            Err(GuestError::Silent { .. }) if watch.records == 0 && attempt < BOOTS => continue,
            followed => followed?,
        };
        power_off(&mut emulator)?;
        let first_operation = watch.first_operation.ok_or_else(|| watch.damaged("no first operation".to_owned()))?;
        return Ok(Boot { first_operation_ns: first_operation - watch.start, stream, tail: files.tail() });
    }
    unreachable!("the last boot is not tried again")
}

fn start(command: &mut Command, guest: &Guest<'_>) -> io::Result<Emulator> {
    command.stdin(Stdio::null());
    let memory = || backends(guest.plan).into_iter().sum();
    let monitor = guest.operator.map(|_| Monitor::attach(command, memory())).transpose()?;
    let child = die_with_parent(command).spawn()?;
    // QEMU alone has its end then, and with QEMU it goes.
    command.stdin(Stdio::null());
    Ok(Emulator { child, monitor })
}

fn power_off(emulator: &mut Emulator) -> Result<(), GuestError> {
    let deadline = monotonic_ns() + POWER_OFF_S * 1_000_000_000;
    while emulator.ended()?.is_none() && monotonic_ns() < deadline {
        thread::sleep(LOOK_UP);
    }
    Ok(())
}

/// The medium of the guest's disks.
#[derive(Default)]
struct Disks {
    /// Files that become virtio disks, in their order.
    drives: Vec<PathBuf>,
    /// The archive that the guest writes to a disk of memory.
    packed: Option<Vec<u8>>,
}

impl Disks {
    fn make(disk: Option<Disk>, scratch: &Path) -> Result<Self, String> {
        let Some(disk) = disk else { return Ok(Self::default()) };
        let (image, swap) = (scratch.join("disk"), scratch.join("swap"));
        disk::make(disk, &image)?;
        match disk.medium {
            Medium::Pmem => {
                let packed = disk::pack(&image).map_err(|error| format!("{}: {error}", image.display()))?;
                Ok(Self { drives: Vec::new(), packed: Some(packed) })
            }
            Medium::Virtio if disk.swap == Bytes(0) => Ok(Self { drives: vec![image], packed: None }),
            Medium::Virtio => {
                disk::make_swap(disk, &swap)?;
                Ok(Self { drives: vec![image, swap], packed: None })
            }
        }
    }
}

/// Files that QEMU writes.
struct Files {
    console: PathBuf,
    data: PathBuf,
    log: PathBuf,
}

impl Files {
    fn create(scratch: &Path) -> io::Result<Self> {
        let files =
            Self { console: scratch.join("console"), data: scratch.join("data"), log: scratch.join("qemu.log") };
        // They must exist before QEMU opens them: what an earlier boot left would be read as this one's.
        File::create(&files.console)?;
        File::create(&files.data)?;
        Ok(files)
    }

    /// Whether the kernel's decompressor gave up: it says so and halts, and nothing more would ever come
    /// (arch/x86/boot/compressed/error.c, v6.1).
    fn halted(&self) -> bool {
        fs::read(&self.console).is_ok_and(|console| String::from_utf8_lossy(&console).contains("-- System halted"))
    }

    /// The last lines of the console, then QEMU's own.
    fn tail(&self) -> String {
        let console = fs::read(&self.console).unwrap_or_default();
        let log = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&console).into_owned() + &String::from_utf8_lossy(&log);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>())
            .filter(|line| !line.trim().is_empty())
            .collect();
        if lines.is_empty() {
            return "  (it printed nothing)".to_owned();
        }
        let from = lines.len().saturating_sub(TAIL);
        // A panic is followed by more lines than anybody wants; its first one says why.
        let why = lines[..from].iter().find(|line| CAUSES.iter().any(|cause| line.contains(cause)));
        let shown = why.into_iter().chain(&lines[from..]);
        shown.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    }
}

/// Follows one boot from its first to its last record.
struct Watch<'a> {
    guest: &'a Guest<'a>,
    files: &'a Files,
    /// Seconds until the first operation.
    boot_timeout_s: u64,
    start: u64,
    /// When the last step ended: the start, the first operation, or the last job.
    since: u64,
    first_operation: Option<u64>,
    records: usize,
    jobs: usize,
}

impl<'a> Watch<'a> {
    fn new(guest: &'a Guest<'a>, files: &'a Files, boot_timeout_s: u64) -> Self {
        let start = monotonic_ns();
        Self { guest, files, boot_timeout_s, start, since: start, first_operation: None, records: 0, jobs: 0 }
    }

    fn damaged(&self, problem: String) -> GuestError {
        GuestError::Damaged { problem, tail: self.files.tail() }
    }

    fn follow(
        &mut self,
        emulator: &mut Emulator,
        stop: &AtomicBool,
        each: &mut impl FnMut(GuestRecord),
    ) -> Result<Vec<u8>, GuestError> {
        let mut data = File::open(&self.files.data)
            .map_err(|error| GuestError::Setup(format!("the guest's data port: {error}")))?;
        let mut stream = Vec::new();
        let mut read = 0;
        loop {
            // Asked first: what it wrote before it ended is then all there.
            let ended = emulator.ended()?;
            data.read_to_end(&mut stream)
                .map_err(|error| GuestError::Setup(format!("reading the guest's data port: {error}")))?;
            while let Some(length) = stream[read..].iter().position(|byte| *byte == b'\n') {
                let line = &stream[read..read + length];
                read += length + 1;
                if self.take(line, each)? {
                    return Ok(stream);
                }
            }
            if let Some(status) = ended {
                return Err(GuestError::Ended { how: ending(status), tail: self.files.tail() });
            }
            if stop.load(Ordering::Relaxed) {
                return Err(GuestError::Interrupted);
            }
            if let (Some(footprint), Some(_)) = (self.guest.footprint, self.first_operation) {
                footprint.borrow_mut().look(emulator.child.id(), &backends(self.guest.plan));
            }
            if let (Some(operator), Some(monitor), Some(_)) =
                (self.guest.operator, &mut emulator.monitor, self.first_operation)
            {
                let looked = monitor.look(&mut operator.borrow_mut());
                if let Err(problem) = looked {
                    // QEMU that has ended says more.
                    power_off(emulator)?;
                    emulator.ended()?.ok_or(GuestError::Setup(problem))?;
                }
            }
            self.check_patience()?;
            thread::sleep(LOOK_UP);
        }
    }

    /// Handles one record; true after the exit record.
    fn take(&mut self, line: &[u8], each: &mut impl FnMut(GuestRecord)) -> Result<bool, GuestError> {
        let record: GuestRecord = serde_json::from_slice(line)
            .map_err(|error| self.damaged(format!("record {} is not readable: {error}", self.records + 1)))?;
        match &record {
            GuestRecord::FirstOperation => {
                self.since = monotonic_ns();
                self.first_operation = Some(self.since);
            }
            GuestRecord::Job { .. } => {
                self.since = monotonic_ns();
                self.jobs += 1;
            }
            GuestRecord::Exit { error: Some(Problem::Refused(message)), .. } => {
                return Err(GuestError::Refused(message.clone()));
            }
            GuestRecord::Exit { error: Some(Problem::Failed(message)), .. } => {
                return Err(GuestError::GaveUp { message: message.clone(), tail: self.files.tail() });
            }
            GuestRecord::Exit { records, error: None } => {
                if (*records, self.jobs) != (self.records, self.guest.plan.jobs.len()) {
                    let (jobs, of) = (self.jobs, self.guest.plan.jobs.len());
                    let arrived = self.records;
                    return Err(self.damaged(format!(
                        "the guest sent {records} records and {arrived} arrived, with {jobs} of {of} results"
                    )));
                }
                return Ok(true);
            }
            GuestRecord::Capture { .. } | GuestRecord::Clock { .. } | GuestRecord::Frames { .. } => {}
        }
        self.records += 1;
        each(record);
        Ok(false)
    }

    fn check_patience(&self) -> Result<(), GuestError> {
        let (seconds, awaited) = match self.first_operation {
            None => (self.boot_timeout_s, "first operation".to_owned()),
            Some(_) => (self.guest.job_timeout_s, format!("result of job {}", self.jobs + 1)),
        };
        // KVM that cannot emulate an instruction stops the guest but not QEMU.
        let stopped = self.first_operation.is_none()
            && self.guest.accelerator == Accelerator::Kvm
            && fs::read_to_string(&self.files.log).is_ok_and(|log| log.contains("KVM internal error"));
        if self.first_operation.is_none() && self.files.halted() {
            let how = "halted before it ran anything".to_owned();
            return Err(GuestError::Ended { how, tail: self.files.tail() });
        }
        if stopped {
            let how =
                format!("stopped with a KVM internal error after {} s", (monotonic_ns() - self.start) / 1_000_000_000);
            return Err(GuestError::Ended { how, tail: self.files.tail() });
        }
        if monotonic_ns().saturating_sub(self.since) / 1_000_000_000 >= seconds {
            return Err(GuestError::Silent { awaited, seconds, tail: self.files.tail() });
        }
        Ok(())
    }
}

/// How large the memory of each node is. A disk of memory is the end of the last one.
fn backends(plan: &Plan) -> Vec<Bytes> {
    let mut sizes: Vec<Bytes> = plan.nodes.iter().map(|node| node.memory).collect();
    let extra = pmem(plan).map_or(Bytes(0), |layout| layout.extra);
    // A disk in memory lies at its end.
    if let Some(last) = sizes.iter_mut().rfind(|size| **size > Bytes(0)) {
        *last += extra;
    }
    sizes
}

fn pmem(plan: &Plan) -> Option<disk::Layout> {
    let memory: Bytes = plan.nodes.iter().map(|node| node.memory).sum();
    plan.disk.filter(|disk| disk.medium == Medium::Pmem).map(|disk| disk::layout(memory, disk))
}

fn arguments(guest: &Guest<'_>, archive: &Path, files: &Files, disks: &Disks) -> Vec<String> {
    let nodes = &guest.plan.nodes;
    let cpus: usize = nodes.iter().map(|node| node.cpus.len()).sum();
    let backends = backends(guest.plan);
    let memory: Bytes = backends.iter().copied().sum();
    let mut words = Words::default();
    words.flags(&["-nodefaults", "-no-reboot", "-no-user-config"]);
    words.pair("-display", "none");
    words.pair("-monitor", "none");
    words.pair("-seed", "1");
    words.pair("-smp", cpus.to_string());
    words.pair("-m", format!("{}K", memory.as_kib()));
    // A file, not a pipe: QEMU retries a full pipe at an instant of the host's, which a replayable run must not see.
    words.pair("-serial", format!("file:{}", files.console.display()));
    words.pair("-serial", format!("file:{}", files.data.display()));
    words.pair("-kernel", guest.kernel.path.display().to_string());
    words.pair("-initrd", archive.display().to_string());
    for (at, drive) in disks.drives.iter().enumerate() {
        // Without the host's own flushes: what a guest loses when this host dies is nobody's loss.
        words.pair("-drive", format!("file={},if=none,id=d{at},format=raw,cache=unsafe", drive.display()));
        words.pair("-device", format!("virtio-blk-pci,drive=d{at}"));
    }
    for (flag, value) in monitor::ARGUMENTS.iter().filter(|_| guest.operator.is_some()) {
        words.pair(flag, *value);
    }
    if let Some(balloon) = balloon::device(&guest.plan.settings) {
        words.pair("-device", balloon);
    }
    for ((id, node), size) in (0..).map(NodeId).zip(nodes).zip(backends) {
        let cpus: String = node.cpus.iter().map(|cpu| format!(",cpus={cpu}")).collect();
        // A node without memory has no backend: QEMU has none of 0 bytes.
        let mut memory = String::new();
        if size > Bytes(0) {
            words.pair("-object", format!("memory-backend-ram,size={}K,id=m{id}", size.as_kib()));
            memory = format!(",memdev=m{id}");
        }
        words.pair("-numa", format!("node,nodeid={id}{memory}{cpus}"));
    }
    for (from, row) in guest.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to != from) {
            words.pair("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
    }
    let disk = pmem(guest.plan).map_or_else(String::new, |layout| format!(" {}", layout.words));
    let more = balloon::words(&guest.plan.settings) + &disk;
    accelerate(guest.accelerator, &more, &mut words);
    words.0
}

/// The accelerator, its CPU model, and the kernel's command line that goes with them and ends in `more`.
fn accelerate(accelerator: Accelerator, more: &str, words: &mut Words) {
    // init_on_alloc: mainline's default is not to clear every page that is allocated; Debian's kernels do, huge pages twice.
    // earlyprintk: what the decompressor says of a broken image would otherwise be lost. The last word is `guest::MARK`.
    const ALWAYS: &str =
        "console=ttyS0 earlyprintk=ttyS0 quiet panic=-1 mitigations=off init_on_alloc=0 PAGELAB_GUEST=1";
    // Features 112, 297 and 580 are rep_good, erms and fsrm: translated `rep stos` clears one word per iteration, which
    // would make clearing pages the whole run. By number, because kernels before 5.19 know no names here. no_timer_check: on a
    // busy host the timer may not tick while the kernel looks whether it does (check_timer, arch/x86/kernel/apic/io_apic.c).
    const TRANSLATED: &str = "clearcpuid=112,297,580 tsc=reliable clocksource=tsc no_timer_check";
    // QEMU's main loop moves the clock of a guest that has halted to its next timer, and may find it halted while the CPU's
    // thread has yet to add up what it executed: the clock then runs ahead by just that. A QEMU that records lets only one of
    // the two threads work at a time (`replay_mutex_lock`, docs/devel/replay.rst, 7.2). The recording goes nowhere.
    const ALONE: &str = "rr=record,rrfile=/dev/null";
    match accelerator {
        Accelerator::Kvm => {
            words.pair("-accel", "kvm");
            words.pair("-cpu", "host");
            words.pair("-append", format!("{ALWAYS}{more}"));
        }
        Accelerator::Tcg => {
            words.pair("-accel", "tcg,thread=multi");
            // Without cx16: QEMU 7.2 translates cmpxchg16b wrongly now and then, and 6.12 crashes on it.
            words.pair("-cpu", "max,-cx16");
            words.pair("-append", format!("{ALWAYS} {TRANSLATED}{more}"));
        }
        Accelerator::Replayable { shift } => {
            words.pair("-accel", "tcg,thread=single");
            words.pair("-icount", format!("shift={shift},sleep=off,{ALONE}"));
            words.pair("-rtc", "base=2026-01-01,clock=vm");
            words.pair("-cpu", "max,-cx16,-rdrand,-rdseed");
            words.pair("-append", format!("{ALWAYS} {TRANSLATED} nokaslr random.trust_cpu=0{more}"));
        }
    }
}

/// A command line under construction.
#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    fn pair(&mut self, flag: &str, value: impl Into<String>) {
        self.0.extend([flag.to_owned(), value.into()]);
    }
}
