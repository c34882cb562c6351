//! Running the operator: which of several works, with which rights, and what it says of itself.

mod costs;
mod leader;
mod older;
mod rbac;
mod thousand;
mod web;
