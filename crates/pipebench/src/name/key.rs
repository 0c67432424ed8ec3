//! The keys of a name: how each key sets, and prints, its setting.

use super::{
    number::{count, hundredths, parse_count, parse_digits, parse_hundredths, parse_time, time},
    source::{FilterName, SourceName},
    value::{FlowArrival, RuleUpdates, Terminals, WorkloadName},
};
use crate::{
    populate::RuleForm,
    traffic::{
        CollectivePattern, FlowSizes, Gaps, PACKET_MAX, PACKET_MIN, PacketSizes, UpdateKind,
    },
};

/// A key that a name can have.
#[derive(Clone, Copy)]
pub struct NameKey {
    /// The word before the equals sign.
    pub name: &'static str,
    /// Description of the valid values.
    pub values: &'static str,
    /// Description of the key.
    pub what: &'static str,
    /// The valid values that are words, for suggestions.
    pub(super) words: &'static [&'static str],
    /// True if the key is printed even with its default value.
    pub(super) is_always_shown: bool,
    /// Returns whether the key applies to a source.
    pub(super) is_for: fn(&SourceName) -> bool,
    /// Sets the value of the key; returns `None` for an invalid value.
    pub(super) set: fn(&mut WorkloadName, &str) -> Option<()>,
    /// Formats the value of the key.
    pub(super) show: fn(&WorkloadName) -> String,
}

impl std::fmt::Debug for NameKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All keys, in their printed order.
pub const KEYS: &[NameKey] = &[
    NameKey {
        is_always_shown: true,
        set: |name, value| parse_digits(value).map(|seed| name.seed = seed),
        show: |name| name.seed.to_string(),
        ..key("seed", "a number", "seed of the random numbers of the workload")
    },
    NameKey {
        is_for: SourceName::has_filters,
        set: |name, value| positive(value, RULES_MAX).map(|rules| name.rules = rules),
        show: |name| count(name.rules.into()),
        ..key(
            "rules",
            "1 to 1m",
            "number of filters for the rules; a file of filters or rules is used completely",
        )
    },
    NameKey {
        words: FilterName::WORDS,
        is_for: is_pipeline,
        set: |name, value| FilterName::find(value).map(|filters| name.filters = filters),
        show: |name| name.filters.to_string(),
        ..key(
            "filters",
            "of, acl, fw, ipc, or a file of filters or parameters",
            "kind of the filters",
        )
    },
    NameKey {
        words: &["output", "all"],
        is_for: is_pipeline,
        set: |name, value| terminals(value).map(|terminals| name.terminals = terminals),
        show: |name| match name.terminals {
            Terminals::Output => "output".to_owned(),
            Terminals::All => "all".to_owned(),
        },
        ..key("terminals", "output or all", "traversals: those that forward, or all")
    },
    NameKey {
        words: &["plain", "real"],
        is_for: is_pipeline,
        set: |name, value| form(value).map(|form| name.form = form),
        show: |name| match name.form {
            RuleForm::Plain => "plain".to_owned(),
            RuleForm::Real => "real".to_owned(),
        },
        ..key(
            "form",
            "plain or real",
            "rules: plain, or with registers, marks and rewritten headers",
        )
    },
    NameKey {
        set: |name, value| {
            parse_count(value)
                .filter(|packets| *packets > 0)
                .map(|packets| name.packets = Some(packets))
        },
        show: |name| name.packets.map_or_else(String::new, count),
        ..key("packets", "1 or more, as in 100k", "total packets; default 30 per flow")
    },
    NameKey {
        words: SIZES,
        set: |name, value| sizes(value).map(|sizes| name.sizes = sizes),
        show: |name| show_sizes(name.sizes),
        ..key(
            "sizes",
            "caida, mawi, campus, zipf, zipf-0.8, hadoop, search or fixed",
            "distribution of packets over flows",
        )
    },
    NameKey {
        words: &["imix", "campus"],
        set: |name, value| bytes(value).map(|bytes| name.bytes = bytes),
        show: |name| show_bytes(name.bytes),
        ..key("bytes", "64 to 9018, imix or campus", "bytes of a packet on the wire")
    },
    NameKey {
        words: GAPS,
        set: |name, value| gaps(value).map(|gaps| name.gaps = gaps),
        show: |name| show_gaps(name.gaps).to_owned(),
        ..key(
            "gaps",
            "caida, mawi, poisson or constant",
            "distribution of the times between \
                                         packets",
        )
    },
    NameKey {
        set: |name, value| positive(value, RATE_MAX).map(|rate| name.rate = Some(rate)),
        show: |name| name.rate.map_or_else(String::new, |rate| count(rate.into())),
        ..key("rate", "1 to 1000m", "packets per second; by default the rate of the trace")
    },
    NameKey {
        words: &["all"],
        set: |name, value| {
            name.active = if value == "all" { None } else { Some(positive(value, FLOWS_MAX)?) };
            Some(())
        },
        show: |name| name.active.map_or_else(|| "all".to_owned(), |active| count(active.into())),
        ..key("active", "1 to 10m, or all", "flows that are active at a time")
    },
    NameKey {
        is_for: SourceName::has_filters,
        set: |name, value| arrival(value).map(|arrival| name.arrival = Some(arrival)),
        show: |name| {
            name.arrival.map_or_else(String::new, |arrival| {
                format!("{}@{}%", count(arrival.flows.into()), arrival.percent)
            })
        },
        ..key(
            "arrival",
            "1 to 10m flows and 0% to 99%: 50k@50%",
            "additional flows, and the share of the other flows' packets after which they arrive",
        )
    },
    NameKey {
        words: UPDATES,
        set: |name, value| updates(value).map(|updates| name.updates = Some(updates)),
        show: |name| {
            name.updates.map_or_else(String::new, |updates| {
                format!("{}@{}", updates.kind, time(updates.period_ms))
            })
        },
        ..key(
            "updates",
            "p1 to p5, flap or burst, and a period of 1ms or more: p2@10s",
            "rules that are added and deleted during the traffic, and their period",
        )
    },
    NameKey {
        is_for: |source| *source == SourceName::Coflow,
        set: |name, value| {
            let percent =
                u8::try_from(parse_hundredths(value)?).ok().filter(|value| *value <= 100)?;
            name.coflowiness = percent;
            Some(())
        },
        show: |name| hundredths(name.coflowiness.into()),
        ..key("coflowiness", "0 to 1", "share of the associated flows that are predicted")
    },
    NameKey {
        is_for: |source| *source == SourceName::Coflow,
        set: |name, value| (!value.is_empty()).then(|| name.trace = Some(value.to_owned())),
        show: |name| name.trace.clone().unwrap_or_default(),
        ..key("trace", "a file", "recorded coflows, as of `coflow-benchmark`: sizes, times, racks")
    },
    NameKey {
        words: CollectivePattern::WORDS,
        is_for: |source| *source == SourceName::Collective,
        set: |name, value| CollectivePattern::find(value).map(|pattern| name.pattern = pattern),
        show: |name| name.pattern.word().to_owned(),
        ..key("pattern", "all-to-all or ring", "hosts to which a host sends")
    },
];

