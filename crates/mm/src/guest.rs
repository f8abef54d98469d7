//! Linux: mm/page_reporting.c, drivers/virtio/virtio_balloon.c and virt/kvm/kvm_main.c (v5.7 to v6.1).
//! Differs: the hypervisor is a table of what it backs.
//!
//! Floor 6: memory that belongs to a host: the balloon, free page reporting, the host's backing, and mistakes that tests
//! make in these. Files here use floors 0 to 5. Begin with `reporting.rs`.

pub mod balloon;
pub mod mistake;
pub mod reporting;
