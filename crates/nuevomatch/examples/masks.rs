//! Compares masked lookups with those of tuple space search: their time, and the cache they fill.
//!
//! ```text
//! cargo run --release -p shunt-nuevomatch --example masks [RULES..]
//! ```
//!
//! `RULES` are rule-sets in the format of ClassBench; without them, rule-sets are generated. Ranges
//! of ports become prefixes, as in OpenFlow. A cache without a limit starts empty. A header that no
//! entry covers adds the entry of its lookup. Times are the least of five rounds, in turns.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::{
    collections::{HashMap, HashSet},
    env,
    error::Error,
    fs,
    hint::black_box,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget};
use shunt_classifier::{Classifier, Priority, Rank, TupleSpace, Version};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_nuevomatch::{
    FieldMatch, KeySchema, NuevoMatch, NuevoMatchSettings, PriorityRule, parse_classbench,
    testing::{HeaderStream, SyntheticSet, port_prefixes},
};

/// Number of headers of each rule-set.
const HEADERS: usize = 20_000;

/// Number of rounds of which the least time is printed.
const ROUNDS: usize = 5;

/// The fields of a header, in the order of the lanes.
const FIELDS: [FieldId; 5] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst, FieldId::IpProto];

type Rules = Vec<PriorityRule<5>>;

/// Two classifiers with the same rules.
struct Contest {
    name: String,
    rules_count: u32,
    headers: Vec<[u32; 5]>,
    keys: Vec<FlowKey>,
    rival: TupleSpace<u32>,
    ours: NuevoMatch<5>,
}

impl Contest {
    /// Builds both classifiers and random headers. Fails if a rule is not valid.
    fn new(name: String, rules: &Rules) -> Result<Self, Box<dyn Error>> {
        let (schema, mut rival) = (KeySchema::five_tuple(), TupleSpace::new(1));
        let (mut count, mut prefix_rules) = (0, Vec::new());
        for words in rules.iter().flat_map(prefix_rules_of) {
            let fields = words
                .map(|(value, bits)| FieldMatch::Mask { value: value.into(), mask: bits.into() });
            prefix_rules.push(PriorityRule::new(&schema, &fields, 1, count)?);
            let rank = Rank { priority: Priority::new(1), age: count.into() };
            rival.insert(matching(&words), rank, Version::ZERO, count);
            count += 1;
        }
        let mut headers = vec![[0; 5]; HEADERS];
        HeaderStream::new(rules, 3).fill(&mut headers);
        let keys = headers.iter().map(key).collect();
        let ours = NuevoMatch::build(&schema, &prefix_rules, &NuevoMatchSettings::default())?;
        Ok(Self { name, rules_count: count, headers, keys, rival, ours })
    }

    /// Returns the bits that tuple space search consults for header number `at`.
    fn of_rival(&self, at: usize) -> [u32; 5] {
        let mut mask = FlowMask::EMPTY;
        black_box(self.rival.lookup_masked(&self.keys[at], Version::ZERO, &mut mask));
        FIELDS.map(|field| u32::try_from(mask.field(field)).unwrap_or(u32::MAX))
    }

    /// Returns the bits that NuevoMatch consults for header number `at`.
    fn of_ours(&self, at: usize) -> [u32; 5] {
        let mut mask = [0; 5];
        black_box(self.ours.lookup_masked(&self.headers[at], &mut mask));
        mask
    }

    /// Measures both classifiers, and prints a row of the table.
    fn print(&self, bar: &ProgressBar) {
        let mut times = [u128::MAX; 2];
        for _ in 0..ROUNDS {
            let round = [time(|at| self.of_rival(at)), time(|at| self.of_ours(at))];
            times = std::array::from_fn(|at| times[at].min(round[at]));
        }
        let rival = self.cache(bar, |at| self.of_rival(at));
        let ours = self.cache(bar, |at| self.of_ours(at));
        println!(
            "| {} | {} | {} | {}, {} | {}, {} | {}, {} |",
            self.name,
            self.rules_count,
            self.ours.remainder_len(),
            times[0],
            times[1],
            rival.entries,
            ours.entries,
            rival.masks,
            ours.masks,
        );
    }

