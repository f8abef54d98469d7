//! Linux: none; how variant files write the values of rules.
//! Differs: a word for each value of an enum; switches, numbers and sizes as they are.

use units::{Bytes, Bzero, PageAllocator};

use super::{
    BalloonDeflates, CollapseTarget, CompactContended, CompactEnds, CompactHugePages, CompactMark, CompactStall,
    CowReuse, EmptyReserve, FallbackRules, GivesUp, HighAtomic, HugeCow, InodeShrink, LastResort, ListEnd, LruBy,
    MarkStep, Merging, MmapAlign, MmapLock, MovableMarks, NewAnon, NumaFilter, NumaHintsCow, NumaPeriod, NumaPlaces,
    PcpDrain, PcpFree, PcpHighRule, PcpLists, RatioZero, Scheduler, SlowPath, SlubCpuPartial, Takes, ThpDefrag,
    ThpNodes, ThpRequests, ThpZones, Value, WatermarkBoost, WatermarkOrders, Whole,
};

impl Whole for bool {
    const TAKES: Takes = Takes::Switch;
}

impl Value for bool {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(self) -> String {
        self.to_string()
    }
}

impl Value for u64 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(self) -> String {
        self.to_string()
    }
}

impl Value for Bytes {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(self) -> String {
        self.to_string()
    }
}

/// The words for the values of an enum.
macro_rules! words {
    ($($type:ident { $($value:ident = $word:literal,)* })*) => {$(
        impl Whole for $type {
            const TAKES: Takes = Takes::Words(&[$($word,)*]);
        }

        impl Value for $type {
            fn read(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$value),)*
                    _ => None,
                }
            }

            fn write(self) -> String {
                match self { $(Self::$value => $word,)* }.to_owned()
            }
        }
    )*};
}

