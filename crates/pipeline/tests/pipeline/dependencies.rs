//! Helpers for tests of the dependencies of a traversal: consulted bits and reads.

use shunt_flow::{FieldId, FlowKey, PortNo};
use shunt_pipeline::{Action, Object, Traversal};

use crate::switch::Switch;

pub(crate) const NORMAL: Action = Action::Output { port: PortNo::NORMAL, max_len: 0 };

/// Translates a packet with a rule that matches everything and has these actions.
pub(crate) fn run(actions: &[Action], packet: &str) -> Traversal {
    Switch::of_actions(actions).translate(packet)
}

pub(crate) fn run_key(actions: &[Action], key: &FlowKey) -> Traversal {
    let switch = Switch::of_actions(actions);
    switch.pipeline.translate(key, switch.pipeline.version())
}

/// Returns the bits of a field in the mask of a traversal.
pub(crate) fn consulted_bits(traversal: &Traversal, field: FieldId) -> u128 {
    traversal.mask.field(field)
}

#[track_caller]
pub(crate) fn assert_whole(traversal: &Traversal, fields: &[FieldId]) {
    for field in fields {
        assert_eq!(consulted_bits(traversal, *field), field.value_max(), "{field:?}");
    }
}

#[track_caller]
pub(crate) fn assert_reads(traversal: &Traversal, object: Object) {
    assert!(traversal.reads.contains(&object), "{object:?} in {:?}", traversal.reads);
}
