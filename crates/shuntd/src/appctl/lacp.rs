//! The LACP actors of bonds, printed as by `ovs-vswitchd`.

use std::fmt::Write;

use shunt_lacp::{LacpInfo, ReceiveState};
use shunt_switch::{BondLacpStatus, BondMemberLacpStatus, BondStatus, mac_text};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "lacp/show" "[port]", 0..=1, Read, show, "Show the state of LACP on one bond, or on all bonds";
    "lacp/show-stats" "[port]", 0..=1, Read, statistics,
        "Show the counters of LACP of one bond, or of all bonds";
}

/// Handles `lacp/show`: shows the state of LACP on one bond, or on all bonds.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    text_of_bonds(methods, arguments, state)
}

/// Handles `lacp/show-stats`: shows the LACP counters of one or all bonds.
async fn statistics(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    text_of_bonds(methods, arguments, counters)
}

/// Returns the text of the named bond with LACP, or of all bonds with LACP by name.
fn text_of_bonds(
    methods: &DaemonMethods,
    arguments: &[String],
    text: fn(&BondStatus, &BondLacpStatus) -> String,
) -> Result<String, String> {
    let bridges = methods.switch.bridges().into_iter();
    let mut bonds: Vec<_> = bridges.flat_map(|bridge| bridge.bonds).collect();
    bonds.sort_by(|one, other| one.options.name.cmp(&other.options.name));
    let is_selected =
        |bond: &&BondStatus| arguments.first().is_none_or(|name| bond.options.name == *name);
    let texts: Vec<_> = bonds
        .iter()
        .filter(is_selected)
        .filter_map(|bond| Some(text(bond, bond.lacp_status.as_ref()?)))
        .collect();
    match texts.is_empty() && !arguments.is_empty() {
        // Programs compare this text, so the text is the same as from `ovs-vswitchd`.
        true => Err("no such lacp object".to_owned()),
        false => Ok(texts.concat()),
    }
}

/// Returns the text of `lacp/show` for a bond.
fn state(bond: &BondStatus, status: &BondLacpStatus) -> String {
    let settings = status.aggregator.settings;
    let negotiated = if status.is_negotiated() { " negotiated" } else { "" };
    let mut text = format!(
        "---- {} ----\n  status: {}{negotiated}\n  sys_id: {}\n  sys_priority: {}\n  \
         aggregation key: {}\n  lacp_time: {}\n",
        bond.options.name,
        bond.options.lacp.name(),
        mac_text(settings.system.mac),
        settings.system.priority,
        settings.key,
        settings.time.name(),
    );
    for (name, BondMemberLacpStatus { member, .. }) in members(bond) {
        let actor = member.actor;
        let attached = if member.unselected.is_none() { "attached" } else { "detached" };
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "\nmember: {name}: {} {attached}\n  port_id: {}\n  port_priority: {}\n  \
             may_enable: {}\n\n{}\n{}",
            receive(member.receive),
            actor.port,
            actor.port_priority,
            member.mux.is_distributing(),
            lines_of_end("actor", &actor),
            lines_of_end("partner", &member.partner),
        );
    }
    text
}

/// Returns the lines of one end of a link, actor or partner.
fn lines_of_end(name: &str, info: &LacpInfo) -> String {
    let flags = info.state.to_string();
    let space = if flags.is_empty() { "" } else { " " };
    format!(
        "  {name} sys_id: {}\n  {name} sys_priority: {}\n  {name} port_id: {}\n  \
         {name} port_priority: {}\n  {name} key: {}\n  {name} state:{space}{flags}\n",
        mac_text(info.system.mac),
        info.system.priority,
        info.port,
        info.port_priority,
        info.key,
    )
}

/// Returns the text of `lacp/show-stats` for a bond.
fn counters(bond: &BondStatus, _: &BondLacpStatus) -> String {
    let mut text = format!("---- {} statistics ----\n", bond.options.name);
    for (name, BondMemberLacpStatus { member, refused }) in members(bond) {
        let own = member.counters;
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "\nmember: {name}:\n  TX PDUs: {}\n  RX PDUs: {}\n  RX Bad PDUs: {}\n  \
             RX Marker Request PDUs: {}\n  Link Expired: {}\n  Link Defaulted: {}\n  \
             Carrier Status Changed: {}\n  RX Refused Frames: {refused}\n",
            own.tx_pdus,
            own.rx_pdus,
            own.rx_bad_pdus,
            own.rx_marker_requests,
            own.expired,
            own.defaulted,
            own.carrier_changes,
        );
    }
    text
}

/// Returns the members of a bond that use LACP, by name.
fn members(bond: &BondStatus) -> Vec<(&str, BondMemberLacpStatus)> {
    let all = bond.member_status.iter();
    let mut members: Vec<_> = all.filter_map(|own| Some((own.name.as_str(), own.lacp?))).collect();
    members.sort_by_key(|(name, _)| *name);
    members
}

