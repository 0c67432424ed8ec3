//! The log of static MAC addresses that end with a change of their ports.
//!
//! An operator added these addresses, so the log counts those that a change removes.

use shunt_pipeline::{BridgeId, Change, NoSuchBridge, Pipeline};
use tracing::info;

/// Makes a change of a bridge, and logs how many static MAC addresses it removes.
///
/// Ports lose them if they are removed, get other VLANs, join or leave a bond, or become the output
/// of a mirror.
pub(crate) fn log_removed_statics(
    pipeline: &Pipeline,
    id: BridgeId,
    change: impl FnOnce(&Pipeline) -> Result<Change, NoSuchBridge>,
) -> Result<Change, NoSuchBridge> {
    let before = pipeline.static_macs_count(id);
    let change = change(pipeline)?;
    let removed = before.saturating_sub(pipeline.static_macs_count(id));
    if removed > 0 {
        let name = pipeline.settings(id).unwrap_or_default().name;
        info!(removed, "bridge {name}: changed ports or mirrors end static MAC addresses");
    }
    Ok(change)
}
