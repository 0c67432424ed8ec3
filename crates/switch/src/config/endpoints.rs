//! The addresses of controllers in the configuration of a bridge.

use std::collections::HashSet;

use crate::{
    config::{BridgeOptions, ConfigError},
    error::SwitchError,
    openflow::endpoint::{ControllerEndpoint, EndpointError, EndpointList},
};

impl BridgeOptions {
    /// Checks that the addresses of a list are valid, differ,
    /// and all connect or all listen.
    pub(super) fn check_addresses(
        &self,
        list: EndpointList,
        texts: &[String],
    ) -> Result<(), ConfigError> {
        let mut taken = HashSet::new();
        for (index, text) in texts.iter().enumerate() {
            let endpoint = self.endpoint(list, text).and_then(|endpoint| {
                let is_new = taken.insert(endpoint);
                is_new
                    .then_some(())
                    .ok_or_else(|| self.endpoint_error(EndpointError::Repeated(text.clone())))
            });
            endpoint.map_err(|problem| ConfigError::of_element(list.key(), index, problem))?;
        }
        Ok(())
    }

    /// Parses an address of a controller or listener of the bridge.
    fn endpoint(&self, list: EndpointList, text: &str) -> Result<ControllerEndpoint, SwitchError> {
        list.parse(text).map_err(|source| self.endpoint_error(source))
    }

    /// Returns the error of an address of the bridge.
    fn endpoint_error(&self, source: EndpointError) -> SwitchError {
        SwitchError::ControllerEndpoint { bridge: self.name.clone(), source }
    }

    /// Returns the controllers to connect to, then the addresses to listen on.
    ///
    /// # Errors
    ///
    /// If a text is not an address.
    pub fn endpoints(&self) -> Result<Vec<ControllerEndpoint>, SwitchError> {
        let of = |list, texts: &[String]| -> Vec<_> {
            texts.iter().map(|text| self.endpoint(list, text)).collect()
        };
        let mut all = of(EndpointList::Controllers, &self.controllers);
        all.extend(of(EndpointList::Listen, &self.listen));
        all.into_iter().collect()
    }
}
