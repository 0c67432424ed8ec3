//! Benefit of excluding unread state from tags.
//!
//! Every rule that does not drop writes one of sixteen numbers into a register. In one case, no
//! table matches on the register. In the other case, a rule of the last table matches on the
//! register. No packet matches this rule, so nothing else differs.

use shunt_gigaflow::partition::PolicyName;

use super::replay::{Replay, Resume, STAGE_ENTRIES, Testbed, config};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::PIPELINES,
};

/// Number of values that rules write.
const NUMBERS: usize = 16;

/// Cases: the extra match of the last table, which no packet meets.
const CASES: &[(&str, &str)] =
    &[("matched by no table", ""), ("matched by one table", "reg0=0xff,")];

const HITS: &str = "hit rate";
const ENTRIES: &str = "entries in use";
const TAGS: &str = "tags in use";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * CASES.len());
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for (case, read) in CASES {
            let title = format!("{pipeline} high, a register {case}");
            rows.extend(run.step(&title, |_| {
                let testbed =
                    Testbed::published_with(pipeline, scale, |rules| writing(rules, read));
                let config = config(4, STAGE_ENTRIES / scale, PolicyName::Joint);
                let mut replay = Replay::new(&testbed, config, Resume::StartOver);
                let packets = testbed.packets.len();
                let hits = 100.0 * replay.send(0..packets) as f64 / packets as f64;
                let ltm = replay.cache.ltm();
                let (entries, tags) = (ltm.entries_count() as f64, ltm.tags().len() as f64);
                let row = |metric, unit, better, value: f64| Row {
                    better,
                    ours: value.into(),
                    ..Row::new(&title, metric, unit)
                };
                [
                    row(HITS, "%", Better::More, hits),
                    row(ENTRIES, "count", Better::Less, entries),
                    row(TAGS, "count", Better::Less, tags),
                ]
            }));
        }
    }
    rows.sort_by_key(|row: &Row| [HITS, ENTRIES, TAGS].iter().position(|own| *own == row.metric));
    rows
}

/// Adds the write of the register to each rule that does not drop.
///
/// The function also adds a rule that matches `read`.
fn writing(rules: &mut Vec<String>, read: &str) {
    let writing = rules.iter_mut().filter(|rule| !rule.ends_with("actions=drop"));
    for (index, rule) in writing.enumerate() {
        let write = format!("actions=load:{}->NXM_NX_REG0[0..3],", index % NUMBERS);
        *rule = rule.replacen("actions=", &write, 1);
    }
    let table = |rule: &String| {
        let number = rule.split(',').find_map(|word| word.strip_prefix("table="))?;
        number.parse::<u8>().ok()
    };
    if let Some(last) = rules.iter().filter_map(table).max()
        && !read.is_empty()
    {
        rules.push(format!("table={last},priority=1,{read}actions=drop"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rules write the register; in one case, a rule of the last table reads it.
    #[test]
    fn all_rules_write_and_one_reads() {
        let rules =
            || vec!["table=1,ip,actions=goto_table:3".to_owned(), "table=3,actions=drop".into()];
        let (mut dead, mut live) = (rules(), rules());
        writing(&mut dead, "");
        writing(&mut live, "reg0=0xff,");
        assert_eq!(dead[0], "table=1,ip,actions=load:0->NXM_NX_REG0[0..3],goto_table:3");
        assert_eq!(live[..2], dead[..]);
        assert_eq!(live[2], "table=3,priority=1,reg0=0xff,actions=drop");
    }
}
