//! The entry points of translation, and the traversal that each returns.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, SparseKey, layout::word};

use super::{
    bridge_view::{BridgeView, TablesAtVersion},
    record::recorder::Recorder,
    translated_packet::TranslatedPacket,
    translation::Translation,
};
use crate::{
    action::Action,
    continuations::continuation::Continuation,
    id::BridgeId,
    traversals::{
        explanation::Explanation,
        traversal::{Traversal, TraversalError},
    },
};

/// Translates a packet that arrives on its ingress port.
pub(crate) fn packet(tables: TablesAtVersion<'_>, key: &FlowKey) -> Traversal {
    translate(tables, key, |translation| translation.begin(None))
}

/// Translates the actions of a packet-out.
pub(crate) fn packet_out(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    actions: &[Action],
) -> Traversal {
    translate(tables, key, |translation| translation.run_packet_out(actions))
}

/// Continues with a packet that was parsed again.
pub(crate) fn resume(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    continuation: &Arc<Continuation>,
) -> Traversal {
    let traversal = translate(tables, key, |translation| translation.begin(Some(continuation)));
    Traversal { continuation: Some(Arc::clone(continuation)), ..traversal }
}

/// Translates a packet, and explains the translation.
pub(crate) fn explained(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
) -> Explanation {
    let (mut notes, mut last) = (Vec::new(), key.clone());
    let traversal = translate(tables, key, |translation| {
        translation.recorder().keep_notes();
        let result = translation.begin(start);
        notes = translation.recorder().take_notes();
        last.clone_from(translation.key());
        result
    });
    Explanation { traversal: Traversal { continuation: start.cloned(), ..traversal }, notes, last }
}

/// Runs a translation, and returns its traversal.
pub(super) fn translate<'a>(
    tables: TablesAtVersion<'a>,
    key: &FlowKey,
    run: impl FnOnce(&mut Translation<'a>) -> Result<(), TraversalError>,
) -> Traversal {
    let ingress = SparseKey::from(key);
    let mut recorder = Recorder::new(ingress.clone());
    recorder.consult_word(usize::from(word::BRIDGE), u64::MAX);
    recorder.consult(FieldId::RecircId, u128::MAX);
    let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
    let bridge = bridge.and_then(|id| BridgeView::find(tables, id, &mut recorder));
    let (result, recorder, group_hits, output_hits) = match bridge {
        Some(bridge) => {
            let (result, translated) = Translation::run_in(tables, key, bridge, recorder, run);
            let TranslatedPacket { actions, learn_requests, group_hits, output_hits, recorder } =
                translated;
            let result = result.map(|()| (actions, learn_requests.finish()));
            (result, recorder, group_hits, output_hits)
        }
        None => (Err(TraversalError::NoSuchPort), recorder, Vec::new(), Vec::new()),
    };
    let drop_cause = recorder.drop_cause();
    let (mask, visits, reads) = recorder.finish();
    let error = result.as_ref().err().copied();
    // A packet that is dropped for an error has no actions and learn requests.
    let (actions, (learnings, refreshes)) = result.unwrap_or_default();
    Traversal {
        version: tables.version,
        key: ingress,
        continuation: None,
        next: None,
        mask,
        visits,
        reads,
        group_hits: group_hits.into(),
        output_hits: output_hits.into(),
        learnings,
        refreshes: refreshes.into(),
        actions: actions.into(),
        error,
        drop_cause,
    }
}
