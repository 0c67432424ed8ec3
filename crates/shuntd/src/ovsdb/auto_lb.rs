//! The keys `pmd-auto-lb` of `Open_vSwitch`: moves of receive queues by load.

use shunt_ovsdb::RowView;
use shunt_switch::{Switch, with_causes};
use tracing::{info, warn};

/// The values of the keys `pmd-auto-lb` in a row.
///
/// `None` is for an absent key, and for a value that has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AutoLbRow {
    /// The value of `pmd-auto-lb`; `None` if it is absent.
    is_on: Option<bool>,
    /// The load from which queues move, in percent.
    load_threshold: Option<u8>,
    /// The least improvement of the variance, in percent.
    improvement_threshold: Option<u8>,
    /// The time between two rebalancings, in minutes.
    interval: Option<u16>,
}

impl AutoLbRow {
    /// Reads the keys of a row of `Open_vSwitch`.
    pub(super) fn of(root: RowView<'_>) -> Self {
        let entry = |key| root.entry("other_config", key);
        let percent = |key| entry(key)?.parse().ok().filter(|percent: &u8| *percent <= 100);
        let minutes = entry("pmd-auto-lb-rebal-interval").and_then(|text| text.parse().ok());
        Self {
            is_on: entry("pmd-auto-lb").map(|text| text == "true"),
            load_threshold: percent("pmd-auto-lb-load-threshold"),
            improvement_threshold: percent("pmd-auto-lb-improvement-threshold"),
            // As in Open vSwitch, 0 is the default.
            interval: minutes.map(|own: u16| own.max(1)).filter(|own| *own <= 20_000),
        }
    }
}

/// The word for the keys in log lines.
const KEYS: &str = "pmd-auto-lb";

/// Puts the keys in force; without a key, the configured setting.
pub(super) async fn apply_auto_lb(switch: &Switch, row: AutoLbRow) {
    let (improvement, interval) = (row.improvement_threshold, row.interval);
    apply_key(switch, KEYS, "threads.auto_lb", row.is_on).await;
    apply_key(switch, KEYS, "threads.auto_lb_load_threshold", row.load_threshold).await;
    apply_key(switch, KEYS, "threads.auto_lb_improvement_threshold", improvement).await;
    apply_key(switch, KEYS, "threads.auto_lb_interval_min", interval).await;
}

/// Overrides a setting with the value of a key, or ends the override without one.
pub(super) async fn apply_key<T: ToString>(
    switch: &Switch,
    key: &str,
    setting: &str,
    value: Option<T>,
) {
    let text = value.map(|value| value.to_string());
    match switch.override_setting(setting, text.as_deref()).await {
        Ok(false) => {}
        Ok(true) => match text {
            Some(text) => info!("ovsdb: {key}: {setting} set to {text}"),
            None => info!("ovsdb: {key}: {setting} has its configured value again"),
        },
        Err(error) => {
            warn!(error = with_causes(&error), "ovsdb: {key}: {setting} cannot be set");
        }
    }
}
