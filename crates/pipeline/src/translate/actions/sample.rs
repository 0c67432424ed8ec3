//! `sample`: collectors get random samples of the packets of a rule.

use std::sync::Arc;

use crate::{
    action::SampleAction,
    translate::{bridge_view::BridgeView, working_packet::WorkingPacket},
    traversals::{
        datapath_action::{DatapathAction, SampleRequest},
        traversal::TraversalError,
    },
};

/// `sample`: the datapath chooses packets, and copies their current headers.
///
/// The traversal does not depend on the collectors of the bridge. So a change of collectors makes
/// no cache entry stale.
pub(in crate::translate) fn sample(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    action: &SampleAction,
) -> Result<(), TraversalError> {
    let request = SampleRequest { bridge: bridge.id(), action: action.clone() };
    packet.emit(DatapathAction::Sample(Arc::new(request)))
}
