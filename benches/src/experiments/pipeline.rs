//! Cost of misses and rule changes: in this process, and compared with Open vSwitch.

use super::{flow_mods, set_up, translate};
use crate::{
    experiment::{Row, Run},
    switch::Contender,
};

/// Values of `--only`.
pub(crate) fn parts() -> Vec<&'static str> {
    vec!["translate", "set-up", "flow-mods"]
}

/// Runs the parts of `--only`. The default is all parts.
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
