//! Bonds from the rows of an OVSDB database: rows of `Port` with several interfaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::{
    BondMemberChange, BondMemberStatus, Switch,
    config::{
        BondLacp, BondLacpTime, BondMode, BondOptions, BridgeOptions, PortOptions, PriorityTags,
        QinqEthtype,
    },
    mac_text, with_causes,
};
use tracing::info;

use super::desired::{DesiredBridge, DesiredBridges};

/// The reason why `priority-tags` of a bond has no effect.
const BOND_PRIORITY_TAGS: &str =
    "other_config:priority-tags has no effect: a bond sends no priority tags, remove it";

/// The rows of all bonds, which each pass reads again.
#[derive(Debug, Default)]
pub(super) struct BondRows {
    /// Rows in `Port` with several interfaces.
    pub(super) ports: BTreeSet<RowUuid>,
    /// Rows in `Interface` of the members.
    pub(super) interfaces: BTreeSet<RowUuid>,
}

impl DesiredBridges {
    /// Adds a bond with its members; the members get the VLANs of the bond.
    pub(super) fn add_bond(
        &mut self,
        snapshot: &DatabaseSnapshot,
        bridge: &mut DesiredBridge,
        row: RowView<'_>,
        interfaces: &[RowView<'_>],
    ) {
        self.bonds.ports.insert(row.uuid());
        for interface in interfaces.iter().map(RowView::uuid) {
            let is_local = |own: &DesiredBridge| own.local == Some(interface);
            bridge.has_dependent_ports |= !self.bonds.interfaces.insert(interface)
                || self.readings.port_of(interface).is_some()
                || is_local(bridge)
                || self.bridges.values().any(is_local);
        }
        let mut members = Vec::new();
        let mut vlans = PortOptions::default();
        for interface in interfaces {
            if let Some(mut member) = self.desired_port(snapshot, row, *interface) {
                if let Some(reason) = member.refused_vlans.take() {
                    self.refused_interfaces.insert(interface.uuid(), reason);
                    continue;
                }
                vlans = (*member.options).clone();
                let options = Arc::make_mut(&mut member.options);
                (options.vlan_mode, options.tag) = (None, None);
                options.trunks.clear();
                options.cvlans.clear();
                options.qinq_ethtype = QinqEthtype::Dot1ad;
                options.priority_tags = PriorityTags::Never;
                members.push(member);
            }
        }
        match bond(row, interfaces, &vlans) {
            Ok(bond) => {
                let without_effect = setting_without_effect(row).map(str::to_owned);
                let has_tags = vlans.priority_tags != PriorityTags::Never;
                let tags = has_tags.then(|| BOND_PRIORITY_TAGS.to_owned());
                let reasons = without_effect.into_iter().chain(wrong_system_id(row)).chain(tags);
                for reason in reasons {
                    interfaces.iter().for_each(|own| self.refuse_setting(own.uuid(), &reason));
                }
                let active = row.string("bond_active_slave");
                let active = active.map(|address| (bond.name.clone(), address.to_owned()));
                bridge.last_active.extend(active);
                bridge.options.bonds.push(bond);
                let named = members.into_iter().map(|port| (port.options.name.clone(), port));
                bridge.ports.extend(named);
            }
            Err(reason) => {
                let rows = interfaces.iter().map(|interface| (interface.uuid(), reason.clone()));
                self.refused_interfaces.extend(rows);
            }
        }
    }
}

/// Reads the bond of a row of `Port` with several interfaces.
///
/// `vlans` has the VLANs of the row. Members are sorted by name, because a set of rows has no
/// order.
///
/// # Errors
///
/// The reason why the switch refuses the bond of the row.
fn bond(
    row: RowView<'_>,
    interfaces: &[RowView<'_>],
    vlans: &PortOptions,
) -> Result<BondOptions, String> {
    let name = row.string("name").unwrap_or_default();
    let mode = match row.string("bond_mode") {
        None | Some("active-backup") => BondMode::ActiveBackup,
        Some("balance-slb") => BondMode::BalanceSlb,
        Some("balance-tcp") => BondMode::BalanceTcp,
        Some(mode) => {
            let modes = "active-backup, balance-slb or balance-tcp";
            return Err(format!("bond_mode {mode} is not supported: use {modes}"));
        }
    };
    if row.boolean("bond_fake_iface") == Some(true) {
        return Err("bond_fake_iface is not supported: set it to false".to_owned());
    }
    let names = interfaces.iter().filter_map(|interface| interface.string("name"));
    let mut members: Vec<String> = names.map(str::to_owned).collect();
    members.sort_unstable();
    let primary = row.entry("other_config", "bond-primary").unwrap_or_default();
    let other = |key| row.entry("other_config", key).and_then(|text| text.parse::<u32>().ok());
    let interval = other("bond-rebalance-interval").unwrap_or(10_000);
    let delay = |column| milliseconds(row.integer(column).unwrap_or_default());
    let lacp = lacp(row, interfaces)?;
    Ok(BondOptions {
        name: name.to_owned(),
        mode,
        hash_basis: other("bond-hash-basis").unwrap_or_default(),
        // As in Open vSwitch, an interval below one second is replaced by one second.
        rebalance_interval_ms: if interval == 0 { 0 } else { interval.max(1000) },
        // As in Open vSwitch, a name that is not the name of a member has no effect.
        primary: Some(primary.to_owned()).filter(|own| members.contains(own)).unwrap_or_default(),
        members,
        updelay_ms: delay("bond_updelay"),
        downdelay_ms: delay("bond_downdelay"),
        vlan_mode: vlans.vlan_mode,
        tag: vlans.tag,
        trunks: vlans.trunks.clone(),
        cvlans: vlans.cvlans.clone(),
        qinq_ethtype: vlans.qinq_ethtype,
        ..lacp
    })
}

/// Returns a delay in milliseconds; a negative value means no delay.
fn milliseconds(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Returns the reason why a bond setting of a row has no effect;
/// `None` if all have.
fn setting_without_effect(row: RowView<'_>) -> Option<&'static str> {
    let detects_by = row.entry("other_config", "bond-detect-mode");
    let has_interval = row.entry("other_config", "bond-miimon-interval").is_some();
    (detects_by == Some("miimon") || has_interval).then_some(
        "bond-detect-mode miimon and bond-miimon-interval have no effect: events of the system report \
         the carrier of each member; remove both",
    )
}

/// Makes the members of new bonds active that were active before a restart.
///
/// `known` has the bonds that existed before. `last_active` has the MAC addresses of members, by
/// bond name. No other column of the database names the active member.
pub(super) async fn keep_active_members(
    switch: &Switch,
    known: &BTreeSet<String>,
    last_active: &BTreeMap<String, String>,
) {
    if last_active.keys().all(|bond| known.contains(bond)) {
        return;
    }
    let bridges = switch.bridges();
    for bond in bridges.iter().flat_map(|bridge| &bridge.bonds) {
        let name = &bond.options.name;
        let Some(address) = last_active.get(name).filter(|_| !known.contains(name)) else {
            continue;
        };
        let has_address = |own: &&BondMemberStatus| mac_text(own.mac) == *address;
        let member = bond.member_status.iter().find(has_address);
        let Some(member) = member.filter(|member| !member.active) else { continue };
        let change = BondMemberChange::Activate;
        if let Err(error) = switch.change_bond_member(name, &member.name, change).await {
            info!(
                "bond {name}: the member that was active before the start cannot be active now: {}",
                with_causes(&error)
            );
        }
    }
}

/// Reads the LACP options from a row of `Port` and from its interfaces.
///
/// As in Open vSwitch, a number that is out of range has no effect.
fn lacp(row: RowView<'_>, interfaces: &[RowView<'_>]) -> Result<BondOptions, String> {
    let other = |key| row.entry("other_config", key);
    let defaults = BondOptions::default();
    let lacp = match row.string("lacp") {
        None | Some("off") => BondLacp::Off,
        Some("active") => BondLacp::Active,
        Some("passive") => BondLacp::Passive,
        Some(mode) => return Err(format!("lacp {mode} is not supported: use active or passive")),
    };
    let numbers = |key: &str| -> BTreeMap<String, u16> {
        let number = |own: &RowView<'_>| {
            Some((own.string("name")?.to_owned(), positive_number(own.entry("other_config", key))?))
        };
        interfaces.iter().filter_map(number).collect()
    };
    let system = other("lacp-system-id").filter(|text| BondOptions::is_lacp_system_id(text));
    Ok(BondOptions {
        lacp,
        lacp_time: match other("lacp-time") {
            Some("fast") => BondLacpTime::Fast,
            _ => BondLacpTime::Slow,
        },
        lacp_system_id: system.unwrap_or_default().to_owned(),
        lacp_system_priority: positive_number(other("lacp-system-priority"))
            .unwrap_or(defaults.lacp_system_priority),
        lacp_fallback_ab: other("lacp-fallback-ab") == Some("true"),
        lacp_port_id: numbers("lacp-port-id"),
        lacp_port_priority: numbers("lacp-port-priority"),
        lacp_aggregation_key: numbers("lacp-aggregation-key"),
        ..defaults
    })
}

/// Returns why the `lacp-system-id` of a row has no effect; `None` if it is valid.
fn wrong_system_id(row: RowView<'_>) -> Option<String> {
    let text = row.entry("other_config", "lacp-system-id")?;
    let example = "02:00:00:00:00:01";
    (!BondOptions::is_lacp_system_id(text)).then(|| {
        format!("lacp-system-id {text} has no effect: write a unicast MAC address, like {example}")
    })
}

/// Returns a number from 1 to 65535; `None` for any other text.
fn positive_number(text: Option<&str>) -> Option<u16> {
    text?.parse().ok().filter(|number| *number > 0)
}

/// Returns the interfaces of a row of `Port`.
pub(super) fn interfaces<'a>(
    snapshot: &'a DatabaseSnapshot,
    port: RowView<'a>,
) -> Vec<RowView<'a>> {
    port.uuids("interfaces").filter_map(|uuid| snapshot.row("Interface", uuid)).collect()
}

