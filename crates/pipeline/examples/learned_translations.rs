//! Compares translations by tuple space search with those by a learned index.
//!
//! ```text
//! cargo run --release -p shunt-pipeline --features testing \
//!     --example learned_translations -- [RULES..]
//! ```
//!
//! `RULES` are rule sets in the format of ClassBench; without them, rule sets are generated. Ranges
//! of ports become prefixes, as in OpenFlow. Each set is one table. 20,000 headers are translated
//! in turns, and the least time of five rounds counts. A cache without a limit starts empty, and a
//! header that no megaflow covers adds the megaflow of its translation. The last column has the
//! time to add and remove a rule, before and after the training.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::{
    collections::{HashMap, HashSet},
    env,
    error::Error,
    fs,
    hint::black_box,
    net::Ipv4Addr,
    time::Instant,
};

use shunt_flow::{FieldId, FlowKey, PortNo, SparseMask, text::NoPortNames};
use shunt_nuevomatch::{
    PriorityRule, parse_classbench,
    testing::{HeaderStream, SyntheticSet},
};
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowMod, FlowModCommand, IndexedTables, Pipeline, PortInfo,
    RuleFilter, Time, Traversal, Version, text::parse_rule,
};

/// Number of headers of each rule set.
const HEADERS: usize = 20_000;

/// Number of rounds of which the least time is printed.
const ROUNDS: usize = 5;

/// Number of rules that are added and removed.
const CHANGED: usize = 500;

/// Number of flow-mods of one version.
const MODS_PER_VERSION: usize = 1_000;

/// Fewest rules with an index here; small sets show that an index does not pay for
/// them.
const RULES_MIN: usize = 1;

/// The fields of a header, in the order of the lanes.
const FIELDS: [FieldId; 5] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst, FieldId::IpProto];

type FilterList = Vec<PriorityRule<5>>;

/// A table with the rules of a set, and the packets that it translates.
struct RuleSetTable {
    pipeline: Pipeline,
    /// The newest version, by which headers are translated.
    version: Version,
    rules_count: usize,
    /// The rules that are removed and added again.
    changed: Vec<FlowMod>,
    /// The headers as flow keys.
    keys: Vec<FlowKey>,
}

/// The size of a megaflow cache.
#[derive(Clone, Copy)]
struct MegaflowCounts {
    /// Number of megaflows.
    entries: usize,
    /// Number of different masks of the megaflows.
    masks: usize,
}

impl RuleSetTable {
    /// Adds the rules to a pipeline, and generates the packets to translate.
    fn new(rules: &FilterList) -> Result<Self, Box<dyn Error>> {
        let (pipeline, id) = (Pipeline::new(1), BridgeId::new(0));
        pipeline.add_bridge(id, BridgeSettings::default());
        pipeline.set_ports(id, (1..=4).map(PortInfo::datapath).collect())?;
        let texts: Vec<_> = rules.iter().flat_map(prefix_rules_of).collect();
        let (count, mut requests) = (texts.len(), Vec::new());
        for (at, text) in texts.iter().enumerate() {
            // Later rules of a set have lower priorities, or are younger.
            let priority = 65_000 - at * 64_000 / count;
            let text = format!("priority={priority},{text},actions=output:{}", 1 + at % 4);
            requests.push(parse_rule(FlowModCommand::Add, &text, &NoPortNames)?);
        }
        for requests in requests.chunks(MODS_PER_VERSION) {
            pipeline.apply(id, requests, Time::ZERO)?;
        }
        let mut headers = vec![[0; 5]; HEADERS];
        HeaderStream::new(rules, 3).fill(&mut headers);
        let step = (count / CHANGED).max(1);
        let changed = requests.into_iter().step_by(step).take(CHANGED).collect();
        let rules_count = pipeline.rules(id, &RuleFilter::all()).len();
        let (version, keys) = (pipeline.version(), headers.iter().map(key).collect());
        Ok(Self { pipeline, version, rules_count, changed, keys })
    }

    /// Translates packet number `at` by tuple space search.
    fn by_tuples(&self, at: usize) -> Traversal {
        self.pipeline.translate_by_tuple_space(&self.keys[at], None, self.version)
    }

    /// Translates packet number `at` by the learned index, once tables have one.
    fn by_index(&self, at: usize) -> Traversal {
        self.pipeline.translate(&self.keys[at], self.version)
    }

    /// Measures a rule set and prints its row. Panics if the decisions differ.
    fn print(&mut self, name: &str) -> Result<(), Box<dyn Error>> {
        let changes_before = self.change_time()?;
        self.pipeline.set_indexed_rules_min(RULES_MIN);
        #[expect(clippy::disallowed_methods, reason = "an example measures time")]
        let started = Instant::now();
        self.pipeline.train_tables(IndexedTables::for_translations(RULES_MIN), Time::ZERO);
        let training = started.elapsed();
        let mut times = [u128::MAX; 2];
        for _ in 0..ROUNDS {
            let round = [time(|at| self.by_tuples(at)), time(|at| self.by_index(at))];
            times = std::array::from_fn(|at| times[at].min(round[at]));
        }
        for at in 0..HEADERS {
            assert!(self.by_tuples(at).decides_like(&self.by_index(at)), "decisions differ");
        }
        let sizes = [self.cache(|at| self.by_tuples(at)), self.cache(|at| self.by_index(at))];
        let changes = [changes_before, self.change_time()?];
        println!(
            "| {name} | {} | {}, {} | {}, {} | {}, {} | {}, {} | {:.1} |",
            self.rules_count,
            times[0],
            times[1],
            sizes[0].entries,
            sizes[1].entries,
            sizes[0].masks,
            sizes[1].masks,
            changes[0],
            changes[1],
            training.as_secs_f64() * 1e3,
        );
        Ok(())
    }

