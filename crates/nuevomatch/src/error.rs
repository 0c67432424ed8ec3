//! Errors for refused schemas, rules, settings and lists of starts.

use thiserror::Error;

use crate::rqrmi::STARTS_MAX;

/// A refused schema, rule or setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A field has more bits than a schema allows.
    #[error("field {field} has {bits} bits, but a field has at most 128: split it")]
    FieldTooWide {
        /// Number of the field, from 0.
        field: usize,
        /// Width of the field.
        bits: u32,
    },
    /// The number of lanes of a schema differs from that of the type that uses it.
    #[error(
        "the schema has {lanes} lanes, but the type is for {expected}: change the parameter of \
         the type"
    )]
    LaneCount {
        /// Number of lanes of the schema.
        lanes: usize,
        /// Number of lanes of the type.
        expected: usize,
    },
    /// The number of fields of a rule differs from that of the schema.
    #[error("the rule has {fields} fields, but the schema has {expected}: give each field a match")]
    FieldCount {
        /// Number of fields of the rule.
        fields: usize,
        /// Number of fields of the schema.
        expected: usize,
    },
    /// A match has no value, or values that do not fit into its field.
    #[error("field {field}: the match is empty or exceeds {bits} bits: correct its values")]
    InvalidField {
        /// Number of the field, from 0.
        field: usize,
        /// Width of the field.
        bits: u32,
    },
    /// A range of a field over several lanes is not a box of lanes.
    #[error("field {field}: a range of a field of over 32 bits must be a prefix: split the range")]
    WideRange {
        /// Number of the field, from 0.
        field: usize,
    },
    /// A priority is too large.
    #[error("priority {priority} is too large: priorities run from 0 to {max}, and 0 wins")]
    Priority {
        /// The priority that was refused.
        priority: u32,
        /// The largest priority of a rule.
        max: u32,
    },
    /// A rule has a range without values.
    #[error(
        "rule {rule}: the range in lane {lane} begins at {low} and ends at {high}: swap the two \
         ends"
    )]
    EmptyRange {
        /// Position of the rule in the list of rules.
        rule: usize,
        /// The lane of the range.
        lane: usize,
        /// First value of the range.
        low: u32,
        /// Last value of the range.
        high: u32,
    },
    /// A range has values that do not fit into its lane.
    #[error(
        "rule {rule}: the range in lane {lane} ends at {high}, but the lane has values up to \
         {max}: lower the end"
    )]
    OutsideLane {
        /// Position of the rule in the list of rules.
        rule: usize,
        /// The lane of the range.
        lane: usize,
        /// Last value of the range.
        high: u32,
        /// Largest value that the lane can hold.
        max: u32,
    },
    /// More rules than an index can number.
    #[error("{rules} rules are too many for an index, which holds at most {max}: divide the rules")]
    TooManyRules {
        /// Number of rules that were given.
        rules: usize,
        /// Largest number of rules.
        max: usize,
    },
    /// More buckets in an iSet than the index over their starts can number.
    #[error(
        "an iSet with {starts} buckets is too large for this index, which holds at most {max}: \
         choose the tree index, or larger buckets"
    )]
    TooManyStarts {
        /// Number of starts of buckets.
        starts: usize,
        /// Largest number of starts.
        max: usize,
    },
    /// The system has no memory for a build.
    #[error(
        "{rules} rules need at least {bytes} bytes of memory, which the system refuses: free \
         memory, raise its limit, or divide the rules"
    )]
    Memory {
        /// Number of rules that were given.
        rules: usize,
        /// Minimum number of bytes that the build needs.
        bytes: usize,
    },
    /// The capacity of a bucket is zero or too large.
    #[error(
        "bucket_rules = {bucket_rules} is refused: a bucket holds 1 to {max} rules, so use such a \
         number"
    )]
    BucketRules {
        /// The capacity of a bucket that was refused.
        bucket_rules: usize,
        /// The largest capacity of a bucket.
        max: usize,
    },
}

/// A refused list of rules of a classifier with the contract of `rte_acl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AclError {
    /// The classifier has no category, or too many.
    #[error("a classifier with {categories} categories is refused: use 1 to {max}")]
    Categories {
        /// The refused number of categories.
        categories: usize,
        /// Largest number of categories.
        max: usize,
    },
    /// A rule of the list is illegal.
    #[error("rule {rule}: {problem}")]
    Rule {
        /// Position of the rule in the list of rules.
        rule: usize,
        /// The illegal field, with the reason.
        problem: AclRuleError,
    },
    /// The rules of a category cannot be built.
    #[error(transparent)]
    Build(#[from] Error),
}

/// A refused rule of a classifier with the contract of `rte_acl`.
///
/// `field` is the name of a field of [`AclRule`](crate::AclRule).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AclRuleError {
    /// The priority of the rule is illegal.
    #[error("priority {priority} is illegal: priorities run from 1 to {max}, and {max} wins")]
    Priority {
        /// The priority that was refused.
        priority: u32,
        /// The largest priority of a rule.
        max: u32,
    },
    /// The `userdata` of the rule is 0.
    #[error("userdata 0 means that no rule matches: give the rule another number")]
    UserData,
    /// A prefix is longer than an address.
    #[error("{field} has a prefix of {length} bits, but an address has 32: shorten the prefix")]
    Prefix {
        /// The field with the prefix.
        field: &'static str,
        /// The length of the prefix that was refused.
        length: u8,
    },
    /// A range of ports has no port.
    #[error("the range of {field} begins at {low} and ends at {high}: swap the two ends")]
    Ports {
        /// The field with the range.
        field: &'static str,
        /// First port of the range.
        low: u16,
        /// Last port of the range.
        high: u16,
    },
}

/// The reason why no model can be trained for a list of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The list of starts is empty.
    #[error("the list of range starts is empty: a model needs at least one start")]
    Empty,
    /// The starts are not in strictly ascending order.
    #[error(
        "the range start {start} at position {position} is not above the start before it: sort \
         the starts and remove duplicates"
    )]
    NotAscending {
        /// Position of the start in the list.
        position: usize,
        /// The start that is not above the one before it.
        start: u32,
    },
    /// The list has more starts than the output of a neural net can number.
    #[error("{count} starts of ranges are too many: a model indexes at most {STARTS_MAX}")]
    TooMany {
        /// Number of starts of ranges.
        count: usize,
    },
}
