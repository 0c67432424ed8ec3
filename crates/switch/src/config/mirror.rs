//! The configuration of mirrors.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shunt_pipeline::{Mirror, MirrorOutput, MirroredPorts};

use crate::{config::ConfigError, error::SwitchError};

/// The options of a mirror, with the names of the table `Mirror` of OVSDB.
///
/// A named port that does not exist selects no packets until it is added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorOptions {
    /// Name: unique in the bridge.
    pub name: String,
    /// Copies the packets that arrive or leave on any port.
    pub select_all: bool,
    /// Ports of which received packets are copied.
    pub select_src_port: Vec<String>,
    /// Ports of which sent packets are copied.
    pub select_dst_port: Vec<String>,
    /// VLANs of the packets that are copied, 0 for untagged packets; empty: all VLANs.
    pub select_vlan: Vec<u16>,
    /// Port to which the copies are sent; the port is reserved for copies.
    pub output_port: String,
    /// VLAN in which the copies are flooded; 0: none.
    pub output_vlan: u16,
    /// Maximum length of a copy in bytes; 0: no limit.
    pub snaplen: u32,
}

impl MirrorOptions {
    /// Maximum number of mirrors of a bridge.
    pub const COUNT_MAX: usize = Mirror::COUNT_MAX;

    /// Checks the options that concern this mirror alone.
    ///
    /// # Errors
    ///
    /// The first mistake, with the key of the option.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, problem| {
            let mirror = self.name.clone();
            Err(ConfigError::at(key, SwitchError::MirrorSetting { mirror, problem }))
        };
        let has_ports = !self.select_src_port.is_empty() || !self.select_dst_port.is_empty();
        match (self.output_port.is_empty(), self.output_vlan) {
            _ if self.name.is_empty() => return wrong("name", "give the mirror a `name`"),
            _ if self.select_all && has_ports => {
                return wrong(
                    "select_all",
                    "`select_all` selects every port: remove it, or the lists of ports",
                );
            }
            (true, 0) => {
                return wrong(
                    "output_port",
                    "give the mirror an `output_port` or an `output_vlan`",
                );
            }
            (false, 1..) => {
                return wrong(
                    "output_vlan",
                    "the mirror has an `output_port` too: remove one of the two keys",
                );
            }
            _ => {}
        }
        let range = ConfigError::check_range;
        for vlan in &self.select_vlan {
            range("select_vlan", vlan.to_string(), *vlan <= VLAN_MAX, "from 0 to 4095")?;
        }
        let (vlan, snaplen) = (self.output_vlan, self.snaplen);
        range("output_vlan", vlan.to_string(), vlan <= VLAN_MAX, "from 1 to 4095, or 0 for none")?;
        let is_possible = snaplen == 0 || (SNAPLEN_MIN..=SNAPLEN_MAX).contains(&snaplen);
        range("snaplen", snaplen.to_string(), is_possible, "from 14 to 65535, or 0 for no limit")
    }

    /// Returns the mirror in the form that the tables use.
    #[must_use]
    pub fn mirror(&self) -> Mirror {
        let names = |ports: &[String]| ports.iter().cloned().collect::<BTreeSet<_>>();
        Mirror {
            name: self.name.clone(),
            ports: if self.select_all {
                MirroredPorts::All
            } else {
                MirroredPorts::Named {
                    received: names(&self.select_src_port),
                    sent: names(&self.select_dst_port),
                }
            },
            vlans: self.select_vlan.iter().copied().collect(),
            output: match self.output_vlan {
                0 => MirrorOutput::Port(self.output_port.clone()),
                vlan => MirrorOutput::Vlan(vlan),
            },
            snaplen: Some(self.snaplen).filter(|snaplen| *snaplen > 0),
        }
    }

    /// Returns the reason why the mirror copies no packets, or fewer than configured.
    ///
    /// `has_port` returns whether the bridge has a port with the given name.
    pub(crate) fn problem(&self, has_port: impl Fn(&str) -> bool) -> Option<String> {
        let is_missing = |name: &&String| !has_port(name);
        if Some(&self.output_port)
            .filter(|name| !name.is_empty())
            .is_some_and(|own| is_missing(&own))
        {
            let port = &self.output_port;
            return Some(format!("copies nothing until output_port {port} is added to the bridge"));
        }
        let selected = || self.select_src_port.iter().chain(&self.select_dst_port);
        if !self.select_all && selected().next().is_none() {
            return Some(
                "copies nothing: set select_all, select_src_port or select_dst_port".to_owned(),
            );
        }
        let missing = selected().filter(is_missing).map(String::as_str).collect::<BTreeSet<_>>();
        let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
        (!missing.is_empty()).then(|| format!("the bridge has no port {missing}"))
    }
}

/// The largest VLAN id that a tag can hold.
const VLAN_MAX: u16 = 4095;

/// The least `snaplen`: the length of the Ethernet header.
const SNAPLEN_MIN: u32 = 14;

/// The largest `snaplen`.
const SNAPLEN_MAX: u32 = 65535;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the options of a mirror.
    fn mirror() -> MirrorOptions {
        MirrorOptions {
            name: "m1".into(),
            select_src_port: vec!["p1".into()],
            output_port: "p9".into(),
            ..MirrorOptions::default()
        }
    }

    #[test]
    fn a_mirror_has_one_output() {
        let text = |mirror: MirrorOptions| match mirror.check() {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(text(mirror()), "fine");
        let none = MirrorOptions { output_port: String::new(), ..mirror() };
        assert_eq!(
            text(none.clone()),
            "output_port: mirror m1: give the mirror an `output_port` or an `output_vlan`"
        );
        assert_eq!(text(MirrorOptions { output_vlan: 7, ..none }), "fine");
        let both = MirrorOptions { output_vlan: 7, ..mirror() };
        assert!(text(both).contains("has an `output_port` too"));
        let all = MirrorOptions { select_all: true, ..mirror() };
        assert!(text(all).contains("selects every port"));
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        for mirror in [
            MirrorOptions { name: String::new(), ..mirror() },
            MirrorOptions { select_vlan: vec![0, 4096], ..mirror() },
            MirrorOptions { snaplen: 13, ..mirror() },
            MirrorOptions { snaplen: 65536, ..mirror() },
            MirrorOptions { output_port: String::new(), output_vlan: 4096, ..mirror() },
        ] {
            assert!(mirror.check().is_err(), "{mirror:?}");
        }
    }

    #[test]
    fn a_mirror_problem_names_the_port() {
        let problem = |mirror: &MirrorOptions, ports: &[&str]| {
            mirror.problem(|name| ports.contains(&name)).unwrap_or_default()
        };
        assert_eq!(problem(&mirror(), &["p1", "p9"]), "");
        assert_eq!(problem(&mirror(), &["p9"]), "the bridge has no port p1");
        assert!(problem(&mirror(), &["p1"]).contains("until output_port p9 is added"));
        let idle = MirrorOptions { select_src_port: Vec::new(), ..mirror() };
        assert!(problem(&idle, &["p9"]).contains("set select_all"));
    }
}