/// Removes bonds that the switch refuses, together with their members.
///
/// Without the bond, the members would be separate ports, and close a loop. `refused` gets the
/// reasons, by row in `Interface`.
pub(super) fn refuse_wrong_bonds(
    bridge: &mut DesiredBridge,
    refused: &mut BTreeMap<RowUuid, String>,
) {
    for bond in std::mem::take(&mut bridge.options.bonds) {
        let (name, members) = (bond.name.clone(), bond.members.clone());
        bridge.options.bonds.push(bond);
        // No other port can make this bond wrong, and a bridge may have thousands.
        let names: BTreeSet<&String> = members.iter().chain([&name]).collect();
        let ports = names.into_iter().filter_map(|name| bridge.ports.get(name));
        let ports = ports.map(|port| (*port.options).clone()).collect();
        let whole = BridgeOptions { ports, ..bridge.options.clone() };
        if let Err(error) = whole.check_bonds() {
            bridge.options.bonds.pop();
            let kept = |name: &&String| {
                !bridge.options.bonds.iter().any(|bond| bond.members.contains(name))
            };
            let members = members.iter().filter(kept);
            let rows: Vec<_> = members.filter_map(|name| bridge.ports.remove(name)).collect();
            let reason = with_causes(&*error.problem);
            refused.extend(rows.into_iter().map(|port| (port.interface, reason.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_limited_to_32_bits() {
        let values = [-5, 0, 7, 4_294_967_295, 4_294_967_296, i64::MAX];
        assert_eq!(values.map(milliseconds), [0, 0, 7, u32::MAX, u32::MAX, u32::MAX]);
    }
}
