//! Packet classification over flow masks: the contract, tuple space search, and an oracle.
//!
//! A [`Classifier`] is a table of rules. A rule matches flow keys under a mask. Of the rules that
//! match a key, the rule with the highest [`Rank`] wins: by priority first, then by age.
//! [`Classifier::lookup_masked`] also adds the bits that the result depends on to a mask. A cache
//! can use the result for every key that agrees in these bits.
//!
//! Threads at different [`Version`]s share a table. A rule has a [`Lifetime`], and each lookup has
//! the version of its thread as an argument. [`Classifier::reclaim`] drops the rules that no
//! version sees any more.
//!
//! [`TupleSpace`] is the classifier of the switch. Tests compare each classifier with the oracle
//! [`Linear`].
//!
//! ```
//! use shunt_classifier::{Classifier, Priority, Rank, TupleSpace, Version};
//! use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
//!
//! // ip_dst=10.1.0.0/16
//! let mut network = FlowKey::ZERO;
//! network.set_field(FieldId::EthType, 0x0800);
//! network.set_field(FieldId::Ipv4Dst, 0x0a01_0000);
//! let mut mask = FlowMask::EMPTY;
//! mask.add_field(FieldId::EthType);
//! mask.add_bits(FieldId::Ipv4Dst, 0xffff_0000);
//! let matching = Match::new(&network, &mask);
//!
//! let mut table = TupleSpace::new(42);
//! let (before, after) = (Version::ZERO, Version::ZERO.next());
//! let rank = Rank { priority: Priority::new(7), age: 0 };
//! table.insert(matching.clone(), rank, after, "to the router");
//!
//! let mut packet = network.clone();
//! packet.set_field(FieldId::Ipv4Dst, 0x0a01_0203);
//! assert_eq!(table.lookup(&packet, before), None);
//! assert_eq!(table.lookup(&packet, after), Some(&"to the router"));
//!
//! // 192.168.0.1 has no rule, and the first bit of the address proves it.
//! packet.set_field(FieldId::Ipv4Dst, 0xc0a8_0001);
//! let mut depends_on = FlowMask::EMPTY;
//! assert_eq!(table.lookup_masked(&packet, after, &mut depends_on), None);
//! assert_eq!(depends_on.field(FieldId::Ipv4Dst), 0x8000_0000);
//!
//! // The rule is reclaimed once no thread is at a version that sees it.
//! table.remove(&matching, rank, after.next());
//! table.reclaim(after.next());
//! assert!(table.is_empty());
//! ```

mod contract;
mod version;

mod linear;
mod trie;
mod tuple_space;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use contract::{Classifier, Matches, Priority, Rank};
pub use linear::Linear;
pub use tuple_space::{ScanPosition, TupleSpace};
pub use version::{Lifetime, Version};
