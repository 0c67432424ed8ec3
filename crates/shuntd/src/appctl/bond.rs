//! The bonds of the switch.

use std::fmt::Write;

use shunt_switch::{BondMemberChange, BondStatus, SwitchError, with_causes};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "bond/disable-member" "port member", 2..=2, Change, disable,
        "Disable a member of a bond at once, until its link changes";
    "bond/enable-member" "port member", 2..=2, Change, enable,
        "Enable a member of a bond at once, until its link changes";
    "bond/list" "", 0..=0, Read, list, "List the bonds with their members";
    "bond/set-active-member" "port member", 2..=2, Change, activate,
        "Make a member the active one of its bond";
    "bond/show" "[port]", 0..=1, Read, show, "Show the state of one bond, or of all bonds";
}

/// Returns the present name of a command.
///
/// `ovs-vswitchd` still accepts some old names, without listing them.
pub(super) fn present_name(name: &str) -> &str {
    match name {
        "bond/disable-slave" => "bond/disable-member",
        "bond/enable-slave" => "bond/enable-member",
        "bond/set-active-slave" => "bond/set-active-member",
        name => name,
    }
}

async fn activate(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    change(methods, arguments, BondMemberChange::Activate, "done").await
}

async fn enable(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    change(methods, arguments, BondMemberChange::Enable, "enabled").await
}

async fn disable(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    change(methods, arguments, BondMemberChange::Disable, "disabled").await
}

async fn change(
    methods: &DaemonMethods,
    arguments: &[String],
    change: BondMemberChange,
    done: &str,
) -> Result<String, String> {
    let [bond, member] = arguments else { return Err("give a bond and a member".to_owned()) };
    match methods.switch.change_bond_member(bond, member, change).await {
        Ok(()) => Ok(done.to_owned()),
        // The words of `ovs-vswitchd`, which programs compare.
        Err(SwitchError::NoSuchBond { .. }) => Err(NO_BOND.to_owned()),
        Err(SwitchError::NoSuchMember { .. }) => Err("no such member".to_owned()),
        Err(SwitchError::MemberDisabled { .. }) => {
            Err("cannot make disabled member active".to_owned())
        }
        Err(error) => Err(with_causes(&error)),
    }
}

const NO_BOND: &str = "no such bond";

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

async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let mut bonds = bonds(methods);
    if let Some(name) = arguments.first() {
        bonds.retain(|bond| bond.options.name == *name);
        if bonds.is_empty() {
            return Err(NO_BOND.to_owned());
        }
    }
    Ok(bonds.iter().map(shown).collect())
}

/// Returns the bonds of all bridges, by name.
fn bonds(methods: &DaemonMethods) -> Vec<BondStatus> {
    let bridges = methods.switch.bridges().into_iter();
    let mut bonds: Vec<_> = bridges.flat_map(|bridge| bridge.bonds).collect();
    bonds.sort_by(|one, other| one.options.name.cmp(&other.options.name));
    bonds
}

fn shown(bond: &BondStatus) -> String {
    let options = &bond.options;
    let active = bond.member_status.iter().find(|member| member.active);
    let address = active.map_or_else(
        || "00:00:00:00:00:00(none)".to_owned(),
        |member| format!("{}({})", mac(member.mac), member.name),
    );
    let primary = Some(options.primary.as_str()).filter(|name| !name.is_empty());
    let mut text = format!(
        "---- {} ----\nbond_mode: {}\nbond may use recirculation: no, Recirc-ID : -1\n\
         bond-hash-basis: 0\nlb_output action: disabled, bond-id: -1\nupdelay: {} ms\n\
         downdelay: {} ms\nlacp_status: off\nlacp_fallback_ab: false\n\
         active-backup primary: {}\nactive member mac: {address}\n\n",
        options.name,
        options.mode.name(),
        options.updelay_ms,
        options.downdelay_ms,
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
        let _ = writeln!(text, "  may_enable: {}\n", member.link_up);
    }
    text
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use shunt_switch::{BondMemberStatus, config::BondOptions};

    use super::*;

    #[test]
    fn a_bond_is_shown_as_open_vswitch_shows_it() {
        let member = |name: &str, enabled, delay_ms| BondMemberStatus {
            name: name.to_owned(),
            link_up: name == "p2",
            enabled,
            active: name == "p2",
            delay_ms,
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
        let bond = BondStatus { options, member_status: members };
        let expected = "---- bond0 ----\nbond_mode: active-backup\n\
            bond may use recirculation: no, Recirc-ID : -1\nbond-hash-basis: 0\n\
            lb_output action: disabled, bond-id: -1\nupdelay: 500 ms\ndowndelay: 5000 ms\n\
            lacp_status: off\nlacp_fallback_ab: false\nactive-backup primary: <none>\n\
            active member mac: 02:00:00:00:00:0a(p2)\n\nmember p1: enabled\n  \
            downdelay expires in 3992 ms\n  may_enable: false\n\nmember p2: enabled\n  \
            active member\n  may_enable: true\n\n";
        assert_eq!(shown(&bond), expected);
    }
}
