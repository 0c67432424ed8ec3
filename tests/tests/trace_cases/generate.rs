//! Cases generated from a seed: a few tables of rules that refer to each other, groups, and
//! matching frames.
//!
//! A case has a theme, so that rare features often meet in one case, and known differences
//! (docs/conformance.md) stay separate.

mod actions;
mod dice;
mod frames;
mod groups;
mod mirrors;
mod normal;
mod rules;

use crate::case::Case;
use dice::Dice;

/// Number of tables in a case.
const TABLES: usize = 5;
const PACKETS: usize = 8;

/// The features of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Maximum number of VLAN tags in a frame.
    tags_max: usize,
    /// Frames with MPLS labels, and rules that match them.
    labels: bool,
    /// True if labels are pushed; false if they are popped.
    pushes: bool,
    /// `NORMAL`, and rules learned from packets.
    learns: bool,
    /// Ports with VLAN settings, or without a link.
    odd_ports: bool,
    /// Some frames are malformed.
    broken: bool,
    /// Frames that outputs truncate. Then no tag or label is pushed.
    cuts: bool,
}

/// The subject of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tables, groups and actions of all kinds.
    Tables,
    /// `NORMAL`, and its port settings.
    Normal,
    /// The other kinds, with mirrors.
    Mirrors,
}

impl Kind {
    /// All kinds with their names.
    pub(crate) const ALL: [(&str, Self); 3] =
        [("tables", Self::Tables), ("normal", Self::Normal), ("mirrors", Self::Mirrors)];

    /// Returns the case of a seed.
    pub(crate) fn generate(self, seed: u64) -> Case {
        match self {
            Self::Tables => tables(seed),
            Self::Normal => normal::generate(seed),
            Self::Mirrors => mirrors::generate(seed),
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