/// Maximum number of flows in a workload.
pub(super) const FLOWS_MAX: u32 = 10_000_000;
/// Maximum number of rules in a workload.
const RULES_MAX: u32 = 1_000_000;
/// Maximum rate in a workload.
const RATE_MAX: u32 = 1_000_000_000;
/// Minimum time between two updates.
const PERIOD_MIN_MS: u32 = 1;
/// Time between two updates without a time in the name, in milliseconds.
const PERIOD_MS: u32 = 1000;

/// Names of the distributions of packet lengths.
const SIZES: &[&str] = &["caida", "mawi", "campus", "zipf", "hadoop", "search", "fixed"];
/// Names of the distributions of times between packets.
const GAPS: &[&str] = &["caida", "mawi", "poisson", "constant"];
/// Names of the patterns of updates.
const UPDATES: &[&str] = &["p1", "p2", "p3", "p4", "p5", "flap", "burst"];

/// Returns a key that applies to every source; its functions are still empty.
const fn key(name: &'static str, values: &'static str, what: &'static str) -> NameKey {
    NameKey {
        name,
        values,
        what,
        words: &[],
        is_always_shown: false,
        is_for: |_| true,
        set: |_, _| None,
        show: |_| String::new(),
    }
}

/// Returns whether the rules come from a pipeline.
const fn is_pipeline(source: &SourceName) -> bool {
    matches!(source, SourceName::Pipeline(_) | SourceName::PipelineFile(_))
}

