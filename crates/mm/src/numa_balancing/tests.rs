//! Scans, hinting faults and what follows from them, on two nodes.
