//! Refused schemas, rules, settings and starts.

use thiserror::Error;

use crate::rqrmi::STARTS_MAX;

/// A refused schema, rule or setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A field is wider than the widest that a schema may have.
    #[error("field {field} has {bits} bits, but a field has at most 128: split it")]
    FieldTooWide {
        /// Number of the field, from 0.
        field: usize,
        /// Width of the field.
        bits: u32,
    },
    /// A schema has another number of lanes than the type that it is used with.
    #[error("the schema has {lanes} lanes, but the type is for {expected}: change its parameter")]
    LaneCount {
        /// Lanes of the schema.
        lanes: usize,
        /// Lanes of the type.
        expected: usize,
    },
    /// A rule has another number of fields than the schema.
    #[error("the rule has {fields} fields, but the schema has {expected}: give each field a match")]
    FieldCount {
        /// Fields of the rule.
        fields: usize,
        /// Fields of the schema.
        expected: usize,
    },
    /// A match has values outside its field, or none.
    #[error("field {field}: the match is empty or exceeds {bits} bits: correct its values")]
    InvalidField {
        /// Number of the field, from 0.
        field: usize,
        /// Width of the field.
        bits: u32,
    },
    /// A range of a field of several lanes is not a box of lanes.
    #[error("field {field}: a range of a field of over 32 bits must be a prefix: split the range")]
    WideRange {
        /// Number of the field, from 0.
        field: usize,
    },
    /// A priority is too large.
    #[error("priority {priority} is too large: priorities run from 0 to {max}, and 0 wins")]
    Priority {
        /// The refused priority.
        priority: u32,
        /// Largest priority.
        max: u32,
    },
    /// A classifier in the shape of `rte_acl` has no category, or too many.
    #[error("{categories} categories: a classifier has 1 to {max}, so change the number")]
    AclCategories {
        /// The refused number.
        categories: usize,
        /// Largest number.
        max: usize,
    },
    /// A rule for `rte_acl` has a priority that is not legal there.
    #[error("priority {priority} is not legal: priorities run from 1 to {max}, and {max} wins")]
    AclPriority {
        /// The refused priority.
        priority: u32,
        /// Largest priority.
        max: u32,
    },
    /// A rule for `rte_acl` has no number.
    #[error("userdata 0 means that no rule matches: give the rule another number")]
    AclUserData,
    /// A rule has a range without values.
    #[error("rule {rule}: lane {lane} is from {low} to {high}: swap the ends of the range")]
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
    /// A range exceeds its lane.
    #[error("rule {rule}: lane {lane} ends at {high}, but its last value is {max}: mask the range")]
    OutsideLane {
        /// Position of the rule in the list of rules.
        rule: usize,
        /// The lane of the range.
        lane: usize,
        /// Last value of the range.
        high: u32,
        /// Last value of the lane.
        max: u32,
    },
    /// More rules than an index can number.
    #[error("{rules} rules, but an index holds at most {max}: divide the rules")]
    TooManyRules {
        /// Number of rules.
        rules: usize,
        /// Largest number of rules.
        max: usize,
    },
    /// A bucket cannot have this capacity.
    #[error("bucket_rules = {bucket_rules}, but a bucket holds from 1 to {max} rules")]
    BucketRules {
        /// The refused capacity.
        bucket_rules: usize,
        /// Largest capacity.
        max: usize,
    },
}

/// Starts for which no model can be trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// There are no starts.
    #[error("no starts: a model needs at least one")]
    Empty,
    /// The starts are not in strictly ascending order.
    #[error(
        "start {start} at position {position} is not above the one before it: \
         sort the starts and remove duplicates"
    )]
    NotAscending {
        /// Position of the start.
        position: usize,
        /// The start.
        start: u32,
    },
    /// There are more starts than an output of a net can count.
    #[error("{count} starts: a model indexes at most {STARTS_MAX}")]
    TooMany {
        /// Number of starts.
        count: usize,
    },
}
