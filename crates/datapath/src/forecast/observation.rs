//! New flows, for the predictors.

use std::sync::Arc;

use shunt_flow::{FlowKey, PortNo, SparseKey};
use shunt_foresight::{ForecastSource, NewFlow};
use shunt_pipeline::{BridgeId, DatapathAction};

/// A new flow that a packet thread has observed.
#[derive(Clone, Debug)]
pub(crate) struct FlowObservation {
    /// The key of the packet as it arrived.
    pub(crate) key: SparseKey,
    /// The lists of actions that were executed on the packet, in order.
    pub(crate) actions: Vec<Arc<[DatapathAction]>>,
    /// The bridge and the number of the port, if the packet left on one port alone.
    pub(crate) egress: Option<(BridgeId, PortNo)>,
    /// The origin of the forecast that the packet hit; `None` if it missed.
    pub(crate) forecast: Option<ForecastSource>,
}

impl FlowObservation {
    /// Returns the flow, with the headers of the packet as it left.
    pub(crate) fn new_flow(&self) -> NewFlow {
        let key = FlowKey::from(&self.key);
        let egress = self.egress.map(|(bridge, number)| {
            let mut egress = key.clone();
            let actions = self.actions.iter().flat_map(|list| list.iter());
            let before = actions.take_while(|own| !matches!(own, DatapathAction::Output { .. }));
            before.for_each(|action| action.change_key(&mut egress));
            egress.set_bridge(bridge.number().into());
            egress.set_in_port(number);
            egress
        });
        NewFlow { key, egress, forecast: self.forecast }
    }
}
