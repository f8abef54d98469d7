//! From run to table: result records and their store, statistics, tables, and their renderers.
//!
//! A run appends one [`Record`] per cell to a [`Store`]. [`Report::new`] is a pure function from cells to tables. A
//! [`Page`] holds tables and other printed parts, and is rendered in one of several forms; programs may also have the
//! tables as they are. This crate runs nothing and knows nothing of how a target works.

mod balancing;
mod better;
pub mod causes;
pub mod checks;
mod classic;
pub mod columns;
pub mod compare;
pub mod counters;
pub mod csv;
pub mod duration;
pub mod extfrag;
pub mod footprint;
mod frontier;
mod group;
pub mod html;
pub mod json;
#[cfg(test)]
mod made_up;
mod makers;
pub mod map;
mod memory;
pub mod metrics;
pub mod mmtests;
mod mmtests_2015;
pub mod names;
mod naming;
pub mod over_time;
pub mod page;
pub mod perfetto;
pub mod published;
pub mod quantity;
pub mod record;
pub mod seal;
pub mod series;
pub mod short;
pub mod slow_path;
pub mod stats;
pub mod store;
pub mod table;
pub mod timeline;
pub mod whole;
mod will_it_scale;

pub use self::better::Better;
pub use self::causes::causes;
pub use self::checks::checks;
pub use self::classic::classic_counters;
pub use self::columns::{ColumnTable, Columns};
pub use self::counters::counters;
pub use self::csv::{CsvLine, to_csv};
pub use self::duration::durations;
pub use self::extfrag::extfrag;
pub use self::frontier::{FrontierRow, frontier, frontier_csv, frontier_text};
pub use self::group::{name_cases, operations};
pub use self::metrics::{SamplesOf, samples, tables};
pub use self::mmtests::to_text;
pub use self::names::{brief, file_name_of_cell, file_names};
pub use self::page::{Page, Part};
pub use self::published::{
    Judgement, Ours, Printed, Published, PublishedColumn, PublishedError, PublishedSource, Verdict,
};
pub use self::quantity::Quantity;
pub use self::record::{
    Cell, Check, Column, Duration, Extfrag, ExtfragEvents, Footprint, Held, Key, Measured, Memory, Metric,
    OF_ALL_CASES, Record, Run, SCHEMA, Skip, Skipped, System, Target, WAITING, WindowEvents, cells,
};
pub use self::series::{Sample, Series};
pub use self::short::{Beside, WIDTH, to_short};
pub use self::slow_path::SlowPath;
pub use self::store::{
    ALTERED, Contents, Line, Lines, NoRecord, RESULT_FILE, Rejected, Store, StoreError, Torn, read_line,
};
pub use self::table::{
    Against, Baseline, CheckRow, CheckTable, ColumnHead, Form, Kind, Layout, Report, Row, Table, Value,
};
pub use self::whole::{check_regular, check_whole, write_all_whole, write_whole};
