//! Results, tables and published series.

mod extfrag;
mod published;
mod short;
mod statistics;
mod store;
mod tables;
mod will_it_scale;
