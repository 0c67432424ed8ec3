//! Cases that a seed makes: a few tables of rules that refer to each other, groups, and frames that
//! are likely to meet them.
//!
//! A case has a theme, so that what is odd together comes together often, and what is known to
//! differ (docs/conformance.md) stays apart.

mod actions;
mod dice;
mod frames;
mod groups;
mod normal;
mod rules;

use crate::case::Case;
use dice::Dice;

/// Tables of a case.
const TABLES: usize = 5;
const PACKETS: usize = 8;

/// What comes together in a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// The most VLAN tags of a frame.
    tags_max: usize,
    /// Frames with MPLS labels, and rules about them.
    labels: bool,
    /// Labels are pushed; else they are popped.
    pushes: bool,
    /// `NORMAL`, and rules that packets teach.
    learns: bool,
    /// Ports with VLANs, or without a link.
    odd_ports: bool,
    /// Broken frames.
    broken: bool,
    /// Frames that are cut by outputs; then no tag or label is pushed.
    cuts: bool,
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tables, groups and actions of all kinds.
    Tables,
    /// `NORMAL`, and the ports that it knows.
    Normal,
}

impl Kind {
    /// All of them, by name.
    pub(crate) const ALL: [(&str, Self); 2] = [("tables", Self::Tables), ("normal", Self::Normal)];

    /// The case of a seed.
    pub(crate) fn generate(self, seed: u64) -> Case {
        match self {
            Self::Tables => tables(seed),
            Self::Normal => normal::generate(seed),
        }
    }
}

fn tables(seed: u64) -> Case {
    let dice = &mut Dice::new(seed);
    let theme = Theme {
        tags_max: dice.pick(&[1, 1, 2]),
        labels: dice.percent(35),
        pushes: dice.percent(50),
        learns: dice.percent(40),
        odd_ports: dice.percent(20),
        broken: dice.percent(15),
        cuts: dice.percent(10),
    };
    let meters = (1..3).map(|number| {
        format!("meter={number} pktps burst stats band=type=drop rate=100000 burst_size=10000")
    });
    let down = groups::links_down(dice, theme);
    Case {
        id: format!("seed-{seed}"),
        stateless: !theme.learns,
        port_mods: groups::port_mods(dice, theme),
        down: down.clone(),
        vlans: groups::vlans(dice, theme),
        meters: meters.collect(),
        groups: (1..=groups::COUNT).map(|number| groups::group(dice, theme, number)).collect(),
        flows: rules::rules(dice, theme),
        packets: (0..PACKETS)
            .map(|_| frames::packet(dice, theme))
            .filter(|packet| !down.contains(&packet.in_port))
            .collect(),
        ..Case::default()
    }
}
