//! The relational engine: the relation over visits in operators that dbsp has.
//!
//! dbsp joins by equality, and a rule meets a visit where their regions overlap. So visits of one
//! table whose lookups consulted the same bits *W* are a [group](groups), and two regions with masks
//! *W* and *m* overlap exactly if they agree under *W* & *m*: a group is projected under each such
//! mask that some rule of its table asked for, which is a join of visits with projections, and data
//! both. A rule that is added asks for the print of its own bits under the mask; a rule that goes, or
//! an object that changes, asks for its name.
//!
//! Questions are not kept, so that they are joined from one side only, with what the last step left in
//! a trace: dbsp's own join would integrate them as well. So they cost [no step](questions), and what
//! a rule asks in each group is [found out as it goes](search). What is found is as wide as the bits
//! that *lookups* consulted; what the whole entry fixes is compared outside, bit by bit
//! ([`region`](crate::region)), unless the print has all bits that the rule matches.
//!
//! Entries that wait for a step are looked at one by one, if they are few for the rules of a change;
//! else the step comes first. It also comes first when traces were told to merge, as the list of
//! batches that was kept of them would keep these.
//!
//! The circuit has a runtime of dbsp with threads of its own, as traces are merged aside; starting one
//! replaces the panic hook of the process.

mod circuit;
mod engine;
mod groups;
mod questions;
mod relation;
mod search;

pub use engine::Relational;
