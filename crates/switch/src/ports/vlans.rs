//! VLANs of ports, and the MAC addresses that `NORMAL` has learned.

use std::{sync::Arc, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PortVlans, PriorityTags, QinqEthtype, VlanMode};

use crate::{
    config::{self, PortOptions},
    threads::data_plane::DataPlane,
};

/// A MAC address that `NORMAL` has learned, or that an operator added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacStatus {
    /// Port of the last frame from this address, or of the static address.
    pub port: PortNo,
    /// VLAN of the frames; 0 for untagged frames.
    pub vlan: u16,
    /// The MAC address itself.
    pub mac: [u8; 6],
    /// True for an address that an operator added, which has no age.
    pub is_static: bool,
    /// Time since the last frame from this address.
    ///
    /// The age of a static address is the time since its addition.
    pub age: Duration,
}

impl PortOptions {
    /// Returns the VLAN mode; the default is `access` for a port with a tag.
    pub(crate) fn effective_vlan_mode(&self) -> config::PortVlanMode {
        let usual = match self.tag {
            Some(_) => config::PortVlanMode::Access,
            None => config::PortVlanMode::Trunk,
        };
        self.vlan_mode.unwrap_or(usual)
    }

    /// Returns the VLAN settings as text, with the keys of the configuration.
    ///
    /// An example of the text is `vlan_mode=access tag=9`.
    pub(crate) fn vlans_text(&self) -> String {
        let mut text = format!("vlan_mode={}", self.effective_vlan_mode().name());
        if let Some(tag) = self.tag {
            text += &format!(" tag={tag}");
        }
        for (key, vlans) in [("trunks", &self.trunks), ("cvlans", &self.cvlans)] {
            if !vlans.is_empty() {
                let vlans: Vec<_> = vlans.iter().map(u16::to_string).collect();
                text += &format!(" {key}={}", vlans.join(","));
            }
        }
        if self.qinq_ethtype != QinqEthtype::default() {
            text += &format!(" qinq_ethtype={}", self.qinq_ethtype.name());
        }
        if self.priority_tags != PriorityTags::default() {
            text += &format!(" priority_tags={}", self.priority_tags.name());
        }
        if self.protected {
            text += " protected=true";
        }
        if self.mcast_snooping_flood {
            text += " mcast_snooping_flood=true";
        }
        if self.mcast_snooping_flood_reports {
            text += " mcast_snooping_flood_reports=true";
        }
        text
    }

    /// Returns the VLAN settings in the form that `NORMAL` uses.
    #[must_use]
    pub fn vlans(&self) -> PortVlans {
        let tag = self.tag.unwrap_or_default();
        let mode = match self.effective_vlan_mode() {
            config::PortVlanMode::Access => VlanMode::Access(tag),
            config::PortVlanMode::Trunk => VlanMode::Trunk,
            config::PortVlanMode::NativeTagged => VlanMode::NativeTagged(tag),
            config::PortVlanMode::NativeUntagged => VlanMode::NativeUntagged(tag),
            config::PortVlanMode::Dot1qTunnel => VlanMode::Dot1qTunnel(tag),
        };
        let some = |vlans: &[u16]| (!vlans.is_empty()).then(|| vlans.iter().copied().collect());
        PortVlans {
            mode,
            trunks: some(&self.trunks),
            cvlans: some(&self.cvlans),
            qinq_ethtype: self.qinq_ethtype,
            priority_tags: self.priority_tags,
        }
    }
}

