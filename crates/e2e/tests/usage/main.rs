//! What people do with a PhasedRollout: write a bad one, pause it, skip it, delete it, wait for it, look at it.

mod failing;
mod input;
mod leaving;
mod lifecycle;
mod looks;
