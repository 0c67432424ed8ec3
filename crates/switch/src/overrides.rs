//! Settings that a program overrides, such as an OVSDB database.
//!
//! The configured value of a setting is the value that an operator gave it last, also if that value
//! is already in force. An override puts another value in force, and keeps it in force when an
//! operator changes the configured value. When a program ends its override, the configured value
//! is in force again.

use crate::{config::Config, error::SwitchError, switch::Switch};

impl Switch {
    /// Returns the settings as operators have configured them, without the bridges.
    ///
    /// [`Self::config`] returns the settings in force.
    #[must_use]
    pub fn configured(&self) -> Config {
        self.control.configured.lock().clone()
    }

    /// Overrides a setting, or ends its override if `value` is `None`.
    ///
    /// During an override, [`Self::set`] and [`Self::reload`] only change the configured value. A
    /// saved state has the configured value. The end puts the configured value in force.
    ///
    /// Returns whether the value in force has changed.
    ///
    /// # Errors
    ///
    /// If the setting does not exist, or the value is out of range; then nothing has changed.
    pub async fn override_setting(
        &self,
        key: &str,
        value: Option<&str>,
    ) -> Result<bool, SwitchError> {
        self.control.structure().await.override_setting(key, value).await
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
        switch.override_setting("packets.vlan_limit", Some(value)).await.unwrap();
    }

    async fn end_override(switch: &Switch) -> bool {
        switch.override_setting("packets.vlan_limit", None).await.unwrap()
    }

    /// Returns a configuration with a VLAN limit.
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
        assert_eq!(switch.running_config().packets.vlan_limit, 1, "the configured value is saved");
        let refused = switch.override_setting("packets.vlan_limit", Some("9")).await;
        assert!(refused.is_err());
        assert_eq!(values(&switch), [1, 2]);
    }

    #[tokio::test]
    async fn set_and_reload_leave_an_override_in_force() {
        let switch = Switch::start(&limit(1), None, 1).await.unwrap();
        // The override has the value that is in force before it.
        override_limit(&switch, "1").await;
        switch.set(&[("packets.vlan_limit", "2")]).await.unwrap();
        assert_eq!(values(&switch), [2, 1]);
        assert!(end_override(&switch).await);
        assert_eq!(values(&switch), [2, 2]);
        override_limit(&switch, "2").await;
        let report = switch.reload(&limit(2), &limit(1)).await;
        assert_eq!(report.applied, ["packets.vlan_limit=1"]);
        assert_eq!(values(&switch), [1, 2]);
        assert!(switch.set(&[("packets.vlan_limit", "9")]).await.is_err());
        assert_eq!(values(&switch), [1, 2]);
        assert!(end_override(&switch).await);
        assert!(!end_override(&switch).await, "the override has ended before");
        switch.set(&[("packets.vlan_limit", "2")]).await.unwrap();
        assert_eq!(values(&switch), [2, 2], "no override is left");
    }

    #[tokio::test]
    async fn reload_to_value_in_force_is_configured() {
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
