//! `ct` and its arguments: `nat`, and writes of a connection's mark and label.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shunt_flow::{
    FieldId,
    text::{NoPortNames, format_value, integer},
};

use super::{
    super::{
        RuleTextError, RuleTextProblem,
        number::{self, parse_as},
        slice::{Item, TextSlice},
        subfield::{self, Writes},
    },
    bits, format_list, header,
};
use crate::action::{Action, CtAction, CtZone, NatAction, NatKind, NatRange};

/// Parses `ct(commit,force,table=TABLE,zone=ZONE,nat(..),exec(..),alg=ALG)`.
pub(super) fn ct(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let mut ct = CtAction {
        commit: false,
        force: false,
        zone: CtZone::Number(0),
        table: None,
        alg: 0,
        actions: Box::default(),
    };
    let mut actions = Vec::new();
    // The first action that changes the connection; it requires `commit`.
    let mut needs_commit = None;
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        match item.name.text() {
            "commit" => {
                item.no_argument("commit")?;
                ct.commit = true;
            }
            "force" => {
                item.no_argument("force")?;
                ct.force = true;
                needs_commit = Some(item.name);
            }
            "zone" => ct.zone = zone(value)?,
            "table" => ct.table = Some(number::table(value)?),
            "alg" => ct.alg = alg(value)?,
            "nat" | "exec" => {
                let inner =
                    if item.name.text() == "nat" { vec![nat(value)?] } else { exec(value)? };
                if !inner.iter().all(is_lookup) {
                    needs_commit.get_or_insert(item.name);
                }
                actions.extend(inner);
            }
            _ => return Err(item.name.bad("ct", CT_FORM)),
        }
    }
    match needs_commit {
        Some(what) if !ct.commit => {
            let name = what.text().to_owned();
            Err(what.error(RuleTextProblem::CommitMissing { name }))
        }
        _ => {
            ct.actions = actions.into();
            Ok(Action::Ct(Box::new(ct)))
        }
    }
}

/// Returns whether an action inside `ct` is legal without `commit`.
///
/// `nat` without arguments repeats an earlier translation.
fn is_lookup(action: &Action) -> bool {
    matches!(action, Action::Nat(nat) if nat.kind.is_none())
}

/// Reads a zone: a number, or 16 bits of a field that hold the number.
fn zone(value: TextSlice<'_>) -> Result<CtZone, RuleTextError> {
    if integer(value.text()).is_some() {
        return parse_as(value, "a zone", u16::MAX).map(CtZone::Number);
    }
    let bits = subfield::parse(value)?;
    match subfield::require_short(bits).map_err(|problem| value.error(problem))? {
        bits if bits.width == 16 => Ok(CtZone::Field(bits)),
        _ => Err(value.bad("ct", "zone=NUMBER or zone=FIELD[..] with 16 bits")),
    }
}

/// Parses `alg` of `ct`.
fn alg(value: TextSlice<'_>) -> Result<u16, RuleTextError> {
    let named = ALGS.iter().find(|(name, _)| *name == value.text());
    named.map(|(_, alg)| *alg).ok_or_else(|| value.bad("ct", "alg=ftp or alg=tftp"))
}

/// Reads the actions in `exec(..)`.
fn exec(argument: TextSlice<'_>) -> Result<Vec<Action>, RuleTextError> {
    let mut actions = Vec::new();
    for item in argument.items() {
        actions.extend(inner(item?)?);
    }
    Ok(actions)
}

/// Parses an action inside `ct`.
fn inner(item: Item<'_>) -> Result<Vec<Action>, RuleTextError> {
    let argument = item.argument_or_end();
    match item.name.text().to_ascii_lowercase().as_str() {
        "load" => bits::load(argument, Writes::Connection),
        "move" => bits::parse_move(argument, Writes::Connection).map(|action| vec![action]),
        "set_field" => header::set_field(argument, Writes::Connection).map(|action| vec![action]),
        "nat" => nat(argument).map(|action| vec![action]),
        _ => {
            let name = item.name.text().to_owned();
            Err(item.name.error(RuleTextProblem::InsideCt { name }))
        }
    }
}

/// Parses `nat`, `nat(src)` or `nat(dst=ADDRESSES:PORTS,..)`.
fn nat(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let mut nat =
        NatAction { kind: None, range: None, persistent: false, hash: false, random: false };
    for item in argument.items() {
        let item = item?;
        let kind = match item.name.text() {
            "src" => NatKind::Source,
            "dst" => NatKind::Destination,
            flag => {
                let (name, flag) = match flag {
                    "persistent" => ("persistent", &mut nat.persistent),
                    "hash" => ("hash", &mut nat.hash),
                    "random" => ("random", &mut nat.random),
                    _ => return Err(item.name.bad("nat", NAT_FORM)),
                };
                item.no_argument(name)?;
                *flag = true;
                continue;
            }
        };
        if nat.kind.replace(kind).is_some() {
            return Err(item.name.bad("nat", NAT_FORM));
        }
        nat.range = item.argument.map(range).transpose()?;
    }
    let has_flags = nat.persistent || nat.hash || nat.random;
    if nat.hash && nat.random || has_flags && nat.range.is_none() {
        return Err(argument.bad("nat", NAT_FORM));
    }
    Ok(Action::Nat(Box::new(nat)))
}

