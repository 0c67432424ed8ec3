//! Commands for the bonds of the switch.

use std::fmt::Write;

use shunt_switch::{
    BondLacpStatus, BondMemberChange, BondMemberStatus, BondStatus, SwitchError, bond_bucket,
    config::BondMode, with_causes,
};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "bond/disable-member" "port member", 2..=2, Change, disable,
        "Disable a member of a bond at once, until its link changes";
    "bond/enable-member" "port member", 2..=2, Change, enable,
        "Enable a member of a bond at once, until its link changes";
    "bond/hash" "mac [vlan] [basis]", 1..=3, Read, hash,
        "Show the bucket of a source address in a VLAN, for bonds in the mode balance-slb";
    "bond/list" "", 0..=0, Read, list, "List the bonds with their members";
    "bond/migrate" "port hash member", 3..=3, Change, migrate,
        "Give a bucket of a bond in the mode balance-slb to a member";
    "bond/set-active-member" "port member", 2..=2, Change, activate,
        "Make a member the active one of its bond";
    "bond/show" "[port]", 0..=1, Read, show, "Show the state of one bond, or of all bonds";
}

/// Returns the present name of a command.
///
/// `ovs-vswitchd` still accepts some old command names, without listing them.
pub(super) fn present_name(name: &str) -> &str {
    match name {
        "bond/disable-slave" => "bond/disable-member",
        "bond/enable-slave" => "bond/enable-member",
        "bond/set-active-slave" => "bond/set-active-member",
        name => name,
    }
}

/// Handles `bond/set-active-member`: makes a member the active one of its bond.
async fn activate(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    change_member(methods, arguments, BondMemberChange::Activate, "done").await
}

/// Handles `bond/enable-member`: enables a member of a bond at once.
async fn enable(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    change_member(methods, arguments, BondMemberChange::Enable, "enabled").await
}

/// Handles `bond/disable-member`: disables a member of a bond at once.
async fn disable(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    change_member(methods, arguments, BondMemberChange::Disable, "disabled").await
}

/// Handles `bond/migrate`: moves a bucket of a balance-slb bond to a member.
async fn migrate(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bond, bucket, member] = arguments else {
        return Err("give a bond, a hash and a member".to_owned());
    };
    let bucket = bucket.parse::<u32>().map_err(|_| "bad hash".to_owned())?;
    let [.., bucket] = bucket.to_be_bytes();
    let own = [bond.clone(), member.clone()];
    let result =
        change_member(methods, &own, BondMemberChange::TakeBucket(bucket), "migrated").await;
    let is_disabled = |error: &String| error == DISABLED;
    result.map_err(|error| {
        if is_disabled(&error) { "cannot migrate to disabled member".to_owned() } else { error }
    })
}

/// Handles `bond/hash`: shows the bucket of a source address in a VLAN.
async fn hash(_: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bytes = arguments.first().map(|text| text.split(':').collect::<Vec<_>>());
    let bytes: Vec<u8> = bytes
        .into_iter()
        .flatten()
        .map(|byte| u8::from_str_radix(byte, 16).map_err(|_| "invalid mac".to_owned()))
        .collect::<Result<_, _>>()?;
    let mac = bytes.try_into().map_err(|_| "invalid mac".to_owned())?;
    let vlan = match arguments.get(1) {
        Some(text) => text.parse().map_err(|_| "invalid vlan".to_owned())?,
        None => 0,
    };
    let basis = match arguments.get(2) {
        Some(text) => text.parse().map_err(|_| "invalid basis".to_owned())?,
        None => 0,
    };
    Ok(bond_bucket(mac, vlan, basis).to_string())
}

/// Changes a member of a bond, and answers with `done`.
async fn change_member(
    methods: &DaemonMethods,
    arguments: &[String],
    change: BondMemberChange,
    done: &str,
) -> Result<String, String> {
    let [bond, member] = arguments else { return Err("give a bond and a member".to_owned()) };
    match methods.switch.change_bond_member(bond, member, change).await {
        Ok(()) => Ok(done.to_owned()),
        // Programs compare this text, so the text is the same as from `ovs-vswitchd`.
        Err(SwitchError::NoSuchBond { .. }) => Err(NO_BOND.to_owned()),
        Err(SwitchError::NoSuchMember { .. }) => Err("no such member".to_owned()),
        Err(SwitchError::MemberDisabled { .. }) => Err(DISABLED.to_owned()),
        Err(SwitchError::BondWithoutBuckets { .. }) => Err("not an SLB bond".to_owned()),
        Err(error) => Err(with_causes(&error)),
    }
}

/// The message of Open vSwitch for an unknown bond.
const NO_BOND: &str = "no such bond";
/// The message of Open vSwitch for a member that is disabled.
const DISABLED: &str = "cannot make disabled member active";

/// Handles `bond/list`: lists the bonds with their members.
async fn list(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let mut text = "bond\ttype\trecircID\tmembers\n".to_owned();
    for bond in bonds(methods) {
        let options = &bond.options;
        let mut members = options.members.clone();
        members.sort();
        let (name, mode) = (&options.name, options.mode.name());
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{name}\t{mode}\t0\t{}", members.join(", "));
    }
    Ok(text)
}

/// Handles `bond/show`: shows the state of one bond, or of all bonds.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let mut bonds = bonds(methods);
    if let Some(name) = arguments.first() {
        bonds.retain(|bond| bond.options.name == *name);
        if bonds.is_empty() {
            return Err(NO_BOND.to_owned());
        }
    }
    Ok(bonds.iter().map(bond_text).collect())
}

