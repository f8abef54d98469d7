//! Linux: none; what a process has mapped besides what its program asks for: stacks, heap, data of libraries.
//!
//! glibc maps a stack of 8 MiB for each thread, with a page below it that may not be touched (`allocate_stack` in
//! nptl/allocatestack.c, from memory). A process begins with the stack of its first thread, a heap, and the data
//! of its libraries, each a small VMA. Rules that choose among VMAs see them; on kernels that choose none, nothing is mapped.
//!
//! Differs: text is not mapped, as scans pass read-only files by (and up to 3.12 all VMAs below 2 MiB). A stack is unmapped
//! when its thread ends, where glibc keeps 40 MiB of them.

use os::{MapSpec, Os, VmRange};
use units::{Bytes, Frames};

/// The stack of a thread, with its guard page (`RLIMIT_STACK`, 8 MiB wherever nobody changed it).
const STACK: Bytes = Bytes::mib(8);
/// Pages at the upper end of a stack that a thread touches: its descriptor, variables of its own, and the frames of its
/// functions. assumed: two pages, and one more for the deepest call.
const TOUCHED: Frames = Frames(3);

/// VMAs of a process that has just begun: pages mapped, and pages touched. assumed: as /proc/PID/smaps shows small C programs.
const BEGINNING: [(Frames, Frames); 8] = [
    // The stack of the first thread, and the heap.
    (Frames(33), Frames(5)),
    (Frames(33), Frames(8)),
    // Data of libc, of the loader, of libpthread and libm, of the program; variables of the first thread.
    (Frames(6), Frames(6)),
    (Frames(2), Frames(2)),
    (Frames(2), Frames(2)),
    (Frames(2), Frames(2)),
    (Frames(2), Frames(2)),
    (Frames(3), Frames(2)),
];

/// Maps pages above one that may not be touched, and stores to some at the upper end. None where there is no room: then it is
/// the program that finds that out.
async fn place<O: Os>(os: &O, size: Bytes, touched: Frames) -> Option<VmRange> {
    let mapping = os.mmap(size, MapSpec::Anonymous).await.ok()?;
    let guard = mapping.part(Bytes(0), Bytes::PAGE);
    os.munmap(guard).await.ok()?;
    let used = touched.bytes();
    let _ = os.store(mapping.part(Bytes(size.0 - used.0), used), Bytes::PAGE).await;
    Some(mapping.part(Bytes::PAGE, Bytes(size.0 - Bytes::PAGE.0)))
}

/// Maps the stack of a thread that begins; none where there is no room.
pub(crate) async fn stack<O: Os>(os: &O) -> Option<VmRange> {
    place(os, STACK, TOUCHED).await
}

/// Maps what a process has before its program begins.
pub(crate) async fn begin<O: Os>(os: &O) {
    for (pages, touched) in BEGINNING {
        let _ = place(os, pages.bytes() + Bytes::PAGE, touched).await;
    }
}
