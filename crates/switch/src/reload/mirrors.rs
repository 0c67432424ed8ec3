//! The steps of a reload that change mirrors.

use super::ReloadStep;
use crate::config::MirrorOptions;

/// Returns the steps that replace the mirrors of a bridge.
pub(super) fn mirror_steps(
    bridge: &str,
    old: &[MirrorOptions],
    new: &[MirrorOptions],
) -> Vec<ReloadStep> {
    let is_gone = |own: &&MirrorOptions| !new.iter().any(|other| other.name == own.name);
    let removed = old
        .iter()
        .filter(is_gone)
        .map(|own| ReloadStep::RemoveMirror { bridge: bridge.to_owned(), name: own.name.clone() });
    let set = new
        .iter()
        .filter(|own| !old.contains(own))
        .map(|own| ReloadStep::SetMirror { bridge: bridge.to_owned(), mirror: own.clone() });
    removed.chain(set).collect()
}