words! {
    PageAllocator {
        Linux = "linux",
        Llfree = "llfree",
    }
    Bzero {
        BeyondShare = "non-temporal-beyond-share",
        Cached = "cached",
        BeyondThreeQuarters = "non-temporal-beyond-three-quarters",
        RepStosb = "rep-stosb",
    }
    NumaFilter {
        Twice = "twice",
        ActiveNodes = "active-nodes",
        CpuUse = "cpu-use",
    }
    NumaPeriod {
        Unmoved = "unmoved",
        Local = "local",
        LocalUnlessFailed = "local-unless-failed",
        LocalOrPrivate = "local-or-private",
    }
    NumaPlaces {
        Alone = "alone",
        ByCapacity = "by-capacity",
        ByImbalance = "by-imbalance",
        ByRoom = "by-room",
    }
    NumaHintsCow {
        All = "all",
        MappedOnce = "mapped-once",
        ReferencedOnce = "referenced-once",
    }
    LruBy {
        Zone = "zone",
        Node = "node",
    }
    BalloonDeflates {
        Never = "never",
        OnOom = "on-oom",
        Shrinker = "shrinker",
    }
    NewAnon {
        Inactive = "inactive-anon",
        Active = "active-anon",
    }
    SlubCpuPartial {
        Objects = "objects",
        Slabs = "slabs",
    }
    InodeShrink {
        TakesPages = "takes-pages",
        KeepsMany = "keeps-many",
        WithoutPages = "without-pages",
    }
    WatermarkBoost {
        None = "none",
        Any = "any",
        NotSmall = "not-small",
    }
    CowReuse {
        ByMappings = "by-mappings",
        ByReferences = "by-references",
        ByReferencesDrained = "by-references-drained",
    }
    ThpNodes {
        Any = "any",
        Local = "local",
        LocalUnlessReclaims = "local-unless-reclaims",
        LocalThenOnce = "local-then-once",
        LocalFirst = "local-first",
        LocalCompacted = "local-compacted",
        LocalCompactedUnlessShort = "local-compacted-unless-short",
        LocalFast = "local-fast",
        LocalUnlessAdvised = "local-unless-advised",
        LocalIfAdvised = "local-if-advised",
    }
    ThpDefrag {
        Always = "always",
        Defer = "defer",
        DeferMadvise = "defer+madvise",
        Madvise = "madvise",
        Never = "never",
    }
    CollapseTarget {
        FirstPage = "first-page",
        MostInTurn = "most-in-turn",
        Most = "most",
    }
    ThpRequests {
        Khugepaged = "khugepaged",
        KhugepagedUnscanned = "khugepaged-unscanned",
        NodeThreads = "node-threads",
    }
    MmapLock {
        Sleeping = "sleeping",
        Spinning = "spinning",
        SpinningOnReaders = "spinning-on-readers",
        Stealing = "stealing",
    }
    Scheduler {
        Cfs = "cfs",
        Eevdf = "eevdf",
        EevdfDelayed = "eevdf-delayed-dequeue",
    }
    MarkStep {
        QuarterOfMin = "quarter-of-min",
        ScaleFactor = "scale-factor",
    }
    MovableMarks {
        Share = "share",
        Clamped = "clamped",
    }
    RatioZero {
        One = "one",
        NoReserve = "no-reserve",
    }
    EmptyReserve {
        Formula = "formula",
        Nothing = "nothing",
    }
    PcpHighRule {
        SixBatches = "six-batches",
        LowMarkPerCpu = "low-mark-per-cpu",
        Tuned = "tuned",
    }
    ThpZones {
        Populated = "populated",
        UpToNormal = "up-to-normal",
    }
    MmapAlign {
        Base = "base",
        LargeAtHuge = "large-at-huge",
        MultiplesAtHuge = "multiples-at-huge",
    }
    FallbackRules {
        ReclaimableSteals = "reclaimable-steals",
        KernelSteals = "kernel-steals",
        CountsAlike = "counts-alike",
    }
    HugeCow {
        Copy = "copy",
        SplitPmd = "split-pmd",
    }
    HighAtomic {
        Nothing = "nothing",
        Pageblock = "pageblock",
        PageblockAfterPcp = "pageblock-after-pcp",
    }
    Merging {
        AllButIsolated = "all-but-isolated",
        Requestable = "requestable",
    }
    LastResort {
        ReserveMisplaced = "reserve-misplaced",
        Reserve = "reserve",
        Nothing = "nothing",
    }
    CompactEnds {
        AboveLow = "above-low",
        AtBlock = "at-block",
        AtPageblock = "at-pageblock",
    }
    SlowPath {
        Fixed = "fixed",
        ByProgress = "by-progress",
    }
    GivesUp {
        Deferred = "deferred",
        Pageblocks = "pageblocks",
        NotBegun = "not-begun",
        WholeBlocks = "whole-blocks",
    }
    CompactContended {
        Aborts = "aborts",
        GoesOn = "goes-on",
    }
    CompactHugePages {
        ByFrame = "by-frame",
        ByPage = "by-page",
        ByBlock = "by-block",
    }
    CompactMark {
        Low = "low",
        ByOrder = "by-order",
    }
    CompactStall {
        Tried = "tried",
        NotSkipped = "not-skipped",
        Asked = "asked",
    }
    WatermarkOrders {
        HalvedPerOrder = "halved-per-order",
        AnyLargeEnough = "any-large-enough",
    }
    ListEnd {
        Head = "head",
        Tail = "tail",
    }
    PcpLists {
        BaseReclaimableFirst = "base-reclaimable-first",
        Base = "base",
        HugeByType = "huge-by-type",
        HugeTogether = "huge-together",
    }
    PcpFree {
        Batch = "batch",
        Doubling = "doubling",
        DoublingAllOfHigh = "doubling-all-of-high",
    }
    PcpDrain {
        RoundRobin = "round-robin",
        RequestedFirst = "requested-first",
    }
}
