//! Things about files that were read and that are no error: told once, by whoever prints what was asked for.

use std::{collections::BTreeSet, sync::Mutex};

/// Those that were not yet told, and those that were.
static NOTICES: Mutex<(Vec<String>, BTreeSet<String>)> = Mutex::new((Vec::new(), BTreeSet::new()));

/// Leaves a line for the user, unless it was left before.
pub(crate) fn leave(text: String) {
    let mut notices = NOTICES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if notices.1.insert(text.clone()) {
        notices.0.push(text);
    }
}

/// Takes the lines that are to be told now.
pub fn take() -> Vec<String> {
    let mut notices = NOTICES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::mem::take(&mut notices.0)
}
