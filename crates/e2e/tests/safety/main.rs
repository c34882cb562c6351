//! No pod moves unapproved, whatever is written by whom, and whether the operator is there or not; and what is broken can be mended.

mod birth;
mod hold;
mod repair;
