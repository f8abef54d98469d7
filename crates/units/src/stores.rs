//! Stores of bzero(3), and where they go.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Stores of a program that writes all of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stores {
    /// Ordinary stores: each line is owned by a cache first (`movdqa`).
    Cached,
    /// Stores past all caches (`movntdq`): a line goes straight to memory, and nobody owns it.
    NonTemporal,
    /// The string instruction: a line is owned by a cache, but not read before (`rep stosb`).
    RepStosb,
}

impl Stores {
    /// Each kind, with its name.
    pub const NAMES: [(&'static str, Self); 3] =
        [("cached", Self::Cached), ("non-temporal", Self::NonTemporal), ("rep-stosb", Self::RepStosb)];

    /// The kind's name.
    ///
    /// # Panics
    /// Never: each kind has a name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, stores)| *stores == self).expect("each kind has a name").0
    }
}

/// The C library whose bzero(3) a program calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bzero {
    /// glibc before 2.18: non-temporal stores beyond a thread's share of the last-level cache (`__x86_64_shared_cache_size`,
    /// sysdeps/x86_64/memset.S and cacheinfo.c, 2.12).
    BeyondShare,
    /// glibc 2.18 to 2.39: never non-temporal stores.
    #[default]
    Cached,
    /// glibc 2.40 and later: non-temporal stores beyond three quarters of that share
    /// (`__x86_memset_non_temporal_threshold`, sysdeps/x86/dl-cacheinfo.h; from memory).
    BeyondThreeQuarters,
    /// musl: the string instruction (src/string/x86_64/memset.s).
    RepStosb,
}

impl Bzero {
    /// Stores of a call that clears `len` bytes, where a thread's share of the last-level cache is `share`. A machine whose
    /// cache is not known has ordinary ones.
    pub fn stores(self, len: Bytes, share: Option<Bytes>) -> Stores {
        let threshold = match self {
            Self::RepStosb => return Stores::RepStosb,
            Self::Cached => None,
            Self::BeyondShare => share,
            Self::BeyondThreeQuarters => share.map(|share| Bytes(share.0 / 4 * 3)),
        };
        if threshold.is_some_and(|threshold| len > threshold) { Stores::NonTemporal } else { Stores::Cached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_glibc_go_past_caches_beyond_a_share_of_them() {
        let share = Some(Bytes::kib(1536));
        let of = |bzero: Bzero, kib: u64| bzero.stores(Bytes::kib(kib), share);
        assert_eq!([1536, 1537].map(|kib| of(Bzero::BeyondShare, kib)), [Stores::Cached, Stores::NonTemporal]);
        assert_eq!([1152, 1153].map(|kib| of(Bzero::BeyondThreeQuarters, kib)), [Stores::Cached, Stores::NonTemporal]);
        assert_eq!((of(Bzero::Cached, 1 << 30), of(Bzero::RepStosb, 1)), (Stores::Cached, Stores::RepStosb));
        assert_eq!(Bzero::BeyondShare.stores(Bytes::gib(3), None), Stores::Cached, "no cache is known");
        assert!(Stores::NAMES.iter().all(|(name, stores)| stores.name() == *name));
    }
}
