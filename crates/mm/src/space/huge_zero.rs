//! Linux: the huge zero page of mm/huge_memory.c (v6.1).
//! Differs: none.

use memory::{cx::Cx, event::Event, frame::Frame};
use rules::{
    gfp::{AllocRequest, Mobility},
    zone::ZoneKind,
};
use units::{Order, Pfn};

use crate::{Mm, space::address_space::AddressSpace};

/// The one huge page of zeros, which reads of memory never written to share.
#[derive(Clone, Debug, Default)]
pub struct HugeZero {
    page: Option<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    frame: Pfn,
    /// Number of address spaces that have mapped the page.
    users: u32,
}

impl HugeZero {
    /// The page's frame, if the page exists.
    pub fn frame(&self) -> Option<Pfn> {
        self.page.as_ref().map(|page| page.frame)
    }

    /// Whether the page exists and is not used.
    pub(crate) fn is_unused(&self) -> bool {
        self.page.as_ref().is_some_and(|page| page.users == 0)
    }

    /// Number of address spaces that use the page: for checks.
    pub(crate) fn raw_users(&self) -> u32 {
        self.page.as_ref().map_or(0, |page| page.users)
    }
}

impl Mm {
    /// Gives the huge zero page to one more address space (`mm_get_huge_zero_page`); none if memory is out.
    pub(crate) fn get_huge_zero(&mut self, cx: &mut Cx, space: &mut AddressSpace) -> Option<Pfn> {
        if self.huge_zero.page.is_none() {
            let user = AllocRequest::gfp_transhuge_light(self.memory.node_of_cpu(cx.cpu()));
            let request = AllocRequest { mobility: Mobility::Unmovable, highest: ZoneKind::Normal, ..user };
            // A request that does not reclaim asks for nothing.
            let frame = self.memory.alloc(cx, &request).ok()?;
            self.memory.frames.set(frame, Frame::ZeroHuge);
            self.memory.clear(cx, frame, Order::HUGE);
            cx.count(Event::ThpZeroPageAlloc, 1);
            self.huge_zero.page = Some(Page { frame, users: 0 });
        }
        let zero = self.huge_zero.page.as_mut().expect("made above");
        if !space.uses_huge_zero {
            space.uses_huge_zero = true;
            zero.users += 1;
        }
        Some(zero.frame)
    }

    /// Takes the page back from an address space that ends (`mm_put_huge_zero_page`). The page stays until memory is
    /// short.
    pub(crate) fn put_huge_zero(&mut self, space: &AddressSpace) {
        if space.uses_huge_zero {
            self.huge_zero.page.as_mut().expect("the space had it").users -= 1;
        }
    }

    /// Frees the huge zero page if it is not used, as its shrinker does; returns whether it was freed.
    pub fn shrink_huge_zero(&mut self, cx: &mut Cx) -> bool {
        let unused = self.huge_zero.page.take_if(|zero| zero.users == 0);
        if let Some(zero) = &unused {
            self.memory.free(cx, zero.frame, Order::HUGE);
        }
        unused.is_some()
    }
}
