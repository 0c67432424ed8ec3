//! The relational engine: the relation over visits in operators that dbsp has.
//!
//! dbsp joins by equality, and a rule meets a visit where their regions overlap. So visits of one
//! table whose lookups consulted the same bits *W* are a [group](groups), and two regions with masks
//! *W* and *m* overlap exactly if they agree under *W* & *m*: a group is projected under each such
//! mask that some rule of its table asked for, which is a join of visits with projections, and data
//! both. A rule that is added asks for the print of its own bits under the mask; a rule that goes, or
//! an object that changes, asks for its name.
//!
//! Questions are not kept, so that they are joined from one side only, with the trace of all links:
//! dbsp's own join would integrate them as well. What is found is as wide as the bits that *lookups*
//! consulted; what the whole entry fixes is compared outside, bit by bit ([`region`](crate::region)).
//!
//! The circuit has a runtime of dbsp with threads of its own, as traces are merged aside; starting one
//! replaces the panic hook of the process.
//!
//! Entries and questions come in steps of their own: whether a question sees a link of its own step
//! is the scheduler's choice.

mod circuit;
mod engine;
mod groups;
mod relation;

pub use engine::Relational;
