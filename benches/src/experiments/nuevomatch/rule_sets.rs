//! Rule sets and packets of the classifier experiments.
//!
//! `SHUNT_CLASSBENCH` names a folder with rule sets of ClassBench in `rules/`, such as `acl1_10k`,
//! plain or packed as `acl1_10k.zst`. Without this variable, rule sets come from
//! [`shunt_pipebench`], which generates the same kinds.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use shunt_classifier::{
    Classifier as _, Priority, Rank, TupleSpace, Version, testing::workload::SplitMix64,
};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_nuevomatch::{PriorityRule, parse_classbench, testing::port_prefixes};
use shunt_pipebench::{
    Progress, Seed, Zipf,
    classbench::{BuiltinSet, FilterRequest, generate},
};

/// Variable with the folder of rule sets.
const FOLDER: &str = "SHUNT_CLASSBENCH";

/// Sizes of generated rule sets.
const SIZES: [(&str, u32); 4] =
    [("1k", 1_000), ("10k", 10_000), ("100k", 100_000), ("500k", 500_000)];

/// Fields of a rule in the order of lanes.
const FIELDS: [FieldId; 5] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst, FieldId::IpProto];

/// The greatest value of each lane.
const LANE_MAX: [u32; 5] = [u32::MAX, u32::MAX, 0xffff, 0xffff, 0xff];

/// The exponent of the distribution of packets over flows.
const ZIPF_EXPONENT: f64 = 1.1;

/// A protocol number that no rule names.
const UNUSED_PROTOCOL: u32 = 253;

/// A rule set with its name.
pub(super) struct RuleSet {
    pub(super) name: String,
    pub(super) rules: Vec<PriorityRule<5>>,
}

/// Returns the names of all rule sets. Rule sets with few rules are first.
pub(super) fn names(is_quick: bool) -> Vec<String> {
    let mut names = files().unwrap_or_else(|| {
        let sizes = SIZES.iter();
        sizes
            .flat_map(|(size, _)| ["acl", "fw", "ipc"].map(|set| format!("{set}_{size}")))
            .collect()
    });
    names.retain(|name| !is_quick || name.ends_with("_1k"));
    names
}

fn folder() -> Option<PathBuf> {
    Some(PathBuf::from(env::var_os(FOLDER)?).join("rules"))
}

fn files() -> Option<Vec<String>> {
    let entries = fs::read_dir(folder()?).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Some(in_order(names))
}

/// Returns the names of rule sets by their size, each once, for the names of files.
fn in_order(files: impl Iterator<Item = String>) -> Vec<String> {
    let names = files.map(|file| file.trim_end_matches(".zst").to_owned());
    let mut names: Vec<String> = names.filter(|name| !name.contains('.')).collect();
    let size = |name: &String| {
        let thousands =
            name.rsplit('_').next().and_then(|size| size.strip_suffix('k')?.parse().ok());
        (thousands.unwrap_or(u32::MAX), name.clone())
    };
    names.sort_by_key(size);
    names.dedup();
    names
}

/// Reads a rule set of the folder, plain or packed by `zstd`.
///
/// # Panics
///
/// If there is no such set.
fn read(folder: &Path, name: &str) -> String {
    let plain = folder.join(name);
    let packed = folder.join(format!("{name}.zst"));
    let text = if plain.exists() || !packed.exists() {
        fs::read_to_string(plain).map_err(|error| error.to_string())
    } else {
        unpack(&packed)
    };
    text.unwrap_or_else(|error| panic!("{FOLDER}: {name}: {error}"))
}

