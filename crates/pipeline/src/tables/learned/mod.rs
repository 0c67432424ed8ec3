//! Learned indexes over the rules of tables (NuevoMatch).

pub mod lanes;
pub(crate) mod learned_rules;
pub(crate) mod learned_table;
pub(crate) mod masked;
