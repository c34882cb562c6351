//! Running the operator: which of several works, with which rights, and how it is installed.

mod leader;
mod rbac;
