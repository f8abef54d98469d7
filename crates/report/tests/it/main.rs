//! Results, tables and published series.

mod extfrag;
mod percentiles;
mod published;
mod quantities;
mod short;
mod statistics;
mod store;
mod tables;
mod whole;
mod will_it_scale;