    /// Returns the size of a cache after all headers.
    fn cache(&self, translate: impl Fn(usize) -> Traversal) -> MegaflowCounts {
        let mut masks: HashMap<SparseMask, HashSet<Vec<u64>>> = HashMap::new();
        let mut entries = 0;
        for (at, key) in self.keys.iter().enumerate() {
            let masked = |mask: &SparseMask| mask.apply(key).collect::<Vec<_>>();
            if masks.iter().any(|(mask, values)| values.contains(&masked(mask))) {
                continue;
            }
            let mask = translate(at).mask;
            let values = masked(&mask);
            masks.entry(mask).or_default().insert(values);
            entries += 1;
        }
        MegaflowCounts { entries, masks: masks.len() }
    }

    /// Returns the nanoseconds to remove a rule and add it again.
    #[expect(clippy::disallowed_methods, reason = "an example measures time")]
    fn change_time(&mut self) -> Result<u128, Box<dyn Error>> {
        let (id, mut removals) = (BridgeId::new(0), self.changed.clone());
        removals.iter_mut().for_each(|own| own.command = FlowModCommand::DeleteStrict);
        let mut least = u128::MAX;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            self.pipeline.apply(id, &removals, Time::ZERO)?;
            self.pipeline.apply(id, &self.changed, Time::ZERO)?;
            least = least.min(started.elapsed().as_nanos() / self.changed.len() as u128);
            self.version = self.pipeline.version();
            self.pipeline.reclaim(self.version);
        }
        Ok(least)
    }
}

/// Returns the nanoseconds of one call.
#[expect(clippy::disallowed_methods, reason = "an example measures time")]
fn time(translate: impl Fn(usize) -> Traversal) -> u128 {
    let started = Instant::now();
    for at in 0..HEADERS {
        black_box(translate(at));
    }
    started.elapsed().as_nanos() / HEADERS as u128
}

/// Returns the TCP/IP headers of a packet that arrives on port 1.
fn key(header: &[u32; 5]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthType, 0x0800);
    for (field, value) in FIELDS.into_iter().zip(header) {
        key.set_field(field, (*value).into());
    }
    key
}

/// Returns matches that cover the headers of a rule, with prefixes for ranges of
/// ports.
fn prefix_rules_of(rule: &PriorityRule<5>) -> Vec<String> {
    let bounds = rule.as_box();
    let network = |lane: usize| {
        let bits = !(bounds.low[lane] ^ bounds.high[lane]);
        format!("{}/{}", Ipv4Addr::from(bounds.low[lane]), bits.leading_ones())
    };
    let addresses = format!("nw_src={},nw_dst={}", network(0), network(1));
    if bounds.low[4] != bounds.high[4] {
        return vec![format!("ip,{addresses}")];
    }
    let protocol = bounds.low[4];
    let Some(prefix) = [(6, "tcp"), (17, "udp")].iter().find(|own| own.0 == protocol) else {
        return vec![format!("ip,nw_proto={protocol},{addresses}")];
    };
    let mut texts = Vec::new();
    for (from, from_mask) in port_prefixes(bounds.low[2], bounds.high[2]) {
        for (to, to_mask) in port_prefixes(bounds.low[3], bounds.high[3]) {
            let ports = [("tp_src", (from, from_mask)), ("tp_dst", (to, to_mask))];
            let ports = ports.into_iter().filter(|(_, own)| own.1 != 0);
            let ports = ports.map(|(field, (value, bits))| format!("{field}={value:#x}/{bits:#x}"));
            let mut parts = vec![prefix.1.to_owned(), addresses.clone()];
            parts.extend(ports);
            texts.push(parts.join(","));
        }
    }
    texts
}

/// Returns the values and masks of the prefixes that cover a range of ports.
fn port_prefixes(low: u32, high: u32) -> Vec<(u32, u32)> {
    let (mut next, mut prefixes) = (low, Vec::new());
    while next <= high {
        let mut free = next.trailing_zeros().min(16);
        while next + (1 << free) - 1 > high {
            free -= 1;
        }
        prefixes.push((next, 0xffff & !((1 << free) - 1)));
        next += 1 << free;
    }
    prefixes
}

/// Returns the named rule sets of the command line, or generated ones.
fn rule_sets() -> Result<Vec<(String, FilterList)>, Box<dyn Error>> {
    let files: Vec<String> = env::args().skip(1).collect();
    if files.is_empty() {
        println!("No files of ClassBench are named: the rule sets are GENERATED.\n");
        let sizes = [100, 1_000, 10_000];
        let sets = sizes.iter().flat_map(|size| SyntheticSet::ALL.map(|set| (set, *size)));
        return Ok(sets.map(|(set, size)| (set.name().to_owned(), set.rules(size, 29))).collect());
    }
    let read = |file: String| {
        let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        Ok((file.rsplit('/').next().unwrap_or(&file).to_owned(), parse_classbench(&text)?))
    };
    files.into_iter().map(read).collect()
}

/// Prints a table that compares both kinds of lookup for each rule set.
fn main() -> Result<(), Box<dyn Error>> {
    let sets = rule_sets()?;
    println!("Two numbers of a cell: tuple space search, then the learned index.\n");
    print!("| rule set | rules | ns of a translation | megaflows | masks ");
    println!("| ns of a change | ms of the training |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, rules) in sets {
        RuleSetTable::new(&rules)?.print(&name)?;
    }
    Ok(())
}
