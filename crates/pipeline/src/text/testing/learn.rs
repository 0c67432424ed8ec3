//! Generators of `learn`, with the matches and actions of the learned rule.

use proptest::{collection::vec, option, prelude::*};
use shunt_classifier::Priority;
use shunt_flow::{FieldId, PortNo, field::Format, testing::field_bits};

use super::{
    super::subfield,
    action::{bits, is_readable, is_writable},
};
use crate::{
    action::{Action, LearnAction, LearnSource, LearnSpec, LearnTarget, Subfield},
    id::{Cookie, TableId},
};

/// Generates a `learn` action.
pub(super) fn learn() -> impl Strategy<Value = Action> {
    let table =
        (0..=TableId::MAX.number()).prop_map(|table| TableId::new(table).unwrap_or_default());
    let timeouts = any::<[u16; 4]>();
    let rule = (any::<u16>(), any::<u64>(), table, any::<u32>());
    let flags = any::<(bool, bool)>();
    let result = option::of(bits(is_writable, 1));
    (timeouts, rule, flags, result, vec(spec(), 0..6)).prop_map(
        |(timeouts, (priority, cookie, table, limit), flags, result, specs)| {
            let [idle_timeout, hard_timeout, fin_idle_timeout, fin_hard_timeout] = timeouts;
            Action::Learn(Box::new(LearnAction {
                idle_timeout,
                hard_timeout,
                priority: Priority::new(priority),
                cookie: Cookie::new(cookie),
                table,
                fin_idle_timeout,
                fin_hard_timeout,
                send_flow_removed: flags.0,
                delete_learned: flags.1,
                limit,
                result,
                specs: specs.into(),
            }))
        },
    )
}

/// Generates a spec of a `learn` action.
fn spec() -> impl Strategy<Value = LearnSpec> {
    let same = readable_subfield().prop_map(|bits| match_spec(bits, LearnSource::Field(bits)));
    let other = (readable_subfield(), readable_subfield()).prop_filter_map(
        "source and target have the same width",
        |(target, source)| {
            let width = target.width.min(source.width);
            let target = Subfield::new(target.field, target.offset, width)?;
            let source = Subfield::new(source.field, source.offset, width)?;
            Some(match_spec(target, LearnSource::Field(source)))
        },
    );
    let matched = readable_subfield()
        .prop_flat_map(matched_bits)
        .prop_map(|(target, value)| match_spec(target, LearnSource::Value(value)));
    let load = (readable_subfield(), bits(|field| is_writable(field) && is_short(field), 128))
        .prop_filter_map("source and target have the same width", |(source, target)| {
            let width = target.width.min(source.width);
            let source = Subfield::new(source.field, source.offset, width)?;
            let target = Subfield::new(target.field, target.offset, width)?;
            let (source, target) = (LearnSource::Field(source), LearnTarget::Load(target));
            Some(LearnSpec { source, target, width })
        });
    let value = (bits(|field| is_writable(field) && is_short(field), 128), any::<u128>()).prop_map(
        |(target, value)| {
            let source = LearnSource::Value(value & (target.bits() >> target.offset));
            LearnSpec { source, width: target.width, target: LearnTarget::Load(target) }
        },
    );
    let output = readable_subfield().prop_map(|bits| {
        let (source, width) = (LearnSource::Field(bits), bits.width);
        LearnSpec { source, width, target: LearnTarget::Output }
    });
    prop_oneof![same, other, matched, load, value, output]
}

/// Returns a spec that matches the bits of `target` with `source`.
const fn match_spec(target: Subfield, source: LearnSource) -> LearnSpec {
    LearnSpec { source, width: target.width, target: LearnTarget::Match(target) }
}

/// Bits of a field, and a value that a learned rule can match in these bits.
fn matched_bits(target: Subfield) -> impl Strategy<Value = (Subfield, u128)> {
    let field = target.field;
    let is_whole = subfield::whole_name(target).is_some();
    let is_port = field.info().format == Format::Port;
    let number = any::<u128>().prop_map(move |value| value & (target.bits() >> target.offset));
    let of_field = field_bits(field)
        .prop_filter("a whole value", move |(_, mask)| *mask == field.value_max())
        .prop_map(move |(value, _)| value & target.bits());
    let port = any::<u32>()
        .prop_filter("a port number with a form of 16 bits", |port| {
            PortNo::widened(*port).number() == *port
        })
        .prop_map(move |port| u128::from(port) & target.bits());
    let value = match (is_whole, is_port) {
        (true, true) => port.boxed(),
        (true, false) => of_field.boxed(),
        (false, _) => number.boxed(),
    };
    (Just(target), value)
}

/// Generates a part of a field that a `learn` action can read.
fn readable_subfield() -> impl Strategy<Value = Subfield> {
    bits(is_short, 128)
}

/// Returns whether a field is readable and short enough for a `learn` action.
fn is_short(field: &FieldId) -> bool {
    is_readable(field) && subfield::require_short(Subfield::whole(*field)).is_ok()
}