/// Returns the text of a file that `zstd` packed.
///
/// # Errors
///
/// If `zstd` cannot be started, or finds the file damaged, or if the text is not UTF-8.
fn unpack(packed: &Path) -> Result<String, String> {
    let unpacked = Command::new("zstd").arg("-dc").arg(packed).output();
    let output = unpacked.map_err(|error| format!("zstd: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

impl RuleSet {
    /// Reads or generates a rule set.
    ///
    /// # Panics
    ///
    /// If there is no such set.
    pub(super) fn new(name: &str) -> Self {
        let text = match folder() {
            Some(folder) => read(&folder, name),
            None => generate_filters(name),
        };
        let rules = parse_classbench(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: format!("{name}: {} rules", rules.len()), rules }
    }

    /// Returns packets in ranges of random rules, with equal probability for each rule.
    pub(super) fn packets(&self, count: usize) -> Vec<[u32; 5]> {
        let mut random = SplitMix64(1);
        let mut packet = || {
            let rule = self.rules[random.below(self.rules.len())].as_box();
            std::array::from_fn(|lane| {
                let values = u64::from(rule.high[lane] - rule.low[lane]) + 1;
                let offset = u32::try_from(random.draw() % values).unwrap_or_default();
                rule.low[lane] + offset
            })
        };
        std::iter::repeat_with(&mut packet).take(count).collect()
    }

    /// Returns packets of `count` flows, of which a few have most packets (Zipf 1.1).
    ///
    /// # Panics
    ///
    /// If there are no packets or more than 2^32.
    pub(super) fn zipf_packets(&self, count: usize) -> Vec<[u32; 5]> {
        let flows = self.packets(count);
        let ranks = u32::try_from(count).unwrap_or_default();
        let zipf = Zipf::new(ranks, ZIPF_EXPONENT).unwrap_or_else(|error| panic!("{error}"));
        let mut stream = Seed::new(3).stream("flows");
        let packet = || flows[zipf.sample(&mut stream)];
        std::iter::repeat_with(packet).take(count).collect()
    }

    /// Returns packets at the ends of the ranges of random rules, or one value outside.
    pub(super) fn border_packets(&self, count: usize) -> Vec<[u32; 5]> {
        let mut random = SplitMix64(4);
        let mut packet = || {
            let rule = self.rules[random.below(self.rules.len())].as_box();
            std::array::from_fn(|lane| {
                let (low, high) = (rule.low[lane], rule.high[lane]);
                let ends = [low, low, high, high, low.wrapping_sub(1), high.wrapping_add(1)];
                random.pick(&ends) & LANE_MAX[lane]
            })
        };
        std::iter::repeat_with(&mut packet).take(count).collect()
    }

    /// Returns packets of a protocol that only wildcards match.
    pub(super) fn strangers(&self, count: usize) -> Vec<[u32; 5]> {
        let mut packets = self.packets(count);
        let mut random = SplitMix64(2);
        for packet in &mut packets {
            let word = random.draw();
            packet[0] = u32::try_from(word >> 32).unwrap_or_default();
            packet[1] = u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
            packet[4] = UNUSED_PROTOCOL;
        }
        packets
    }

    /// Returns tuple space search with the same rules.
    ///
    /// A range of ports becomes the prefixes that cover the range.
    pub(super) fn tuple_space(&self) -> TupleSpace<u32> {
        let mut table = TupleSpace::new(1);
        let mut age = 0;
        for rule in &self.rules {
            let bounds = rule.as_box();
            let prefixes = |lane: usize| port_prefixes(bounds.low[lane]..=bounds.high[lane]);
            for source in prefixes(2) {
                for destination in prefixes(3) {
                    let mut masks = [0, 1, 4].map(|lane| !(bounds.low[lane] ^ bounds.high[lane]));
                    masks[2] &= 0xff;
                    let words = [
                        (bounds.low[0], masks[0]),
                        (bounds.low[1], masks[1]),
                        source,
                        destination,
                        (bounds.low[4], masks[2]),
                    ];
                    // The older of two rules wins, as in the rule set.
                    let rank = Rank { priority: Priority::new(1), age };
                    table.insert(matching(&words), rank, Version::ZERO, rule.value());
                    age += 1;
                }
            }
        }
        table
    }
}

fn generate_filters(name: &str) -> String {
    let known = name.split_once('_').and_then(|(set, size)| {
        let rules = SIZES.iter().find(|(known, _)| *known == size)?.1;
        Some((set.parse::<BuiltinSet>().ok()?, rules))
    });
    let Some((set, rules)) = known else { panic!("there is no rule set {name}") };
    let request = FilterRequest::new(rules);
    let filters = generate(&set.parameters(), &request, Seed::new(1), &Progress::hidden());
    let filters = filters.unwrap_or_else(|error| panic!("{name}: {error}"));
    filters.iter().map(|filter| format!("{filter}\n")).collect()
}

fn matching(words: &[(u32, u32); 5]) -> Match {
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::EthType);
    for (field, (_, bits)) in FIELDS.into_iter().zip(words) {
        mask.add_bits(field, (*bits).into());
    }
    Match::new(&key(&words.map(|(value, _)| value)), &mask)
}

/// Returns a packet as a flow key.
pub(super) fn key(packet: &[u32; 5]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::EthType, 0x0800);
    for (field, value) in FIELDS.into_iter().zip(packet) {
        key.set_field(field, (*value).into());
    }
    key
}

#[cfg(test)]
mod tests {
    use shunt_nuevomatch::{KeySchema, NuevoMatch, NuevoMatchSettings};

    use super::*;

    #[test]
    fn rule_sets_are_in_the_order_of_size() {
        let files = ["fw1_10k.zst", "acl1_100k", "acl1_1k.zst", "acl1_1k", "stats.tsv", "fw1_1k"];
        let names = in_order(files.into_iter().map(str::to_owned));
        assert_eq!(names, ["acl1_1k", "fw1_1k", "fw1_10k", "acl1_100k"]);
    }

    #[test]
    fn both_classifiers_have_the_same_winners() {
        let set = RuleSet::new("fw_1k");
        let table = set.tuple_space();
        let (schema, settings) = (KeySchema::five_tuple(), NuevoMatchSettings::default());
        let ours = NuevoMatch::<5>::build(&schema, &set.rules, &settings).unwrap();
        let inside = set.packets(2000).into_iter().chain(set.zipf_packets(500));
        for packet in inside.chain(set.border_packets(2000)).chain(set.strangers(500)) {
            let expected = table.lookup(&key(&packet), Version::ZERO).copied();
            assert_eq!(ours.lookup(&packet).map(|best| best.value), expected, "{packet:?}");
        }
    }
}
