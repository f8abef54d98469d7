//! Linux: none; pages that move to the node that uses them, huge ones and base ones, with everything walked after each step.

mod balancing;
mod misplaced;
mod random;
mod to_node;
mod world;
