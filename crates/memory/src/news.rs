//! Linux: wake_up() and send_sig(), wherever they are called.
//! Differs: what a step has brought about for others is told at its end, all from one place.

use units::{NodeId, Pfn};

use crate::{
    Memory,
    frame::{ControlId, SpaceId},
};

macro_rules! daemons {
    ($($(#[doc = $about:literal])* $daemon:ident,)*) => {
        /// A kernel thread of memory management.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Daemon { $($(#[doc = $about])* $daemon,)* }

        impl Daemon {
            /// Every one, in the order in which they are started, and in which those are told that one step has woken.
            pub const ALL: &[Self] = &[$(Self::$daemon,)*];
        }
    };
}

daemons! {
    /// Keeps memory of a node free.
    Kswapd,
    /// Writes files to the disk.
    Flusher,
    /// Compacts a node's memory.
    Kcompactd,
    /// Makes huge pages of base pages.
    Khugepaged,
    /// Allocates huge pages of a node for faults, by a rule; as nice as khugepaged, whose work it is.
    ThpThread,
    /// Tells a hypervisor which blocks are free: a worker of the kernel's queue for such things.
    Reporter,
    /// Takes idle objects out of a CPU's arrays of SLAB: a worker of each CPU.
    CacheReap,
    /// Takes memory from a guest for its host: another such worker.
    Balloon,
}

/// News of a step for others, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A kernel thread has something to do.
    Woken(Daemon, NodeId),
    /// The OOM killer has chosen a process.
    Killed(SpaceId),
    /// A folio that a task waits for is unlocked.
    Unlocked(Pfn),
    /// A node's kswapd has come to the end of a pass, or has nothing to do (`pfmemalloc_wait`).
    Passed(NodeId),
    /// A task is to run on a node, where its memory is, from now on (`migrate_task_to`).
    Prefers(ControlId, NodeId),
}

impl News {
    /// Of one step, those come first that have a lower rank.
    fn rank(self) -> (u8, Option<Daemon>) {
        match self {
            Self::Woken(daemon, _) => (0, Some(daemon)),
            Self::Killed(_) => (1, None),
            Self::Unlocked(_) => (2, None),
            Self::Passed(_) => (3, None),
            Self::Prefers(..) => (4, None),
        }
    }
}

impl Memory {
    /// Leaves news for others.
    pub fn tell(&mut self, news: News) {
        if !self.news.contains(&news) {
            self.news.push(news);
        }
    }

    /// Is there anything that others have to hear of? Next to no step leaves any.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// All of it since this was last asked, in the order in which others hear of it.
    pub fn take_news(&mut self) -> Vec<News> {
        let mut news = std::mem::take(&mut self.news);
        news.sort_by_key(|news| news.rank());
        news
    }

    /// Has a kernel thread of any node been woken, and is that news not told yet?
    pub fn has_woken(&self, daemon: Daemon) -> bool {
        self.news.iter().any(|news| matches!(news, News::Woken(woken, _) if *woken == daemon))
    }

    /// The nodes whose thread of a kind has been woken, for who steps one mechanism alone.
    pub fn take_woken(&mut self, daemon: Daemon) -> Vec<NodeId> {
        self.take_of(|news| if let News::Woken(woken, node) = news { (woken == daemon).then_some(node) } else { None })
    }

    /// The processes that were chosen, for who steps one mechanism alone.
    pub fn take_killed(&mut self) -> Vec<SpaceId> {
        self.take_of(|news| if let News::Killed(space) = news { Some(space) } else { None })
    }

    /// The folios that were unlocked, for who steps one mechanism alone.
    pub fn take_unlocked(&mut self) -> Vec<Pfn> {
        self.take_of(|news| if let News::Unlocked(pfn) = news { Some(pfn) } else { None })
    }

    /// The nodes whose kswapd has come to the end of a pass, for who steps one mechanism alone.
    pub fn take_passed(&mut self) -> Vec<NodeId> {
        self.take_of(|news| if let News::Passed(node) = news { Some(node) } else { None })
    }

    fn take_of<T>(&mut self, of: impl Fn(News) -> Option<T>) -> Vec<T> {
        let taken = self.news.iter().filter_map(|news| of(*news)).collect();
        self.news.retain(|news| of(*news).is_none());
        taken
    }
}