/// Parses a count from 1 to `max`.
pub(super) fn positive(text: &str, max: u32) -> Option<u32> {
    let number = u32::try_from(parse_count(text)?).ok()?;
    (1..=max).contains(&number).then_some(number)
}

/// Parses the value of `terminals`.
fn terminals(text: &str) -> Option<Terminals> {
    match text {
        "output" => Some(Terminals::Output),
        "all" => Some(Terminals::All),
        _ => None,
    }
}

/// Parses the form of the rules.
fn form(text: &str) -> Option<RuleForm> {
    match text {
        "plain" => Some(RuleForm::Plain),
        "real" => Some(RuleForm::Real),
        _ => None,
    }
}

/// Parses a distribution of flow sizes.
fn sizes(text: &str) -> Option<FlowSizes> {
    Some(match text {
        "caida" => FlowSizes::Caida,
        "mawi" => FlowSizes::Mawi,
        "campus" => FlowSizes::Campus,
        "hadoop" => FlowSizes::Hadoop,
        "search" => FlowSizes::Search,
        "fixed" => FlowSizes::Fixed,
        "zipf" => FlowSizes::Zipf { hundredths: 100 },
        _ => FlowSizes::Zipf {
            hundredths: parse_hundredths(text.strip_prefix("zipf-")?).filter(|e| *e <= 300)?,
        },
    })
}

/// Formats the distribution of flow sizes.
fn show_sizes(sizes: FlowSizes) -> String {
    match sizes {
        FlowSizes::Caida => "caida".to_owned(),
        FlowSizes::Mawi => "mawi".to_owned(),
        FlowSizes::Campus => "campus".to_owned(),
        FlowSizes::Hadoop => "hadoop".to_owned(),
        FlowSizes::Search => "search".to_owned(),
        FlowSizes::Fixed => "fixed".to_owned(),
        FlowSizes::Zipf { hundredths: 100 } => "zipf".to_owned(),
        FlowSizes::Zipf { hundredths: exponent } => format!("zipf-{}", hundredths(exponent)),
    }
}

/// Parses a distribution of packet sizes.
fn bytes(text: &str) -> Option<PacketSizes> {
    Some(match text {
        "imix" => PacketSizes::Imix,
        "campus" => PacketSizes::Campus,
        _ => {
            let bytes = u16::try_from(parse_digits(text)?).ok()?;
            PacketSizes::Fixed((PACKET_MIN..=PACKET_MAX).contains(&bytes).then_some(bytes)?)
        }
    })
}

/// Formats the distribution of packet sizes.
fn show_bytes(bytes: PacketSizes) -> String {
    match bytes {
        PacketSizes::Imix => "imix".to_owned(),
        PacketSizes::Campus => "campus".to_owned(),
        PacketSizes::Fixed(bytes) => bytes.to_string(),
    }
}

/// Parses a distribution of gaps between packets.
fn gaps(text: &str) -> Option<Gaps> {
    let all = [Gaps::Caida, Gaps::Mawi, Gaps::Poisson, Gaps::Constant];
    all.into_iter().find(|gaps| show_gaps(*gaps) == text)
}

/// Returns the word for the distribution of gaps.
const fn show_gaps(gaps: Gaps) -> &'static str {
    match gaps {
        Gaps::Caida => "caida",
        Gaps::Mawi => "mawi",
        Gaps::Poisson => "poisson",
        Gaps::Constant => "constant",
    }
}

/// Parses the arrival of later flows.
fn arrival(text: &str) -> Option<FlowArrival> {
    let (flows, percent) = text.split_once('@')?;
    let percent = u8::try_from(parse_digits(percent.strip_suffix('%')?)?).ok()?;
    let percent = Some(percent).filter(|percent| *percent < 100)?;
    Some(FlowArrival { flows: positive(flows, FLOWS_MAX)?, percent })
}

/// Parses the kind of rule updates.
fn updates(text: &str) -> Option<RuleUpdates> {
    let (kind, period) = match text.split_once('@') {
        Some((kind, period)) => (kind, parse_time(period)?),
        None => (text, PERIOD_MS),
    };
    let period_ms = Some(period).filter(|period| *period >= PERIOD_MIN_MS)?;
    Some(RuleUpdates { kind: UpdateKind::find(kind)?, period_ms })
}
