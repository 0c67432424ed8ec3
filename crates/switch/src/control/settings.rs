//! Changes of the settings of the switch and of bridges.

use std::time::Duration;

use shunt_pipeline::{BridgeId, BridgeSettings, Change, NoSuchBridge, Pipeline, TableId};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::structure::{OpenPolicy, Structure};
use crate::{
    config::{
        self, Config, OffloadOptions,
        changed_settings::ChangedSettings,
        setting::{change_to, changed_settings},
    },
    error::SwitchError,
    openflow::events::{ControlEvent, SocketsToClose},
    ports::static_macs::log_removed_statics,
};

/// The origin of new settings, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingOrigin {
    /// An operator set the values, by a command or a reload.
    Operator,
    /// The values are from a program that declares the state of the switch,
    /// such as an OVSDB database.
    Database,
}

impl SettingOrigin {
    /// Returns the verb of log lines about a setting.
    const fn verb(self) -> &'static str {
        match self {
            Self::Operator => "set",
            Self::Database => "set by the database:",
        }
    }
}

impl Structure {
    /// Returns the settings as operators have configured them.
    pub(crate) fn configured_settings(&self) -> Config {
        self.configured.lock().clone()
    }

    /// Changes several settings in one step, or no setting if one value is refused.
    ///
    /// An overridden setting keeps the value in force: only its configured value changes.
    pub(crate) async fn change_settings(
        &self,
        settings: &ChangedSettings<Config>,
    ) -> Result<(), SwitchError> {
        // The configured value changes first. So a program that overrides a setting never takes the
        // former value for the configured one.
        let before = self.configured.lock().clone();
        let mut after = before.clone();
        settings.write(&mut after);
        after.check()?;
        *self.configured.lock() = after;
        let free = settings.without(&self.overridden.lock());
        let changed = self.put_in_force(&free).await;
        if changed.is_err() {
            *self.configured.lock() = before;
        }
        changed
    }

    /// Overrides a setting, or ends its override if `value` is `None`.
    ///
    /// Returns whether the value in force has changed.
    pub(crate) async fn override_setting(
        &self,
        key: &str,
        value: Option<&str>,
    ) -> Result<bool, SwitchError> {
        let change = match value {
            Some(value) => changed_settings(&self.config.lock(), &[(key, value)])?,
            None => change_to(&self.configured.lock(), key)?,
        };
        let is_new = !change.is_in(&self.config.lock());
        if is_new {
            self.put_in_force(&change).await?;
        }
        let mut overridden = self.overridden.lock();
        for key in change.keys() {
            match value {
                Some(_) => overridden.insert(key),
                None => overridden.remove(key),
            };
        }
        Ok(is_new)
    }

    /// Checks changed settings, and applies them to the running switch.
    async fn put_in_force(&self, settings: &ChangedSettings<Config>) -> Result<(), SwitchError> {
        let before = self.config.lock().clone();
        let mut changed = before.clone();
        settings.write(&mut changed);
        changed.check()?;
        self.check_offload(&before.caches.gigaflow.offload, &changed.caches.gigaflow.offload)?;
        *self.config.lock() = changed.clone();
        if let Err(error) = self.apply_nic().await {
            *self.config.lock() = before;
            return Err(error);
        }
        self.plane.tune(&changed).await;
        Ok(())
    }

    /// Refuses a new NIC for a bridge that does not exist.
    ///
    /// The bridge of an existing NIC may be deleted and added again.
    fn check_offload(
        &self,
        before: &OffloadOptions,
        offload: &OffloadOptions,
    ) -> Result<(), SwitchError> {
        let is_to_come = before.kind != offload.kind && !offload.is_none();
        if is_to_come || before.bridge != offload.bridge {
            self.bridges.id(&offload.bridge)?;
        }
        Ok(())
    }

