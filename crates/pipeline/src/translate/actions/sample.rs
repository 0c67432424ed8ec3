//! `sample`: collectors get some of the packets that a rule matches.

use std::sync::Arc;

use crate::{
    action::SampleAction,
    translate::{bridge_view::BridgeView, working_packet::WorkingPacket},
    traversals::{
        datapath_action::{DatapathAction, SampleRequest},
        traversal::TraversalError,
    },
};

/// `sample`: the datapath chooses packets, and copies their present headers.
///
/// The traversal does not depend on the collectors of the bridge. So they change at run time, and no
/// cache entry becomes stale.
pub(in crate::translate) fn sample(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    action: &SampleAction,
) -> Result<(), TraversalError> {
    let request = SampleRequest { bridge: bridge.id(), action: action.clone() };
    packet.emit(DatapathAction::Sample(Arc::new(request)))
}
