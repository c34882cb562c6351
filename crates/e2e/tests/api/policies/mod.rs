//! The admission policies on real API servers: what each of them lets through, keeps, and says.

mod birth;
mod hold;
mod pods;
mod records;
mod stage;
mod strategy;
mod warning;
