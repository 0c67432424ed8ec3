//! NuevoMatch: packet classification by an index over independent sets of rules.
//!
//! A rule is a box: one range in each lane of a key. The rules are divided into *relaxed iSets*.
//! The values of one lane of an iSet are divided into intervals, so that no rule of the iSet
//! crosses a border of an interval. The rules of an interval form a *bucket* of at most a few dozen
//! rules. A lookup finds the interval of the value of the key with an index over sorted numbers.
//! Then the lookup compares the key with the rules of the bucket, 16 at once.
//!
//! [`NuevoMatch`] is the classifier: of the rules that match a key, the rule with the smallest
//! priority wins. Rules that no iSet holds are in the *remainder*: a list, or hash tables.
//! [`CandidateIndex`] has no priorities: it returns all boxes that contain a key, and the caller
//! verifies them. The rules of a [`LiveNuevoMatch`] change while other threads look up keys, and a
//! thread rebuilds it. [`AclClassifier`] has the interface of `rte_acl` of DPDK, and the rules of a
//! [`LiveAclClassifier`] change while other threads classify.
//!
//! Sources: *A Computational Approach to Packet Classification* (NuevoMatch, SIGCOMM 2020) and
//! *Scaling Open vSwitch with a Computational Cache* (NuevoMatchUP, NSDI 2022).
//!
//! ```
//! use shunt_nuevomatch::{BoxRule, CandidateIndex, KeySchema};
//!
//! let rules: Vec<BoxRule<2>> = (0..100)
//!     .map(|i| BoxRule { low: [i * 10, 0], high: [i * 10 + 9, 1023], value: i })
//!     .collect();
//! let schema = KeySchema::new(&[32, 16])?;
//! let (index, left_out) = CandidateIndex::<2>::build(&schema, &rules, &Default::default())?;
//! assert!(left_out.is_empty());
//! assert_eq!(index.find(&[205, 80], |_| true), Some(20));
//! assert_eq!(index.find(&[205, 4711], |_| true), None);
//! # Ok::<(), shunt_nuevomatch::Error>(())
//! ```

mod error;
mod memory;
mod schema;

mod box_rule;
mod rule;
mod simd;

pub mod index;
pub mod rqrmi;

mod blocks;
mod partition;

mod candidates;
mod remainder;

mod classifier;

mod acl;
mod classbench;
mod live;
mod sync;

#[cfg(feature = "testing")]
pub mod testing;

pub use acl::{
    ACL_CATEGORIES_MAX, ACL_PRIORITY_MAX, AclClassifier, AclReader, AclRule, LiveAclClassifier,
};
pub use box_rule::BoxRule;
pub use candidates::{CANDIDATE_BATCH_MAX, CandidateIndex, CandidateStatistics};
pub use classbench::{ClassBenchError, parse_classbench};
pub use classifier::{
    BestMatch, BucketCapacity, LaneFit, NuevoMatch, NuevoMatchSettings, NuevoMatchStatistics,
    SetStatistics,
};
pub use error::{AclError, AclRuleError, Error};
pub use index::{
    AnyStartIndex, LinearSegments, SegmentSettings, StartIndex, StartIndexKind, StaticTree,
};
pub use live::{
    LiveNuevoMatch, LiveReader, LiveSettings, LiveStatistics, RuleUpdate, Trainer, TrainerState,
    UpdatePolicy,
};
pub use partition::PartitionSettings;
pub use rule::{FieldMatch, PRIORITY_MAX, PriorityRule};
pub use schema::{FIELD_BITS_MAX, KeySchema, LANE_BITS_MAX};
