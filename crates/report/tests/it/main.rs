//! Results, tables and published series.

mod extfrag;
mod percentiles;
mod published;
mod short;
mod statistics;
mod store;
mod tables;
mod will_it_scale;
