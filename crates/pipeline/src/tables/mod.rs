//! Flow tables: rules, the requests that change them, their limits and timeouts.

pub(crate) mod conjunction;
pub(crate) mod evictable;
pub(crate) mod expiry;
pub(crate) mod flow_mod;
pub(crate) mod interner;
pub(crate) mod learned;
pub(crate) mod rule;
pub(crate) mod rule_filter;
pub(crate) mod table;
