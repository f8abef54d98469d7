//! Linux: none; the programs that a machine's system starts while a benchmark runs.
//!
//! mmtests monitors the machine as long as a benchmark runs (monitors/watch-proc-vmstat.sh, read for behaviour): a shell
//! starts date(1), cat(1) and sleep(1) every ten seconds. Nothing maps their files in between, so that they are not in memory
//! when caches were dropped, or when reclaim has taken them, and are read from the disk again.

use std::{cell::Cell, rc::Rc};

use mm::whole::state::System;
use os::{FileRange, MapSpec, Os, Placement, VmRange};
use units::{Bytes, Errno, Frames, Picos};

use crate::{
    Sim,
    draw::{Draws, Purpose},
};

/// Time between two starts of the programs (`MONITOR_UPDATE_FREQUENCY`, configs of mmtests).
const EVERY: Picos = Picos::from_secs(10);
/// Size of one program's file, which is read with one major fault, and read-ahead from there on.
const FILE: Frames = System::PROGRAM;
/// The heap of the shell: large enough for a huge page, so that khugepaged had something to scan for long.
const HEAP: Bytes = Bytes::mib(4);
/// Anonymous base pages of the programs, all together: the number of faults that bash 5.2 and those three take each time.
const OWN: Frames = Frames(400);

/// Runs `main` beside programs with files of this size. They were started before; a draw decides when, and so how long after
/// the first instant they and khugepaged are next awake.
pub(crate) async fn beside<T>(os: Sim, size: Frames, draws: Draws, main: impl AsyncFnOnce(Sim) -> T) -> T {
    let count = size.0 / FILE.0;
    if count == 0 {
        return main(os).await;
    }
    install(&os, count).await.expect("nothing else has taken the disk");
    let is_over = Rc::new(Cell::new(false));
    let asks = Rc::clone(&is_over);
    // Bound: the end of the run.
    let again_and_again = async move |os: Sim| {
        if let Ok(heap) = os.mmap(HEAP, MapSpec::Anonymous).await {
            let _ = os.store(heap, Bytes::HUGE_PAGE).await;
        }
        while !asks.get() {
            // If memory is out, that is for the benchmark to report.
            let _ = start(&os, count).await;
            os.sleep(EVERY).await;
        }
    };
    let system = os.fork(Placement::Free, again_and_again).await.expect("the machine has room for a system");
    os.sleep(Picos(draws.below(EVERY.0, 0, Purpose::ProgramsPhase, 0))).await;
    let result = main(os).await;
    is_over.set(true);
    // The task may have been killed.
    let _ = system.await;
    result
}

fn name(of: u64) -> String {
    format!("programs/{of}")
}

async fn install(os: &Sim, count: u64) -> Result<(), Errno> {
    for program in 0..count {
        let file = os.create(&name(program)).await?;
        os.write(file, Bytes(0), FILE.bytes()).await?;
        os.fsync(file).await?;
        os.close(file).await?;
    }
    Ok(())
}

/// Maps, reads and unmaps each program's file.
async fn start(os: &Sim, count: u64) -> Result<(), Errno> {
    for program in 0..count {
        let file = os.open(&name(program)).await?;
        let text = MapSpec::SharedRead(FileRange { file, offset: Bytes(0) });
        let is_read = with_mapping(os, FILE, text, async |text| os.load(text, Bytes::PAGE).await).await;
        os.close(file).await?;
        is_read?;
    }
    with_mapping(os, OWN, MapSpec::Anonymous, async |own| os.store(own, Bytes::PAGE).await).await
}

/// Runs `body` with a mapping, and unmaps it in any case.
async fn with_mapping(
    os: &Sim,
    len: Frames,
    spec: MapSpec,
    access: impl AsyncFnOnce(VmRange) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let range = os.mmap(len.bytes(), spec).await?;
    let accessed = access(range).await;
    os.munmap(range).await?;
    accessed
}
