//! What misses cost, and changes of rules: in this process, and beside Open vSwitch.

use super::{flow_mods, set_up, translate};
use crate::{
    experiment::{Row, Run},
    switch::Contender,
};

/// What `--only` chooses from.
pub(crate) fn parts() -> Vec<&'static str> {
    vec!["translate", "set-up", "flow-mods"]
}

/// All of it, or one part or several.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both();
    let chosen = run.option("--only").map(str::to_owned);
    let wanted = |name: &str| {
        chosen.as_ref().is_none_or(|chosen| chosen.split(',').any(|part| part == name))
    };
    let mut steps = translate::steps(run);
    steps += (set_up::steps(run) + flow_mods::steps(run)) * contenders.len();
    run.begin(steps);
    let mut rows = Vec::new();
    if wanted("translate") {
        rows.extend(translate::rows(run));
    }
    if wanted("set-up") {
        rows.extend(set_up::rows(run, &contenders));
    }
    if wanted("flow-mods") {
        rows.extend(flow_mods::rows(run, &contenders));
    }
    rows
}
