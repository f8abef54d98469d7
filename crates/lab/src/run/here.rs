//! This machine as a run needs it: left as it was found, with a scratch directory, with KVM or without.

use std::{io, os::unix::fs::DirBuilderExt, path::PathBuf, sync::atomic::AtomicBool};

use linux::{
    guard::Guard,
    kernel_image::KernelImage,
    kvm::{self, NoKvm},
    qemu::Accelerator,
};

use crate::progress::Progress;

/// Puts back settings of this machine that an earlier run has left changed. That run was killed, and so was its guard, the
/// process that would have put them back.
pub(crate) fn put_back(progress: &mut dyn Progress) {
    for line in linux::journal::put_back() {
        progress.warning(&line);
    }
}

/// KVM where it boots the kernel, else translation.
pub(crate) fn choose_accelerator(image: &KernelImage, stop: &AtomicBool, progress: &mut dyn Progress) -> Accelerator {
    progress.step(0, 0, "finding out whether KVM works here");
    let verdict = scratch().map_err(|error| error.to_string()).and_then(|(guard, scratch)| {
        let verdict = kvm::probe(image, &scratch, stop);
        guard.finish().map(|()| verdict)
    });
    match verdict {
        Ok(Ok(())) => return Accelerator::Kvm,
        Ok(Err(NoKvm { reason, news: true })) => {
            progress.note(&format!("KVM does not work here ({reason}); guests run by translation"));
        }
        Ok(Err(NoKvm { news: false, .. })) => {}
        Err(problem) => progress.note(&format!("cannot find out whether KVM works: {problem}")),
    }
    Accelerator::Tcg
}

/// A scratch directory that goes away however we end, and the guard that sees to it.
pub(crate) fn scratch() -> io::Result<(Guard, PathBuf)> {
    let mut guard = Guard::start()?;
    let name = format!("pagelab-{}-{}", std::process::id(), linux::host::monotonic_ns());
    let directory = std::env::temp_dir().join(name);
    // Known to the guard before it exists, so that there is no moment at which it could be left behind.
    guard.remove_at_end(&directory)?;
    let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    made.map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error} (TMPDIR chooses the place)", directory.display()))
    })?;
    Ok((guard, directory))
}