/// Returns the name of a receive state.
///
/// `ovs-vswitchd` has no state for a link that is down: the state expires, and is then replaced by
/// defaults.
const fn receive(state: ReceiveState) -> &'static str {
    match state {
        ReceiveState::PortDisabled | ReceiveState::Defaulted => "defaulted",
        ReceiveState::Expired => "expired",
        ReceiveState::Current => "current",
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use shunt_lacp::{
        AggregatorSettings, AggregatorStatus, LacpCounters, LacpMemberStatus, LacpMode, LacpState,
        LacpTime, MemberId, MuxState, SystemId,
    };
    use shunt_switch::{
        BondMemberStatus,
        config::{BondLacp, BondOptions},
    };

    use super::*;

    /// The member a1 of the bond ba, as in the recorded output of Open vSwitch 3.1.
    fn bond() -> BondStatus {
        let state = LacpState::TIMEOUT
            .with(LacpState::AGGREGATION)
            .with(LacpState::SYNCHRONIZATION)
            .with(LacpState::COLLECTING)
            .with(LacpState::DISTRIBUTING);
        let info = |mac, key, port_priority, port, state| LacpInfo {
            system: SystemId { priority: 65_534, mac: [2, 0, 0, 0, 0, mac] },
            key,
            port_priority,
            port,
            state,
        };
        let member = LacpMemberStatus {
            member: MemberId(2),
            receive: ReceiveState::Current,
            mux: MuxState::CollectingDistributing,
            unselected: None,
            actor: info(0x0a, 1, 65_535, 2, state.with(LacpState::ACTIVITY)),
            partner: info(0x0b, 77, 5, 77, state),
            counters: LacpCounters { tx_pdus: 7, rx_pdus: 6, ..LacpCounters::default() },
        };
        let aggregator = AggregatorStatus {
            settings: AggregatorSettings {
                mode: LacpMode::Active,
                time: LacpTime::Fast,
                system: member.actor.system,
                key: NonZeroU16::MIN,
                fallback_ab: false,
            },
            lead: Some(MemberId(2)),
            members: vec![member],
        };
        let a1 = BondMemberStatus {
            name: "a1".to_owned(),
            may_enable: true,
            enabled: true,
            active: true,
            delay_ms: None,
            lacp: Some(BondMemberLacpStatus { member, refused: 9 }),
            buckets: Vec::new(),
            mac: [2, 0, 0, 0, 0, 10],
        };
        let options =
            BondOptions { name: "ba".to_owned(), lacp: BondLacp::Active, ..BondOptions::default() };
        BondStatus {
            options,
            lacp_status: Some(BondLacpStatus { aggregator }),
            rebalance_ms: None,
            member_status: vec![a1],
        }
    }

    #[test]
    fn lacp_is_shown_as_open_vswitch_shows_it() {
        let mut bond = bond();
        let status = bond.lacp_status.clone().unwrap();
        let expected = "---- ba ----\n  status: active negotiated\n  sys_id: 02:00:00:00:00:0a\n  \
            sys_priority: 65534\n  aggregation key: 1\n  lacp_time: fast\n\n\
            member: a1: current attached\n  port_id: 2\n  port_priority: 65535\n  \
            may_enable: true\n\n  actor sys_id: 02:00:00:00:00:0a\n  actor sys_priority: 65534\n  \
            actor port_id: 2\n  actor port_priority: 65535\n  actor key: 1\n  \
            actor state: activity timeout aggregation synchronized collecting distributing\n\n  \
            partner sys_id: 02:00:00:00:00:0b\n  partner sys_priority: 65534\n  \
            partner port_id: 77\n  partner port_priority: 5\n  partner key: 77\n  \
            partner state: timeout aggregation synchronized collecting distributing\n";
        assert_eq!(state(&bond, &status), expected);
        let lost =
            BondLacpStatus { aggregator: AggregatorStatus { lead: None, ..status.aggregator } };
        let member = &mut bond.member_status[0].lacp.as_mut().unwrap().member;
        (member.partner, member.receive) = (LacpInfo::default(), ReceiveState::Defaulted);
        member.unselected = Some(shunt_lacp::Unselected::NoPartner);
        let text = state(&bond, &lost);
        assert!(text.starts_with("---- ba ----\n  status: active\n"), "{text}");
        assert!(text.contains("\nmember: a1: defaulted detached\n"), "{text}");
        assert!(text.ends_with("  partner key: 0\n  partner state:\n"), "{text}");
    }

    #[test]
    fn lacp_counters_include_refused_frames() {
        let bond = bond();
        let expected = "---- ba statistics ----\n\nmember: a1:\n  TX PDUs: 7\n  RX PDUs: 6\n  \
            RX Bad PDUs: 0\n  RX Marker Request PDUs: 0\n  Link Expired: 0\n  Link Defaulted: 0\n  \
            Carrier Status Changed: 0\n  RX Refused Frames: 9\n";
        assert_eq!(counters(&bond, bond.lacp_status.as_ref().unwrap()), expected);
    }
}
