//! The relational engine: the relation over visits in operators that dbsp has.
//!
//! dbsp joins by equality, but a rule affects visits with regions that overlap its own. Visits of
//! one table with lookups that consulted the same bits *W* form a [group](groups). Two regions with
//! masks *W* and *m* overlap exactly if they agree under *W* & *m*. So a group is projected under
//! each common mask that a rule of its table needs. That is a join of visits with projections, both
//! as data. An added rule is looked up by the fingerprint of its bits under the mask. A removed rule or
//! changed object is looked up by its key.
//!
//! Queries are not stored. They are joined from one side only, with the trace that the last step
//! left: the join of dbsp would store them as well. So they cost [no step](queries). The
//! queries of a rule in each group are [made one by one](search). A visit is found by the bits
//! that its *lookup* consulted. The other bits that the entry fixes are compared afterwards, bit by
//! bit ([`region`](crate::region)), unless the fingerprint has all bits of the rule.
//!
//! Entries that wait for a step are examined one by one, if they are few compared with the rules of
//! a change. Otherwise the step runs first. It also runs first after a merge of the traces was
//! started, because the engine then has no list of their batches.
//!
//! The circuit has a runtime of dbsp with its own threads, because traces are merged in the
//! background. Starting it replaces the panic hook of the process.

mod circuit;
mod engine;
mod groups;
mod queries;
mod relation;
mod search;

pub use engine::Relational;
