//! The keys `pmd-auto-lb` of `Open_vSwitch`: moves of receive queues by load.

use shunt_ovsdb::RowView;
use shunt_switch::{Switch, with_causes};
use tracing::{info, warn};

use super::file_setting::FileSetting;

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

/// The settings of the configuration file, which the keys replace.
pub(super) struct AutoLbKeys {
    is_on: FileSetting<bool>,
    load_threshold: FileSetting<u8>,
    improvement_threshold: FileSetting<u8>,
    interval: FileSetting<u16>,
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
        let own = switch.config().threads;
        Self {
            is_on: FileSetting::new(own.auto_lb),
            load_threshold: FileSetting::new(own.auto_lb_load_threshold),
            improvement_threshold: FileSetting::new(own.auto_lb_improvement_threshold),
            interval: FileSetting::new(own.auto_lb_interval_min),
        }
    }

    /// Applies the keys; without a key, the setting of the configuration file.
    pub(super) async fn apply(&mut self, switch: &Switch, row: AutoLbRow) {
        let own = switch.config().threads;
        apply_one(switch, "threads.auto_lb", &mut self.is_on, own.auto_lb, row.is_on).await;
        let (present, key) = (own.auto_lb_load_threshold, row.load_threshold);
        let name = "threads.auto_lb_load_threshold";
        apply_one(switch, name, &mut self.load_threshold, present, key).await;
        let (present, key) = (own.auto_lb_improvement_threshold, row.improvement_threshold);
        let name = "threads.auto_lb_improvement_threshold";
        apply_one(switch, name, &mut self.improvement_threshold, present, key).await;
        let (present, key) = (own.auto_lb_interval_min, row.interval);
        let name = "threads.auto_lb_interval_min";
        apply_one(switch, name, &mut self.interval, present, key).await;
    }
}

/// Sets a setting if the value `present` in force is not the wanted one.
async fn apply_one<T: Copy + PartialEq + ToString>(
    switch: &Switch,
    name: &str,
    setting: &mut FileSetting<T>,
    present: T,
    key: Option<T>,
) {
    let Some(value) = setting.missing(present, key) else { return };
    let text = value.to_string();
    match switch.set(&[(name, text.as_str())]).await {
        Ok(()) => {
            info!("ovsdb: pmd-auto-lb: {name} set to {text}");
            setting.note(value);
        }
        Err(error) => {
            warn!(error = with_causes(&error), "ovsdb: pmd-auto-lb: {name} cannot be set");
        }
    }
}
