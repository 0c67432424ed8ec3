//! sFlow as the row of a bridge describes it.

use std::collections::BTreeMap;

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::{
    Switch, SwitchError,
    config::{ConfigError, SflowOptions},
};

/// Reads the sFlow options of a bridge, and their row.
///
/// Without a row sFlow is off. It is also off with a row that cannot be used: `refused` has the reason.
pub(super) fn sflow(
    snapshot: &DatabaseSnapshot,
    bridge: RowView<'_>,
    refused: &mut BTreeMap<RowUuid, String>,
) -> (SflowOptions, Option<RowUuid>) {
    let row = bridge.uuids("sflow").next().and_then(|uuid| snapshot.row("sFlow", uuid));
    let Some(row) = row else { return (SflowOptions::default(), None) };
    match options(row) {
        Ok(options) => (options, Some(row.uuid())),
        Err(reason) => {
            let bridge = bridge.string("name").unwrap_or_default();
            refused.insert(row.uuid(), format!("bridge {bridge} sends no samples: {reason}"));
            (SflowOptions::default(), None)
        }
    }
}

/// Reads a row, or returns the reason why it cannot be used.
fn options(row: RowView<'_>) -> Result<SflowOptions, String> {
    let defaults = SflowOptions::default();
    let number = |column: &str, default: u32| match row.integer(column) {
        None => Ok(default),
        Some(value) => value
            .try_into()
            .map_err(|_| format!("{column} = {value}: it must be from 0 to {}", u32::MAX)),
    };
    let options = SflowOptions {
        targets: row.strings("targets").map(str::to_owned).collect(),
        agent: row.string("agent").unwrap_or_default().to_owned(),
        sampling: number("sampling", defaults.sampling)?,
        polling: number("polling", defaults.polling)?,
        header: number("header", defaults.header)?,
    };
    options.check().map(|()| options).map_err(|error: ConfigError| error.to_string())
}

/// Sets the sFlow options of a bridge.
pub(super) async fn set_sflow(
    switch: &Switch,
    bridge: &str,
    options: &SflowOptions,
) -> Result<(), SwitchError> {
    let SflowOptions { targets, agent, sampling, polling, header } = options;
    let (targets, sampling) = (targets.join(","), sampling.to_string());
    let (polling, header) = (polling.to_string(), header.to_string());
    let settings = [
        ("sflow.targets", targets.as_str()),
        ("sflow.agent", agent.as_str()),
        ("sflow.sampling", sampling.as_str()),
        ("sflow.polling", polling.as_str()),
        ("sflow.header", header.as_str()),
    ];
    switch.declarative().set_bridge(bridge, &settings).await
}
