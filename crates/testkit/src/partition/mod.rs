//! Partition policies: slow and simple oracles, generators, and recorded workloads.

pub mod brute;
pub mod plain;

pub mod model;
pub mod workload;
