//! Slow and obvious judges, and what they judge on.

pub mod brute;
pub mod ways;

pub mod model;
pub mod workload;
