//! Values that earlier versions of the switch accepted, and that a state file may have.

use tracing::warn;

use crate::{
    config::Config,
    openflow::endpoint::{ControllerEndpoint, EndpointError},
};

/// The datapath id that controllers take for none.
const NO_DATAPATH_ID: &str = "0000000000000000";

impl Config {
    /// Returns the configuration without datapath ids of 0 and controllers with port 0.
    ///
    /// A bridge without a datapath id gets the default. The function also returns a remark about
    /// each value that is left out.
    pub(crate) fn without_refused_values(&self) -> (Self, Vec<String>) {
        let (mut config, mut remarks) = (self.clone(), Vec::new());
        for bridge in &mut config.bridges {
            let name = &bridge.name;
            if bridge.datapath_id == NO_DATAPATH_ID {
                remarks.push(format!(
                    "bridge {name}: the saved datapath id 0 is left out: controllers refuse it"
                ));
                bridge.datapath_id.clear();
            }
            bridge.controllers.retain(|text| {
                let error = text.parse::<ControllerEndpoint>().err();
                let has_no_port = matches!(error, Some(EndpointError::NoPort(_)));
                if has_no_port {
                    remarks.push(format!(
                        "bridge {name}: the saved controller {text} is left out: it has port 0"
                    ));
                }
                !has_no_port
            });
        }
        remarks.iter().for_each(|remark| warn!("{remark}"));
        (config, remarks)
    }
}