    /// Returns the size of a cache after all headers.
    fn cache(&self, bar: &ProgressBar, mask_of: impl Fn(usize) -> [u32; 5]) -> CacheSize {
        let mut masks: HashMap<[u32; 5], HashSet<[u32; 5]>> = HashMap::new();
        let mut entries = 0;
        for (at, header) in self.headers.iter().enumerate() {
            advance(bar);
            if masks.iter().any(|(mask, values)| values.contains(&masked(header, mask))) {
                continue;
            }
            let mask = mask_of(at);
            masks.entry(mask).or_default().insert(masked(header, &mask));
            entries += 1;
        }
        CacheSize { entries, masks: masks.len() }
    }
}

/// The size of a megaflow cache.
struct CacheSize {
    /// Number of megaflows.
    entries: usize,
    /// Number of different masks of the megaflows.
    masks: usize,
}

/// Returns the nanoseconds of one call.
#[expect(clippy::disallowed_methods, reason = "an example measures time")]
fn time(mask_of: impl Fn(usize) -> [u32; 5]) -> u128 {
    let started = Instant::now();
    for at in 0..HEADERS {
        black_box(mask_of(at));
    }
    started.elapsed().as_nanos() / HEADERS as u128
}

/// Counts a header. A bar appears on a terminal after two seconds.
fn advance(bar: &ProgressBar) {
    bar.inc(1);
    if bar.is_hidden() && bar.elapsed() >= Duration::from_secs(2) {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
}

/// Returns the header with all bits outside the mask cleared.
fn masked(header: &[u32; 5], mask: &[u32; 5]) -> [u32; 5] {
    std::array::from_fn(|lane| header[lane] & mask[lane])
}

/// Returns the flow key of a TCP/IP header in the order of `FIELDS`.
fn key(header: &[u32; 5]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::EthType, 0x0800);
    for (field, value) in FIELDS.into_iter().zip(header) {
        key.set_field(field, (*value).into());
    }
    key
}

/// Returns the match of the values and masks of five fields.
fn matching(words: &[(u32, u32); 5]) -> Match {
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::EthType);
    for (field, (_, bits)) in FIELDS.into_iter().zip(words) {
        mask.add_bits(field, (*bits).into());
    }
    Match::new(&key(&words.map(|(value, _)| value)), &mask)
}

/// Returns the prefixes that match the same headers as a rule: values and masks.
fn prefix_rules_of(rule: &PriorityRule<5>) -> Vec<[(u32, u32); 5]> {
    let bounds = rule.as_box();
    let prefix = |lane: usize| (bounds.low[lane], !(bounds.low[lane] ^ bounds.high[lane]));
    let (source, destination, (protocol, bits)) = (prefix(0), prefix(1), prefix(4));
    let mut rules = Vec::new();
    for from in port_prefixes(bounds.low[2]..=bounds.high[2]) {
        for to in port_prefixes(bounds.low[3]..=bounds.high[3]) {
            rules.push([source, destination, from, to, (protocol, bits & 0xff)]);
        }
    }
    rules
}

/// Returns the named rule-sets of the command line, or generated ones.
fn rule_sets() -> Result<Vec<(String, Rules)>, Box<dyn Error>> {
    let files: Vec<String> = env::args().skip(1).collect();
    if files.is_empty() {
        let sizes = [100, 1_000, 10_000];
        let sets = sizes.iter().flat_map(|size| SyntheticSet::ALL.map(|set| (set, *size)));
        return Ok(sets.map(|(set, size)| (set.name().to_owned(), set.rules(size, 29))).collect());
    }
    let read = |file: String| {
        let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let rules = parse_classbench(&text)?;
        Ok((file, rules))
    };
    files.into_iter().map(read).collect()
}

/// Prints a table that compares both classifiers for each rule set.
fn main() -> Result<(), Box<dyn Error>> {
    let sets = rule_sets()?;
    let steps = sets.len() * HEADERS * 2;
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
    println!("Two numbers of a cell: tuple space search, then NuevoMatch.\n");
    println!("| rule set | rules | remainder | ns of a lookup | entries | masks |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, rules) in sets {
        let contest = Contest::new(name, &rules)?;
        contest.print(&bar);
    }
    bar.finish_and_clear();
    Ok(())
}