    /// Changes several settings of a bridge in one step.
    ///
    /// Returns when no packet uses the old values.
    pub(crate) async fn change_bridge(
        &self,
        name: &str,
        settings: &ChangedSettings<config::BridgeOptions>,
        policy: OpenPolicy,
        origin: SettingOrigin,
    ) -> Result<(), SwitchError> {
        let (id, before) = {
            let bridges = self.bridges.lock();
            let bridge = bridges.find(name)?;
            (bridge.id, bridge.settings.clone())
        };
        let mut after = before.clone();
        settings.write(&mut after);
        after.check().map_err(|error| *error.problem)?;
        let mac = after.mac()?;
        let sets_mac =
            mac != before.mac()? || (settings.has("mac") && self.bridges.has_other_mac(name));
        if after == before && !sets_mac {
            return Ok(());
        }
        let is_other_switch = after.datapath_id()? != before.datapath_id()?;
        if sets_mac {
            self.bridges.set_local_mac(id, mac).await?;
        }
        self.bridges.lock().set_options(id, after.clone())?;
        let closes_all = is_other_switch || after.versions()? != before.versions()?;
        let changes_connections = closes_all || after.fail_mode != before.fail_mode;
        if changes_connections || after.endpoints()? != before.endpoints()? {
            let (ready, changed) = oneshot::channel();
            let closing = if closes_all { SocketsToClose::All } else { SocketsToClose::Removed };
            self.notify(ControlEvent::BridgeChanged { id, closing, policy, ready }).await;
            // The reply is missing only while the switch stops.
            if let Err(error) = changed.await.unwrap_or(Ok(())) {
                if mac != before.mac()? {
                    self.bridges.set_local_mac(id, before.mac()?).await?;
                }
                self.bridges.lock().set_options(id, before)?;
                return Err(error);
            }
        }
        let tables = bridge_settings(&after);
        if tables != bridge_settings(&before) {
            let publisher = self.plane.publisher();
            // The bridge still exists, because only this task changes bridges.
            let _ = publisher.change(|pipeline| set_tables(pipeline, id, tables));
            self.plane.adopted_newest().await;
        }
        self.exports.apply(id, &before, &after).await;
        info!("bridge {name}: {} {}", origin.verb(), settings.words());
        if is_other_switch {
            self.warn_of_shared_datapath_id(id);
        }
        Ok(())
    }

    /// Warns if another bridge has the datapath id of a bridge.
    pub(super) fn warn_of_shared_datapath_id(&self, id: BridgeId) {
        let bridges = self.bridges.lock();
        let Some(bridge) = bridges.by_id(id) else { return };
        if let Some(problem) = bridges.datapath_id_problem(bridge) {
            warn!("bridge {}: {problem}", bridge.settings.name);
        }
    }
}

/// Returns the settings of a bridge in the form that the tables use.
pub(super) fn bridge_settings(settings: &config::BridgeOptions) -> BridgeSettings {
    let defaults = BridgeSettings::default();
    let limit = settings.table_rules;
    let tables = (0..TableId::COUNT).filter_map(TableId::new).filter(|_| limit > 0);
    let tables = tables.map(|table| (table, limit));
    // The limits were checked before.
    let limits = settings.table_limits().unwrap_or_default();
    let own = limits.iter().map(|(table, own)| (*table, own.rules));
    BridgeSettings {
        name: settings.name.clone(),
        rules_max: tables.chain(own).collect(),
        overflow: settings.table_overflow,
        table_overflow: limits
            .iter()
            .filter_map(|(table, own)| Some((*table, own.overflow?)))
            .collect(),
        mac_ageing: match settings.mac_ageing_s {
            0 => defaults.mac_ageing,
            seconds => Duration::from_secs(seconds.into()),
        },
        macs_max: match settings.mac_entries {
            0 => defaults.macs_max,
            entries => entries,
        },
        flood_vlans: settings.flood_vlans.iter().copied().collect(),
        mirrors: settings.mirrors.iter().map(config::MirrorOptions::mirror).collect(),
        multicast: settings.snooping(),
        sends_misses: defaults.sends_misses,
        fails_open: defaults.fails_open,
    }
}

/// Replaces the settings of a bridge, except settings of its OpenFlow connections.
pub(super) fn set_tables(
    pipeline: &Pipeline,
    id: BridgeId,
    tables: BridgeSettings,
) -> Result<Change, NoSuchBridge> {
    let BridgeSettings { sends_misses, fails_open, .. } = pipeline.settings(id).unwrap_or_default();
    let settings = BridgeSettings { sends_misses, fails_open, ..tables };
    log_removed_statics(pipeline, id, |pipeline| pipeline.set_settings(id, settings))
}
