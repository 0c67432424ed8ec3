//! Classifies the packets of a capture by a ClassBench rule-set.
//!
//! ```text
//! cargo run --release -p shunt-nuevomatch --example classify RULES CAPTURE [tree|segments|rqrmi]
//! ```
//!
//! Prints the statistics of the classifier, the time to build it, and the rules that the most
//! packets match. The last word selects the index over the starts of buckets; the default is the
//! tree. The build of `rqrmi` includes the training, and that of both learned indexes the
//! certificate.

#![expect(clippy::print_stdout, reason = "an example prints its results")]
#![expect(clippy::disallowed_methods, reason = "an example measures time by the clock")]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs::{self, File},
    io::BufReader,
    time::Instant,
};

use indicatif::{ProgressBar, ProgressStyle};
use shunt_flow::{
    FieldId, FlowKey,
    extract::{VlanLimit, extract},
};
use shunt_nuevomatch::{
    KeySchema, LinearSegments, NuevoMatch, NuevoMatchSettings, StartIndex, StaticTree,
    parse_classbench, rqrmi::CertifiedModel,
};
use shunt_pcap::PcapReader;

/// Number of packets that are looked up at once.
const BATCH: usize = 32;

/// Number of rules that are printed.
const SHOWN: usize = 10;

/// The fields of a key, in the order of the lanes.
/// A flow key has the ports of all protocols in the same bits.
const FIELDS: [FieldId; 5] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst, FieldId::IpProto];

/// Returns the 5-tuple of an IPv4 packet.
fn five_tuple(frame: &[u8]) -> Option<[u32; 5]> {
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::One, &mut key);
    let value = |field| u32::try_from(key.field(field)).unwrap_or_default();
    (key.field(FieldId::EthType) == 0x0800).then(|| FIELDS.map(value))
}

/// The number of packets that each rule matched, by the position of the rule.
#[derive(Default)]
struct Winners {
    /// Number of looked up packets.
    packets: u64,
    /// Number of packets that matched no rule.
    unmatched: u64,
    /// Number of packets that each rule matched, by the value of the rule.
    wins: BTreeMap<u32, u64>,
}

impl Winners {
    /// Looks up a batch of keys, and counts the rule that each key matches.
    fn count<I: StartIndex>(&mut self, classifier: &NuevoMatch<5, I>, keys: &[[u32; 5]]) {
        let mut best = [None; BATCH];
        classifier.lookup_batch(keys, &mut best);
        for best in &best[..keys.len()] {
            self.packets += 1;
            match best {
                Some(best) => *self.wins.entry(best.value).or_default() += 1,
                None => self.unmatched += 1,
            }
        }
    }
}

/// Reads the rules and the capture, and classifies with the index named last.
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [rules, capture] | [rules, capture, "tree"] => classify::<StaticTree>(rules, capture),
        [rules, capture, "segments"] => classify::<LinearSegments>(rules, capture),
        [rules, capture, "rqrmi"] => classify::<CertifiedModel>(rules, capture),
        _ => Err("usage: classify RULES CAPTURE [tree|segments|rqrmi]".into()),
    }
}

/// Classifies a capture by the rules of a file, with one type of index.
fn classify<I: StartIndex>(rules: &str, capture: &str) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(rules)?;
    let rules = parse_classbench(&text)?;
    let schema = KeySchema::five_tuple();
    let started = Instant::now();
    let classifier = NuevoMatch::<5, I>::build(&schema, &rules, &NuevoMatchSettings::default())?;
    let built_ms = started.elapsed().as_secs_f64() * 1e3;

    let file = File::open(capture)?;
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}")?;
    let bar = ProgressBar::new(file.metadata()?.len()).with_style(style).with_message("packets");
    let mut reader = PcapReader::new(capture, BufReader::new(bar.wrap_read(file)))?;
    let (mut winners, mut others, mut keys) = (Winners::default(), 0_u64, Vec::new());
    while let Some(record) = reader.next_record()? {
        match five_tuple(record.frame) {
            Some(key) => keys.push(key),
            None => others += 1,
        }
        if keys.len() == BATCH {
            winners.count(&classifier, &keys);
            keys.clear();
        }
    }
    winners.count(&classifier, &keys);
    bar.finish_and_clear();

    println!("built in {built_ms:.1} ms");
    print_statistics(&classifier);
    println!(
        "{} IPv4 packets, {} without a rule; {others} other packets",
        winners.packets, winners.unmatched
    );
    let mut most: Vec<(u32, u64)> = winners.wins.into_iter().collect();
    most.sort_by_key(|(rule, packets)| (std::cmp::Reverse(*packets), *rule));
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    for (rule, packets) in most.into_iter().take(SHOWN) {
        println!("{packets:10} packets: {}", lines.get(rule as usize).unwrap_or(&""));
    }
    Ok(())
}

/// Prints the iSets, the remainder and the memory of a classifier.
fn print_statistics<I: StartIndex>(classifier: &NuevoMatch<5, I>) {
    let statistics = classifier.statistics();
    println!(
        "{} rules, {:.1} % in iSets, {} bytes",
        statistics.rules,
        statistics.coverage() * 100.0,
        statistics.bytes
    );
    for set in &statistics.sets {
        let name = ["source", "destination", "source port", "destination port", "protocol"];
        println!(
            "iSet by {}: {} rules in {} buckets of at most {}, index of {} bytes",
            name[set.lane], set.rules, set.buckets, statistics.bucket_rules, set.index_bytes
        );
        if let Some(error) = set.certified_error {
            println!("  each prediction is at most {error} buckets away from the right one");
        }
    }
    println!(
        "remainder: {} rules in {} hash tables",
        statistics.remainder_rules, statistics.remainder_tables
    );
}
