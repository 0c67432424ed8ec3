//! Rules and keys of IPv4 5-tuples, in the form of the classifier.

use shunt_nuevomatch::{BestMatch, FieldMatch, KeySchema, NuevoMatch, PriorityRule};

use crate::ffi::{NUEVOMATCH_NONE, NuevoMatchKey, NuevoMatchResult, NuevoMatchRule};

/// Keys of one call of the classifier.
pub(crate) const BATCH: usize = 32;

/// Returns a rule of the classifier, or nothing if the rule is invalid.
pub(crate) fn rule(own: &NuevoMatchRule) -> Option<PriorityRule<5>> {
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
    PriorityRule::new(&KeySchema::five_tuple(), &fields, own.priority, own.value).ok()
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