/// Parses the addresses and ports of NAT, `FIRST[-LAST][:FIRST[-LAST]]`.
/// IPv6 addresses are in brackets if ports follow.
fn range(slice: TextSlice<'_>) -> Result<NatRange, RuleTextError> {
    let text = slice.text();
    let read = if let Some(rest) = text.strip_prefix('[') {
        split_brackets(rest)
    } else if text.matches(':').count() > 1 {
        pair::<Ipv6Addr>(text).map(|(first, last)| (first.into(), last.into(), None))
    } else {
        let (addresses, ports) = match text.split_once(':') {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (text, None),
        };
        pair::<Ipv4Addr>(addresses).map(|(first, last)| (first.into(), last.into(), ports))
    };
    let range = read.and_then(|(first, last, ports)| {
        let ports = match ports.map(pair::<u16>) {
            None => None,
            Some(ports) => Some(ports.filter(|(first, last)| 0 < *first && first <= last)?),
        };
        let ports = ports.map(|(first, last)| first..=last);
        Some(NatRange { addresses: first..=last, ports })
    });
    let in_order = |range: &NatRange| {
        let (first, last) = (range.addresses.start(), range.addresses.end());
        !first.is_unspecified() && first <= last
    };
    range.filter(in_order).ok_or_else(|| slice.bad("nat", RANGE_FORM))
}

/// Splits the text after the first `[` of `[FIRST]-[LAST]:PORTS`.
fn split_brackets(text: &str) -> Option<(IpAddr, IpAddr, Option<&str>)> {
    let (first, rest) = text.split_once(']')?;
    let (last, rest) = match rest.strip_prefix("-[") {
        Some(rest) => rest.split_once(']')?,
        None => (first, rest),
    };
    let ports = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
    let address = |text: &str| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    Some((address(first)?, address(last)?, ports))
}

/// Parses `FIRST-LAST`, or one value that is first and last.
fn pair<T: std::str::FromStr + Copy>(text: &str) -> Option<(T, T)> {
    match text.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(|only| (only, only)),
    }
}

/// Prints `ct`.
pub(super) fn format_ct(ct: &CtAction) -> String {
    let mut items = Vec::new();
    if ct.commit {
        items.push("commit".to_owned());
    }
    if ct.force {
        items.push("force".to_owned());
    }
    if let Some(table) = ct.table {
        items.push(format!("table={table}"));
    }
    match ct.zone {
        CtZone::Number(0) => {}
        CtZone::Number(zone) => items.push(format!("zone={zone}")),
        CtZone::Field(bits) => items.push(format!("zone={}", subfield::format(bits))),
    }
    let (nat, rest) = match &*ct.actions {
        [Action::Nat(nat), rest @ ..] => (Some(nat), rest),
        rest => (None, rest),
    };
    items.extend(nat.map(|nat| format_nat(nat)));
    if !rest.is_empty() {
        items.push(format!("exec({})", format_list(rest, &NoPortNames)));
    }
    if ct.alg != 0 {
        let named = ALGS.iter().find(|(_, alg)| *alg == ct.alg);
        let name = named.map_or_else(|| ct.alg.to_string(), |(name, _)| (*name).to_owned());
        items.push(format!("alg={name}"));
    }
    format!("ct({})", items.join(","))
}

/// Prints `nat`.
pub(super) fn format_nat(nat: &NatAction) -> String {
    let kind = match nat.kind {
        None => return "nat".to_owned(),
        Some(NatKind::Source) => "src",
        Some(NatKind::Destination) => "dst",
    };
    let range =
        nat.range.as_ref().map_or_else(String::new, |range| "=".to_owned() + &format_range(range));
    let flags = [(nat.persistent, ",persistent"), (nat.hash, ",hash"), (nat.random, ",random")];
    let flags: String = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
    format!("nat({kind}{range}{flags})")
}

/// Formats the range of a `nat` action.
fn format_range(range: &NatRange) -> String {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let text = format_value(FieldId::Ipv6Src, address.into(), u128::MAX);
            if range.ports.is_some() { format!("[{text}]") } else { text }
        }
    };
    let mut text = address(*range.addresses.start());
    if range.addresses.start() != range.addresses.end() {
        text = text + "-" + &address(*range.addresses.end());
    }
    match range.ports.as_ref().map(|ports| (*ports.start(), *ports.end())) {
        None => text,
        Some((first, last)) if first == last => format!("{text}:{first}"),
        Some((first, last)) => format!("{text}:{first}-{last}"),
    }
}

/// The application protocols of `alg=`, with their transport ports.
/// Connection tracking follows the connections of these protocols.
const ALGS: [(&str, u16); 2] = [("ftp", 21), ("tftp", 69)];
/// The form of a `ct` action, for error messages.
const CT_FORM: &str = "ct(commit,force,table=TABLE,zone=ZONE,nat(..),exec(..),alg=ALG)";
/// The form of a `nat` action, for error messages.
const NAT_FORM: &str = "nat, nat(src), nat(dst) or nat(src=ADDRESSES:PORTS,FLAGS), with the flags \
                        persistent, and hash or random";
/// The form of a range of addresses and ports, for error messages.
const RANGE_FORM: &str = "FIRST-LAST:PORT-PORT, the lower one first, IPv6 addresses with ports as \
                          [FIRST]-[LAST]:PORT-PORT";
