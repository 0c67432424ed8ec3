//! The bridge and the OpenFlow number of every port of the switch.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathAction, DatapathPort};

/// The bridge and the OpenFlow number of each port, for any packet thread.
#[derive(Debug, Default)]
pub(super) struct PortBindings(BTreeMap<DatapathPort, (BridgeId, PortNo)>);

impl PortBindings {
    /// Binds a datapath port to its bridge and its number there.
    pub(super) fn set(&mut self, port: DatapathPort, bridge: BridgeId, number: PortNo) {
        self.0.insert(port, (bridge, number));
    }

    /// Removes the bridge and number of a datapath port.
    pub(super) fn remove(&mut self, port: DatapathPort) {
        self.0.remove(&port);
    }

    /// Returns the bridge and OpenFlow number of the only output port of action lists.
    ///
    /// `None` for action lists with no output, or with several.
    pub(super) fn egress_of<'a>(
        &self,
        lists: impl Iterator<Item = &'a Arc<[DatapathAction]>>,
    ) -> Option<(BridgeId, PortNo)> {
        let mut egress: Option<DatapathPort> = None;
        for action in lists.flat_map(|list| list.iter()) {
            match action {
                DatapathAction::Output { port, .. } if egress.is_none() => egress = Some(*port),
                DatapathAction::Output { .. }
                | DatapathAction::OutputIngress { .. }
                | DatapathAction::Copy(_)
                | DatapathAction::Recirculate(_)
                | DatapathAction::CheckLength { .. } => return None,
                _ => {}
            }
        }
        self.0.get(&egress?).copied()
    }
}
