//! The keys `pmd-auto-lb` of `Open_vSwitch`: moves of receive queues by load.

use shunt_ovsdb::RowView;
use shunt_switch::{Switch, config::ThreadOptions, with_causes};
use tracing::{info, warn};

/// The values of the keys.
///
/// `None` is for an absent key, and for a value that has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AutoLbRow {
    is_on: Option<bool>,
    /// Percent.
    load_threshold: Option<u8>,
    /// Percent.
    improvement_threshold: Option<u8>,
    /// Minutes.
    interval: Option<u16>,
}

/// The settings in force, and those that are used without a key.
pub(super) struct AutoLbKeys {
    /// The settings of the configuration file.
    configured: ThreadOptions,
    /// The values that were applied last.
    applied: AutoLbRow,
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

impl AutoLbKeys {
    /// Stores the settings of the configuration file.
    pub(super) fn new(switch: &Switch) -> Self {
        Self { configured: switch.config().threads, applied: AutoLbRow::default() }
    }

    /// Applies the keys; without a key, the setting of the configuration file.
    pub(super) async fn apply(&mut self, switch: &Switch, row: AutoLbRow) {
        if row == self.applied {
            return;
        }
        let own = &self.configured;
        let is_on = row.is_on.unwrap_or(own.auto_lb).to_string();
        let load = row.load_threshold.unwrap_or(own.auto_lb_load_threshold).to_string();
        let improvement = row.improvement_threshold.unwrap_or(own.auto_lb_improvement_threshold);
        let interval = row.interval.unwrap_or(own.auto_lb_interval_min).to_string();
        let settings = [
            ("threads.auto_lb", is_on.as_str()),
            ("threads.auto_lb_load_threshold", &load),
            ("threads.auto_lb_improvement_threshold", &improvement.to_string()),
            ("threads.auto_lb_interval_min", &interval),
        ];
        match switch.set(&settings).await {
            Ok(()) => {
                info!(is_on, load, improvement, interval, "ovsdb: pmd-auto-lb set");
                self.applied = row;
            }
            Err(error) => {
                warn!(error = with_causes(&error), "ovsdb: pmd-auto-lb cannot be set");
            }
        }
    }
}
