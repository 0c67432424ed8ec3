//! The tables and packets that both classifiers are given.
//!
//! Synthetic tables come from `shunt_classifier::testing::workload`. ClassBench rule-sets (Taylor,
//! Turner, *ClassBench: A Packet Classification Benchmark*, 2007) are read from a folder of files
//! compressed by zstd; a range of ports becomes the prefixes that make it up, as a controller of
//! OpenFlow has to write it, and the first line has the highest priority.

use std::{path::Path, process::Command};

use shunt_classifier::{
    Priority, Rank,
    testing::workload::{Priorities, Random, Rules, match_rule, packets, rules},
};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

/// One table and its packets.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    pub(crate) packets: Vec<FlowKey>,
}

impl Workload {
    /// `acl1_10k: 13K rules/424 masks`: what plots have room for.
    pub(crate) fn title(&self) -> String {
        let rules = match self.rules.len() {
            count if count >= 10_000 => format!("{}K", count / 1000),
            count => count.to_string(),
        };
        format!("{}: {rules} rules/{} masks", self.name, self.masks_count())
    }

    fn masks_count(&self) -> usize {
        let masks = self.rules.iter().map(|(matching, _)| matching.mask());
        masks.collect::<std::collections::HashSet<_>>().len()
    }
}

/// A table of so many rules over so many masks.
pub(crate) fn synthetic(
    rules_count: usize,
    masks_count: usize,
    priorities: Priorities,
    packets_count: usize,
) -> Workload {
    let rules = rules(rules_count, masks_count, priorities);
    let packets = packets(packets_count, &rules);
    let name = format!("{priorities:?}").to_lowercase();
    Workload { name, rules, packets }
}

/// A set of ClassBench; `None` where the folder does not have it.
///
/// Nine packets of ten are made from a rule drawn uniformly, the tenth is anything at all.
pub(crate) fn class_bench(folder: &Path, name: &str, packets_count: usize) -> Option<Workload> {
    let file = folder.join(format!("{name}.zst"));
    let unpacked = Command::new("zstd").args(["-dcq"]).arg(file).output().ok()?;
    let text = String::from_utf8(unpacked.stdout).ok().filter(|_| unpacked.status.success())?;
    let lines: Vec<Vec<Match>> = text.lines().filter_map(line).collect();
    let priority = |line: usize| {
        let step = usize::from(u16::MAX) * (lines.len() - line) / lines.len();
        Priority::new(u16::try_from(step).unwrap_or(u16::MAX))
    };
    let rules = lines.iter().enumerate().flat_map(|(index, matches)| {
        matches.iter().map(move |matching| (matching.clone(), priority(index)))
    });
    let mut seen = std::collections::HashSet::new();
    let rules: Rules = rules
        .filter(|(matching, priority)| seen.insert((matching.clone(), *priority)))
        .zip(0..)
        .map(|((matching, priority), age)| (matching, Rank { priority, age }))
        .collect();
    let mut random = Random(1);
    let packet = |_| {
        let mut packet = anything(&mut random);
        if random.below(10) > 0 {
            let matches = &lines[random.below(lines.len())];
            match_rule(&mut packet, &matches[random.below(matches.len())]);
        }
        packet
    };
    let packets = (0..packets_count).map(packet).collect();
    Some(Workload { name: name.to_owned(), rules, packets })
}

/// An IPv4 packet of a protocol with ports.
fn anything(random: &mut Random) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::InPort, 1);
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::IpProto, random.pick(&[6, 17]));
    for field in [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst] {
        key.set_field(field, u128::from(random.draw()) & field.value_max());
    }
    key
}

/// The matches of one line: `@sip/len dip/len splo : sphi dplo : dphi proto/mask flags/mask`.
fn line(text: &str) -> Option<Vec<Match>> {
    let mut fields = text.strip_prefix('@')?.split('\t');
    let addresses = [prefix(fields.next()?)?, prefix(fields.next()?)?];
    let ports = [range(fields.next()?)?, range(fields.next()?)?];
    let (protocol, protocol_mask) = fields.next()?.split_once('/')?;
    let protocol = u8::from_str_radix(protocol.trim_start_matches("0x"), 16).ok()?;
    let has_protocol = protocol_mask == "0xFF";
    let mut key = FlowKey::ZERO;
    let mut mask = FlowMask::EMPTY;
    key.set_field(FieldId::EthType, 0x0800);
    mask.add_field(FieldId::EthType);
    let fields = [FieldId::Ipv4Src, FieldId::Ipv4Dst].into_iter().zip(addresses);
    for (field, (address, length)) in fields {
        key.set_field(field, address.into());
        mask.add_bits(field, u128::from(!u32::MAX.checked_shr(length).unwrap_or(0)));
    }
    if has_protocol {
        key.set_field(FieldId::IpProto, protocol.into());
        mask.add_field(FieldId::IpProto);
    }
    let has_ports = has_protocol && matches!(protocol, 6 | 17 | 132);
    let any = vec![(0, 0)];
    let [sources, targets] =
        ports.map(|(low, high)| if has_ports { prefixes(low, high) } else { any.clone() });
    let mut matches = Vec::new();
    for (source, source_mask) in &sources {
        for (target, target_mask) in &targets {
            let (mut key, mut mask) = (key.clone(), mask.clone());
            key.set_field(FieldId::TcpSrc, (*source).into());
            key.set_field(FieldId::TcpDst, (*target).into());
            mask.add_bits(FieldId::TcpSrc, (*source_mask).into());
            mask.add_bits(FieldId::TcpDst, (*target_mask).into());
            matches.push(Match::new(&key, &mask));
        }
    }
    Some(matches)
}

fn prefix(text: &str) -> Option<(u32, u32)> {
    let (address, length) = text.split_once('/')?;
    let address: std::net::Ipv4Addr = address.parse().ok()?;
    Some((address.into(), length.parse().ok()?))
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once(" : ")?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

/// The prefixes that make up a range of ports.
fn prefixes(low: u16, high: u16) -> Vec<(u16, u16)> {
    let (mut at, end) = (u32::from(low), u32::from(high) + 1);
    let mut prefixes = Vec::new();
    while at < end {
        let room = 31 - (end - at).leading_zeros();
        let size = 1u32 << at.trailing_zeros().min(room).min(16);
        let value = u16::try_from(at).unwrap_or(u16::MAX);
        prefixes.push((value, u16::try_from(0x1_0000 - size).unwrap_or(0)));
        at += size;
    }
    prefixes
}
