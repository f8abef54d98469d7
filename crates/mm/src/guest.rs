//! Linux: mm/page_reporting.c, drivers/virtio/virtio_balloon.c and virt/kvm/kvm_main.c (v5.7 to v6.1).
//! Differs: the hypervisor is a table of what it backs.
//!
//! Floor 6: memory that belongs to a host. The balloon, reports of free pages and what is behind them live here, and the
//! mistakes that tests make in them. Files here use floors 0 to 5. Begin with `reporting.rs`.

pub mod balloon;
pub mod mistake;
pub mod reporting;
