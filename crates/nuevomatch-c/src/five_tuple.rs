//! Rules and keys of IPv4 5-tuples, in the form of the classifier.

use std::ffi::CStr;

use shunt_nuevomatch::{BestMatch, Error, FieldMatch, KeySchema, NuevoMatch, PriorityRule};

use crate::ffi::{NUEVOMATCH_NONE, NuevoMatchKey, NuevoMatchResult, NuevoMatchRule};

/// Keys of one call of the classifier.
pub(crate) const BATCH: usize = 32;

/// The refused member of a rule, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleProblem {
    pub(crate) field: &'static CStr,
    pub(crate) reason: &'static CStr,
}

impl RuleProblem {
    /// The rules are a null pointer, or more than memory can hold.
    pub(crate) const NO_RULES: Self = Self {
        field: c"rules",
        reason: c"NULL, or more than memory can hold: pass an array of at least one rule and its \
                  count",
    };

    /// Returns the member and the reason of an error.
    fn of(error: Error) -> Self {
        let (field, reason) = match error {
            Error::InvalidField { field: 0, .. } => (c"source_bits", PREFIX_REASON),
            Error::InvalidField { field: 1, .. } => (c"destination_bits", PREFIX_REASON),
            Error::InvalidField { field: 2, .. } => (c"source_port_low", RANGE_REASON),
            Error::InvalidField { field: 3, .. } => (c"destination_port_low", RANGE_REASON),
            Error::InvalidField { field: 4, .. } => (c"protocol_low", RANGE_REASON),
            Error::Priority { .. } => (c"priority", PRIORITY_REASON),
            // The other errors are of other schemas, which a 5-tuple never has.
            _ => {
                (c"rule", c"the rule is of another schema: fill in every member of nuevomatch_rule")
            }
        };
        Self { field, reason }
    }
}

/// The reason for a refused prefix.
const PREFIX_REASON: &CStr = c"the prefix is longer than 32 bits: shorten it";
/// The reason for a refused range.
const RANGE_REASON: &CStr = c"the range begins after its end: swap its ends";
/// The reason for a refused priority.
const PRIORITY_REASON: &CStr = c"the priority is above NUEVOMATCH_PRIORITY_MAX: reduce it";

/// Returns a rule of the classifier.
///
/// # Errors
///
/// The first member that is invalid.
pub(crate) fn rule(own: &NuevoMatchRule) -> Result<PriorityRule<5>, RuleProblem> {
    let prefix =
        |value: u32, bits: u8| FieldMatch::Prefix { value: value.into(), length: bits.into() };
    let ports = |low: u16, high: u16| FieldMatch::Range { low: low.into(), high: high.into() };
    let fields = [
        prefix(own.source, own.source_bits),
        prefix(own.destination, own.destination_bits),
        ports(own.source_port_low, own.source_port_high),
        ports(own.destination_port_low, own.destination_port_high),
        ports(own.protocol_low.into(), own.protocol_high.into()),
    ];
    PriorityRule::new(&KeySchema::five_tuple(), &fields, own.priority, own.value)
        .map_err(RuleProblem::of)
}

/// Returns the rules of the classifier.
///
/// The result is `None` if a rule is invalid, or if the system refuses the memory of the copies.
pub(crate) fn converted(rules: &[NuevoMatchRule]) -> Option<Vec<PriorityRule<5>>> {
    let mut all = Vec::new();
    all.try_reserve_exact(rules.len()).ok()?;
    for own in rules {
        all.push(rule(own).ok()?);
    }
    Some(all)
}

/// Finds the winners for at most [`BATCH`] keys.
pub(crate) fn winners(
    classifier: &NuevoMatch<5>,
    keys: &[NuevoMatchKey],
) -> impl Iterator<Item = NuevoMatchResult> {
    let mut lanes = [[0; 5]; BATCH];
    let mut best = [None; BATCH];
    for (lanes, key) in lanes.iter_mut().zip(keys) {
        let NuevoMatchKey { source, destination, source_port, destination_port, protocol } = *key;
        let ports = [source_port, destination_port].map(u32::from);
        *lanes = [source, destination, ports[0], ports[1], protocol.into()];
    }
    let count = keys.len().min(BATCH);
    classifier.lookup_batch(&lanes[..count], &mut best);
    best.into_iter().take(count).map(result)
}

/// Converts the result of a lookup.
fn result(best: Option<BestMatch>) -> NuevoMatchResult {
    best.map_or(
        NuevoMatchResult { priority: NUEVOMATCH_NONE, value: 0 },
        |BestMatch { priority, value }| NuevoMatchResult { priority, value },
    )
}
