//! Generated groups and port settings.

use shunt_switch::config::{PortOptions, PortVlanMode};

use super::{Theme, actions::action, dice::Dice};

/// Number of groups.
pub(crate) const COUNT: usize = 5;

/// Returns a group that refers to lower groups only.
pub(crate) fn group(dice: &mut Dice, theme: Theme, number: usize) -> String {
    let kind = dice.pick(&["all", "all", "indirect", "ff", "select"]);
    let buckets_count = if kind == "indirect" { 1 } else { dice.pick(&[1, 2, 3]) };
    let mut text = format!("group_id={number},type={kind}");
    for place in 0..buckets_count {
        let protocol = dice.pick(&["", "ip", "tcp"]);
        let mut actions: Vec<String> =
            (0..dice.pick(&[1, 2, 3])).map(|_| action(dice, theme, protocol, 0)).collect();
        actions.retain(|action| !action.starts_with("group") && !action.starts_with("clone"));
        actions.push(format!("output:{}", dice.port()));
        if number > 1 && dice.percent(20) {
            actions.push(format!("group:{}", 1 + dice.below(number - 1)));
        }
        let head = match kind {
            "ff" => format!("watch_port:{},", dice.port()),
            // With several weighted buckets the choice depends on the hash.
            "select" => format!("weight:{},", u8::from(place == 0)),
            _ => String::new(),
        };
        text += &format!(",bucket={head}actions={}", actions.join(","));
    }
    text
}

/// Returns port settings such as `no-flood`.
pub(crate) fn port_mods(dice: &mut Dice, theme: Theme) -> Vec<[String; 2]> {
    if !theme.odd_ports || dice.percent(50) {
        return Vec::new();
    }
    // `no-packet-in` is a known difference.
    let change = dice.pick(&["no-flood", "no-forward", "no-receive"]);
    vec![[format!("p{}", dice.port()), change.to_owned()]]
}

/// Returns ports with the link down; port 6 then receives no frame.
pub(crate) fn links_down(dice: &mut Dice, theme: Theme) -> Vec<u32> {
    if theme.odd_ports && dice.percent(40) { vec![6] } else { Vec::new() }
}

/// Returns ports with VLAN settings.
pub(crate) fn vlans(dice: &mut Dice, theme: Theme) -> Vec<PortOptions> {
    if !theme.odd_ports || !theme.learns {
        return Vec::new();
    }
    let modes = [
        PortVlanMode::Access,
        PortVlanMode::Trunk,
        PortVlanMode::NativeTagged,
        PortVlanMode::NativeUntagged,
    ];
    let mut ports = Vec::new();
    for number in 1..=5 {
        if dice.percent(40) {
            continue;
        }
        let mode = dice.pick(&modes);
        let tag = (mode != PortVlanMode::Trunk).then(|| dice.pick(&[5, 7, 100]));
        let trunks = mode != PortVlanMode::Access && dice.percent(60);
        ports.push(PortOptions {
            name: format!("p{number}"),
            vlan_mode: Some(mode),
            tag,
            trunks: if trunks {
                dice.pick(&[&[5][..], &[5, 100], &[0, 7]]).to_vec()
            } else {
                Vec::new()
            },
            ..PortOptions::default()
        });
    }
    ports
}
