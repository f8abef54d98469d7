//! Linux: wake_up() and send_sig(), wherever they are called.
//! Differs: what a step has brought about for other tasks is told at its end, all in one place.

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
            /// Every daemon, in the order in which they are started, and in which those woken by one step are told.
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
    /// Allocates huge pages of a node for faults (rule `thp_requests`); has khugepaged's nice level, as it takes over
    /// its work.
    ThpThread,
    /// Tells a hypervisor which blocks are free: a worker of the kernel's work queue.
    Reporter,
    /// Takes idle objects out of a CPU's arrays of SLAB: one worker per CPU.
    CacheReap,
    /// Takes memory from a guest for its host: a worker of the kernel's work queue.
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
    /// A node's kswapd has finished a pass, or has nothing to do (`pfmemalloc_wait`).
    Passed(NodeId),
    /// A task is to run from now on on the node of its memory (`migrate_task_to`).
    Prefers(ControlId, NodeId),
}

impl News {
    /// Rank by which the news of one step is told, lowest first.
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

    /// Whether there is news that is not told yet. Few steps leave any.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes all news since the last call, in the order in which it is told.
    pub fn take_news(&mut self) -> Vec<News> {
        let mut news = std::mem::take(&mut self.news);
        news.sort_by_key(|news| news.rank());
        news
    }

    /// Whether a kernel thread of any node was woken and that news is not told yet.
    pub fn has_woken(&self, daemon: Daemon) -> bool {
        self.news.iter().any(|news| matches!(news, News::Woken(woken, _) if *woken == daemon))
    }

    /// Takes the nodes whose thread of this kind was woken: for callers that step one mechanism alone.
    pub fn take_woken(&mut self, daemon: Daemon) -> Vec<NodeId> {
        self.take_of(|news| if let News::Woken(woken, node) = news { (woken == daemon).then_some(node) } else { None })
    }

    /// Takes the processes chosen by the OOM killer: for callers that step one mechanism alone.
    pub fn take_killed(&mut self) -> Vec<SpaceId> {
        self.take_of(|news| if let News::Killed(space) = news { Some(space) } else { None })
    }

    /// Takes the folios that were unlocked: for callers that step one mechanism alone.
    pub fn take_unlocked(&mut self) -> Vec<Pfn> {
        self.take_of(|news| if let News::Unlocked(pfn) = news { Some(pfn) } else { None })
    }

    /// Takes the nodes whose kswapd has finished a pass: for callers that step one mechanism alone.
    pub fn take_passed(&mut self) -> Vec<NodeId> {
        self.take_of(|news| if let News::Passed(node) = news { Some(node) } else { None })
    }

    fn take_of<T>(&mut self, of: impl Fn(News) -> Option<T>) -> Vec<T> {
        let taken = self.news.iter().filter_map(|news| of(*news)).collect();
        self.news.retain(|news| of(*news).is_none());
        taken
    }
}