impl MacStatus {
    /// Returns the learned and static MAC addresses, by VLAN.
    pub(crate) async fn of_bridge(plane: &DataPlane, bridge: BridgeId) -> Vec<Self> {
        // Cache hits refresh addresses, so pending hits must be counted first.
        plane.pull().await;
        let now = plane.now();
        let macs = plane.pipeline().macs(bridge);
        let status = |entry: &Arc<shunt_pipeline::MacEntry>| Self {
            port: entry.port,
            vlan: entry.vlan,
            mac: entry.mac,
            is_static: entry.is_static,
            age: now.since(entry.seen()),
        };
        macs.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_setting_alone_means_an_access_port() {
        let port = PortOptions { tag: Some(5), ..PortOptions::default() };
        assert_eq!(port.vlans().mode, VlanMode::Access(5));
        assert_eq!(PortOptions::default().vlans(), PortVlans::default());
        let mode = Some(config::PortVlanMode::NativeUntagged);
        let port = PortOptions { vlan_mode: mode, trunks: vec![6], ..port };
        let vlans = port.vlans();
        assert_eq!((vlans.mode, vlans.trunks), (VlanMode::NativeUntagged(5), Some([6].into())));
        assert_eq!(port.vlans_text(), "vlan_mode=native-untagged tag=5 trunks=6");
        assert_eq!(PortOptions::default().vlans_text(), "vlan_mode=trunk");
        let tags = PriorityTags::IfNonzero;
        let port = PortOptions { priority_tags: tags, ..PortOptions::default() };
        assert_eq!(port.vlans().priority_tags, tags);
        assert_eq!(port.vlans_text(), "vlan_mode=trunk priority_tags=if-nonzero");
    }

    #[test]
    fn a_tunnel_port_has_customer_vlans() {
        let port = PortOptions {
            name: "p1".to_owned(),
            vlan_mode: Some(config::PortVlanMode::Dot1qTunnel),
            tag: Some(100),
            cvlans: vec![5, 6],
            qinq_ethtype: QinqEthtype::Dot1q,
            ..PortOptions::default()
        };
        assert!(port.check().is_ok());
        let vlans = port.vlans();
        assert_eq!(vlans.mode, VlanMode::Dot1qTunnel(100));
        assert_eq!((vlans.cvlans, vlans.qinq_ethtype), (Some([5, 6].into()), QinqEthtype::Dot1q));
        let text = "vlan_mode=dot1q-tunnel tag=100 cvlans=5,6 qinq_ethtype=802.1q";
        assert_eq!(port.vlans_text(), text);
        let plain = PortOptions { name: "p1".to_owned(), ..PortOptions::default() };
        assert!(port.has_vlans_of(&plain.with_vlans_of(&port)) && !port.has_vlans_of(&plain));
        let wrong = [
            (PortOptions { tag: None, ..port.clone() }, "needs `tag`, its service VLAN"),
            (PortOptions { tag: Some(0), ..port.clone() }, "needs `tag`, its service VLAN"),
            (PortOptions { trunks: vec![5], ..port.clone() }, "has no `trunks`"),
            (PortOptions { cvlans: vec![5000], ..port.clone() }, "cvlans = 5000"),
            (PortOptions { vlan_mode: None, ..port }, "only a port of mode"),
            (PortOptions { qinq_ethtype: QinqEthtype::Dot1q, ..plain }, "only a port of mode"),
        ];
        for (port, expected) in wrong {
            let text = port.check().map_or_else(|error| error.to_string(), |()| "fine".into());
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn unused_keys_of_vlan_mode_are_refused() {
        use config::PortVlanMode::{Access, NativeTagged, Trunk};
        let error_text = |vlan_mode, tag, trunks: &[u16]| {
            let name = "p1".to_owned();
            let port = PortOptions {
                name,
                vlan_mode,
                tag,
                trunks: trunks.to_vec(),
                ..PortOptions::default()
            };
            port.check().map_or_else(|error| error.to_string(), |()| "fine".into())
        };
        for error_text in
            [error_text(Some(Trunk), Some(5), &[]), error_text(Some(Trunk), Some(0), &[])]
        {
            assert!(error_text.contains("has no `tag`"), "{error_text}");
        }
        for error_text in [error_text(Some(Access), None, &[5]), error_text(None, Some(5), &[6])] {
            assert!(error_text.contains("has no `trunks`"), "{error_text}");
        }
        for mode in [None, Some(NativeTagged)] {
            assert_eq!(error_text(mode, mode.map(|_| 5), &[6]), "fine");
        }
    }
}
