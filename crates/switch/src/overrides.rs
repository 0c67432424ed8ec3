//! Settings that a program overrides, such as an OVSDB database.
//!
//! The configured value of a setting is the value that an operator gave it last, also if that value
//! is already in force. An override puts another value in force. When a program ends its override,
//! it puts the configured value in force again.

use crate::{config::Config, error::SwitchError, switch::Switch};

impl Switch {
    /// Returns the settings as operators have configured them, without the bridges.
    ///
    /// [`Self::config`] returns the settings in force.
    #[must_use]
    pub fn configured(&self) -> Config {
        self.control.configured.lock().clone()
    }

    /// Puts several settings in force, in one step, and keeps their configured values.
    ///
    /// Until the next call, [`Self::set`] and [`Self::reload`] replace both values. A saved state
    /// has the configured values.
    ///
    /// # Errors
    ///
    /// If a setting does not exist, or a value is out of range; then no setting has changed.
    pub async fn override_settings(&self, settings: &[(&str, &str)]) -> Result<(), SwitchError> {
        self.control.structure().await.override_settings(settings).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the configured value and the value in force.
    fn values(switch: &Switch) -> [u8; 2] {
        [switch.configured(), switch.config()].map(|config| config.packets.vlan_limit)
    }

    async fn override_limit(switch: &Switch, value: &str) {
        switch.override_settings(&[("packets.vlan_limit", value)]).await.unwrap();
    }

    fn limit(vlan_limit: u8) -> Config {
        let mut config = Config::default();
        config.packets.vlan_limit = vlan_limit;
        config
    }

    #[tokio::test]
    async fn an_override_keeps_the_configured_value() {
        let switch = Switch::start(&limit(1), None, 1).await.unwrap();
        override_limit(&switch, "2").await;
        assert_eq!(values(&switch), [1, 2]);
        assert_eq!(switch.running_config().packets.vlan_limit, 1, "it is saved");
        let refused = switch.override_settings(&[("packets.vlan_limit", "9")]).await;
        assert!(refused.is_err());
        assert_eq!(values(&switch), [1, 2]);
    }

    #[tokio::test]
    async fn a_reload_to_the_value_in_force_is_configured() {
        let switch = Switch::start(&limit(1), None, 1).await.unwrap();
        override_limit(&switch, "2").await;
        let report = switch.reload(&limit(1), &limit(2)).await;
        assert_eq!(report.applied, ["packets.vlan_limit=2"]);
        assert_eq!(values(&switch), [2, 2]);
        override_limit(&switch, "1").await;
        switch.set(&[("packets.vlan_limit", "1")]).await.unwrap();
        assert_eq!(values(&switch), [1, 1]);
    }

    #[tokio::test]
    async fn a_refused_value_is_not_configured() {
        let switch = Switch::start(&limit(1), None, 1).await.unwrap();
        assert!(switch.set(&[("packets.vlan_limit", "9")]).await.is_err());
        let offload =
            [("packets.vlan_limit", "2"), ("caches.gigaflow.offload.bridge", "no-such-bridge")];
        assert!(switch.set(&offload).await.is_err());
        assert_eq!(values(&switch), [1, 1]);
    }
}
