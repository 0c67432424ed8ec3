//! Sets of IPFIX collectors from the table `Flow_Sample_Collector_Set`.

use std::collections::BTreeMap;

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::config::CollectorSetOptions;

use super::rows::{RefusedRows, WORDS, checked, number};

/// The sets of IPFIX collectors of a bridge, by set number.
#[derive(Debug, Default)]
pub(in crate::ovsdb) struct DesiredCollectorSets(BTreeMap<u32, DesiredCollectorSet>);

/// A set of IPFIX collectors.
#[derive(Debug)]
struct DesiredCollectorSet {
    /// The row in `Flow_Sample_Collector_Set`.
    row: RowUuid,
    /// Options of the set; `None` with a wrong value: the options in force stay.
    options: Option<CollectorSetOptions>,
}

/// Reads the sets of collectors of a bridge; records rows that cannot be used.
///
/// A row without a reference in `ipfix` describes no set.
pub(in crate::ovsdb) fn collector_sets(
    snapshot: &DatabaseSnapshot,
    bridge: RowView<'_>,
    refused: &mut RefusedRows,
) -> DesiredCollectorSets {
    let mut sets = DesiredCollectorSets::default();
    for set in snapshot.rows("Flow_Sample_Collector_Set") {
        let is_own = set.uuids("bridge").any(|own| own == bridge.uuid());
        let ipfix = set.uuids("ipfix").next().and_then(|uuid| snapshot.row("IPFIX", uuid));
        let Some(ipfix) = ipfix.filter(|_| is_own) else { continue };
        let (row, name) = (set.uuid(), bridge.string("name").unwrap_or_default());
        let id = match number(set, "id", 0, WORDS) {
            Ok(id) => id,
            Err(reason) => {
                refused.insert(
                    row,
                    format!("bridge {name} gets no collector set from this row: {reason}"),
                );
                continue;
            }
        };
        let options = match options(ipfix, id) {
            Ok(options) => Some(options),
            Err(reason) => {
                let text = format!("bridge {name} keeps collector set {id} as it is: {reason}");
                refused.insert(row, text);
                None
            }
        };
        sets.0.insert(id, DesiredCollectorSet { row, options });
    }
    sets
}

/// Reads the `IPFIX` row of a set, or returns the reason why it cannot be used.
fn options(row: RowView<'_>, id: u32) -> Result<CollectorSetOptions, String> {
    let options = CollectorSetOptions {
        id,
        targets: row.strings("targets").map(str::to_owned).collect(),
        cache_active_timeout: number(row, "cache_active_timeout", 0, WORDS)?,
        cache_max_flows: number(row, "cache_max_flows", 0, WORDS)?,
        virtual_obs_id: row.entry("other_config", "virtual_obs_id").unwrap_or_default().to_owned(),
    };
    checked(options, CollectorSetOptions::check)
}

impl DesiredCollectorSets {
    /// Returns the sets; a set with a wrong row keeps its options in force.
    pub(in crate::ovsdb) fn options(
        &self,
        in_force: &[CollectorSetOptions],
    ) -> Vec<CollectorSetOptions> {
        let kept = |id: u32| in_force.iter().find(|own| own.id == id).cloned();
        let sets = self.0.iter();
        sets.filter_map(|(id, own)| own.options.clone().or_else(|| kept(*id))).collect()
    }

    /// Returns the rows of the sets.
    pub(in crate::ovsdb) fn rows(&self) -> impl Iterator<Item = RowUuid> {
        self.0.values().map(|own| own.row)
    }
}
