//! `decide` on inputs that no API server would give: it is total, gives the same plan for the same input, and stays bounded.

mod bounded;
mod counts;
mod input;
mod total;
