//! The relational engine: a relation over visits, computed by the standard operators of dbsp.
//!
//! dbsp joins by equality, but a rule affects visits with regions that overlap its own. Visits of
//! one table with lookups that consulted the same bits *W* form a [group](groups). Two regions with
//! masks *W* and *m* overlap exactly if they agree under *W* & *m*. So a group is projected under
//! each common mask that a rule of its table needs. The circuit computes the fingerprints as a join
//! of visits with projections. For an added rule, the fingerprint of its bits under the mask is
//! looked up. For a removed rule or a changed object, its key is looked up.
//!
//! Queries are not rows of the circuit, because the join of dbsp would store them too. The engine
//! joins queries with the trace after the last step, so queries cost [no step](queries). The module
//! [`search`] makes the queries of a rule for each group. A visit is found by the bits that its
//! *lookup* consulted. All other bits that the entry fixes are then compared bit by bit
//! ([`region`](crate::region)), unless the fingerprint has all bits of the rule.
//!
//! If few entries wait for a step, compared with the rules of a change, these entries are examined
//! one by one. If many entries wait, the step runs before the search. After the start of a merge of
//! the traces, the step also runs before the search, because the engine then has no list of their
//! batches.
//!
//! The circuit has a runtime of dbsp with its own threads, which merge traces in the background.
//! The start of this runtime replaces the panic hook of the process.

mod circuit;
mod engine;
mod groups;
mod queries;
mod relation;
mod search;

pub use engine::Relational;
