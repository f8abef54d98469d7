//! Ctrl-C and its kin become a flag that every waiting loop tests, so that all ways out are the ordinary one.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Sets the flag when the user or the system asks us to stop.
pub fn set_on_signal(stop: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}
