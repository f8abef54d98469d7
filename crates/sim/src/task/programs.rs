//! Linux: none; the programs that a machine's system starts while a benchmark runs.
//!
//! mmtests looks at the machine as long as a benchmark runs (monitors/watch-proc-vmstat.sh, read for behaviour): a shell that
//! starts date(1), cat(1) and sleep(1) every ten seconds. Nobody maps their files in between, so that they are not in memory
//! when caches were dropped, or when reclaim has taken them, and are read from the disk again.

use std::{cell::Cell, rc::Rc};

use mm::whole::state::System;
use os::{FileRange, MapSpec, Os, Placement, VmRange};
use units::{Bytes, Errno, Frames, Picos};

use crate::{
    Sim,
    draw::{Draws, Purpose},
};

/// How often they are started (`MONITOR_UPDATE_FREQUENCY`, configs of mmtests).
const EVERY: Picos = Picos::from_secs(10);
/// One is read with one major fault, and ahead from there on.
const FILE: Frames = System::PROGRAM;
/// The heap of who starts them: large enough for a huge page, so that khugepaged has had something to look at for long.
const HEAP: Bytes = Bytes::mib(4);
/// Base pages that they have of their own, all together: so many faults bash 5.2 and those three take each time.
const OWN: Frames = Frames(400);

/// Runs `main` beside programs with files of this size. They were started before, when is drawn: it decides how long after
/// the first instant they and khugepaged are awake again.
pub(crate) async fn beside<T>(os: Sim, size: Frames, draws: Draws, main: impl AsyncFnOnce(Sim) -> T) -> T {
    let count = size.0 / FILE.0;
    if count == 0 {
        return main(os).await;
    }
    install(&os, count).await.expect("nothing else has taken the disk");
    let is_over = Rc::new(Cell::new(false));
    let asks = Rc::clone(&is_over);
    // Bound: the run ends.
    let again_and_again = async move |os: Sim| {
        if let Ok(heap) = os.mmap(HEAP, MapSpec::Anonymous).await {
            let _ = os.store(heap, Bytes::HUGE_PAGE).await;
        }
        while !asks.get() {
            // Where memory is out, it is the benchmark's matter.
            let _ = start(&os, count).await;
            os.sleep(EVERY).await;
        }
    };
    let system = os.fork(Placement::Free, again_and_again).await.expect("the machine has room for a system");
    os.sleep(Picos(draws.below(EVERY.0, 0, Purpose::ProgramsPhase, 0))).await;
    let result = main(os).await;
    is_over.set(true);
    // It may have been killed.
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

/// Each is mapped, read and unmapped.
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

/// The mapping goes, whatever comes of what it was for.
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