/// Returns the bonds of all bridges, ordered by name.
fn bonds(methods: &DaemonMethods) -> Vec<BondStatus> {
    let bridges = methods.switch.bridges().into_iter();
    let mut bonds: Vec<_> = bridges.flat_map(|bridge| bridge.bonds).collect();
    bonds.sort_by(|one, other| one.options.name.cmp(&other.options.name));
    bonds
}

/// Formats a bond as `bond/show` does.
fn bond_text(bond: &BondStatus) -> String {
    let options = &bond.options;
    let active = bond.member_status.iter().find(|member| member.active);
    let address = active.map_or_else(
        || "00:00:00:00:00:00(none)".to_owned(),
        |member| format!("{}({})", mac(member.mac), member.name),
    );
    let primary = Some(options.primary.as_str()).filter(|name| !name.is_empty());
    let balances = options.mode == BondMode::BalanceSlb;
    let all = if balances { "all members active: false\n" } else { "" };
    let next = bond.rebalance_ms.map(|due| format!("next rebalance: {due} ms\n"));
    let next = next.unwrap_or_default();
    let lacp = bond.lacp_status.as_ref().map_or("off", BondLacpStatus::name);
    let mut text = format!(
        "---- {} ----\nbond_mode: {}\nbond may use recirculation: no, Recirc-ID : -1\n\
         bond-hash-basis: {}\nlb_output action: disabled, bond-id: -1\n{all}updelay: {} ms\n\
         downdelay: {} ms\n{next}lacp_status: {lacp}\nlacp_fallback_ab: {}\n\
         active-backup primary: {}\nactive member mac: {address}\n\n",
        options.name,
        options.mode.name(),
        options.hash_basis,
        options.updelay_ms,
        options.downdelay_ms,
        options.lacp_fallback_ab,
        primary.unwrap_or("<none>"),
    );
    let mut members: Vec<_> = bond.member_status.iter().collect();
    members.sort_by_key(|member| &member.name);
    for member in members {
        let state = if member.enabled { "enabled" } else { "disabled" };
        // Writing to a text cannot fail.
        let _ = writeln!(text, "member {}: {state}", member.name);
        if member.active {
            text.push_str("  active member\n");
        }
        if let Some(delay) = member.delay_ms {
            let kind = if member.enabled { "downdelay" } else { "updelay" };
            let _ = writeln!(text, "  {kind} expires in {delay} ms");
        }
        let _ = writeln!(text, "  may_enable: {}", member.may_enable);
        text.push_str(&loads(member));
        text.push('\n');
    }
    text
}

/// Returns the lines of a member's buckets that have a load.
fn loads(member: &BondMemberStatus) -> String {
    let loads = member.buckets.iter().map(|own| (own.bucket, own.load_bytes / 1024));
    let line = |(bucket, load)| format!("  hash {bucket}: {load} kB load\n");
    loads.filter(|(_, load)| *load > 0).map(line).collect()
}

/// Returns a MAC address as text.
fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use shunt_switch::{BondBucketStatus, config::BondOptions};

    use super::*;

    #[test]
    fn bond_is_shown_like_open_vswitch() {
        let member = |name: &str, enabled, delay_ms| BondMemberStatus {
            name: name.to_owned(),
            may_enable: name == "p2",
            enabled,
            active: name == "p2",
            delay_ms,
            lacp: None,
            buckets: Vec::new(),
            mac: [2, 0, 0, 0, 0, 10],
        };
        let options = BondOptions {
            name: "bond0".to_owned(),
            members: vec!["p2".to_owned(), "p1".to_owned()],
            updelay_ms: 500,
            downdelay_ms: 5000,
            ..BondOptions::default()
        };
        let members = vec![member("p2", true, None), member("p1", true, Some(3992))];
        let mut bond =
            BondStatus { options, lacp_status: None, rebalance_ms: None, member_status: members };
        let expected = "---- bond0 ----\nbond_mode: active-backup\n\
            bond may use recirculation: no, Recirc-ID : -1\nbond-hash-basis: 0\n\
            lb_output action: disabled, bond-id: -1\nupdelay: 500 ms\ndowndelay: 5000 ms\n\
            lacp_status: off\nlacp_fallback_ab: false\nactive-backup primary: <none>\n\
            active member mac: 02:00:00:00:00:0a(p2)\n\nmember p1: enabled\n  \
            downdelay expires in 3992 ms\n  may_enable: false\n\nmember p2: enabled\n  \
            active member\n  may_enable: true\n\n";
        assert_eq!(bond_text(&bond), expected);
        bond.options.mode = BondMode::BalanceSlb;
        (bond.options.hash_basis, bond.rebalance_ms) = (5, Some(466));
        let load = |bucket, load_bytes| BondBucketStatus { bucket, load_bytes };
        bond.member_status[0].buckets = vec![load(20, 61_500), load(22, 1023)];
        let text = bond_text(&bond);
        assert!(text.contains("\nbond-hash-basis: 5\nlb_output action: disabled, bond-id: -1\nall members active: false\nupdelay: 500 ms\ndowndelay: 5000 ms\nnext rebalance: 466 ms\nlacp_status: off\n"), "{text}");
        assert!(text.ends_with("  may_enable: true\n  hash 20: 60 kB load\n\n"), "{text}");
    }
}
