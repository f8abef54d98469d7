//! Trace events as lines, with Linux's names and print format (include/trace/events/kmem.h, v6.1).
//!
//! Off by default: then the manager records nothing, and a step pays one branch. The log is bounded; events that did not
//! fit are counted in its last line. An event has the time of its step's start, when the step's effects happen.

use memory::{fallback::Extfrag, pageblock::MigrateType};
use mm::Mm;
use units::{CpuId, Order, Time};

use crate::ids::TaskId;

/// Address of the kernel's array of `struct page` without randomisation (Documentation/x86/x86_64/mm.rst, v6.1), and the
/// size of an entry.
const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
const STRUCT_PAGE: u64 = 64;

/// The lines of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    lines: Vec<String>,
    /// Most lines that are kept.
    limit: usize,
    dropped: u64,
}

impl Trace {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Takes the events that a step has left with the manager.
    #[cold]
    pub(crate) fn take(&mut self, mm: &mut Mm, task: TaskId, cpu: CpuId, at: Time) {
        let pageblock = mm.memory.frames.blocks.order();
        for event in mm.memory.take_extfrag() {
            if self.lines.len() < self.limit {
                self.lines.push(format!("{}{}", head(task, cpu, at), extfrag(&event, pageblock)));
            } else {
                self.dropped += 1;
            }
        }
    }

    /// All lines, in the order of the run.
    pub(crate) fn text(&self) -> String {
        let mut text = self.lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        if self.dropped > 0 {
            text += &format!("# {} more events\n", self.dropped);
        }
        text
    }
}

/// `comm-pid [cpu] seconds.micros: `, as /sys/kernel/tracing/trace begins a line; a task's number stands for its pid.
fn head(task: TaskId, cpu: CpuId, at: Time) -> String {
    const PER_MICRO: u64 = 1_000_000;
    let micros = at.0 / PER_MICRO;
    let who = format!("task-{}", task.0);
    format!("{who:>16} [{:03}] {:>5}.{:06}: ", cpu.0, micros / PER_MICRO, micros % PER_MICRO)
}

fn extfrag(event: &Extfrag, pageblock: Order) -> String {
    format!(
        "mm_page_alloc_extfrag: page=0x{:x} pfn=0x{:x} alloc_order={} fallback_order={} pageblock_order={} \
         alloc_migratetype={} fallback_migratetype={} fragmenting={} change_ownership={}",
        VMEMMAP + u64::from(event.pfn.0) * STRUCT_PAGE,
        event.pfn.0,
        event.alloc_order.0,
        event.fallback_order.0,
        pageblock.0,
        number(event.alloc_type),
        number(event.fallback_type),
        u8::from(event.fragmenting),
        u8::from(event.change_ownership),
    )
}

/// Number of a migrate type in `enum migratetype` of a kernel with CMA and isolation (include/linux/mmzone.h, v6.1); up to
/// 4.3 RESERVE had the place of HIGHATOMIC.
fn number(list: MigrateType) -> u8 {
    match list {
        MigrateType::Unmovable => 0,
        MigrateType::Movable => 1,
        MigrateType::Reclaimable => 2,
        MigrateType::HighAtomic | MigrateType::Reserve => 3,
        MigrateType::Cma => 4,
        MigrateType::Isolate => 5,
    }
}

#[cfg(test)]
mod tests {
    use units::Pfn;

    use super::*;

    #[test]
    fn a_line_is_the_kernels() {
        let event = Extfrag {
            pfn: Pfn(0x1200),
            alloc_order: Order(0),
            fallback_order: Order(9),
            alloc_type: MigrateType::Unmovable,
            fallback_type: MigrateType::Movable,
            fragmenting: false,
            change_ownership: true,
        };
        assert_eq!(
            head(TaskId(3), CpuId(1), Time(12_345_678_901_234)) + &extfrag(&event, Order::HUGE),
            "          task-3 [001]    12.345678: mm_page_alloc_extfrag: page=0xffffea0000048000 pfn=0x1200 alloc_order=0 \
             fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1"
        );
    }
}
