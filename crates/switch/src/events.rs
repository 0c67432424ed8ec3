//! What happens on the control side that controllers may want to hear of.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PacketIn, PortInfo, RemovedReason, Rule};
use tokio::sync::{mpsc, oneshot};

use crate::SwitchError;

/// Where what happens comes out.
pub(crate) struct News {
    /// What happened on the control side.
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Packets for controllers.
    pub(crate) packet_ins: mpsc::Receiver<PacketIn>,
}

/// Something that happened.
pub(crate) enum Event {
    /// A bridge is there; controllers may connect once its sockets are open.
    BridgeAdded(BridgeId, oneshot::Sender<Result<(), SwitchError>>),
    /// A bridge is going.
    BridgeRemoved(BridgeId),
    /// A port is there.
    PortAdded(BridgeId, PortNo),
    /// Something about a port changed.
    PortChanged(BridgeId, PortNo),
    /// A port is gone; this is what it was.
    PortRemoved(BridgeId, Box<PortInfo>),
    /// A version removed rules whose controllers want to hear of it.
    RulesRemoved(Version, Vec<(Arc<Rule>, RemovedReason)>),
}
