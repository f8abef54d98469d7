//! The command, as its users run it. One program, so that it is linked once.

mod arithmetic;
mod bad_input;
mod calibrate;
mod causes;
mod cli;
mod compare_own;
mod determinism;
mod ends;
mod evidence;
mod files;
mod first_patch;
mod footprint;
mod leftovers;
mod modules;
mod numa_access;
mod over_time;
mod readme;
mod recipe;
mod replay;
mod series;
mod shell;
mod sim;
mod sixteen;
mod state;
mod support;
mod will_it_scale;
