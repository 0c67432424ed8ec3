//! VLANs of ports, and the MAC addresses that NORMAL knows.

use std::{sync::Arc, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{PortVlans, VlanMode};

use crate::{
    config::{self, Port},
    control::Control,
    error::SwitchError,
};

/// A MAC address that NORMAL knows in a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacStatus {
    /// Where it was seen last.
    pub port: PortNo,
    /// Its VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
    /// How long ago it was seen.
    pub age: Duration,
}

impl Port {
    /// Its mode: one that nobody has given is that of an access port if there is a tag.
    pub(crate) fn effective_vlan_mode(&self) -> config::VlanMode {
        let usual = match self.tag {
            Some(_) => config::VlanMode::Access,
            None => config::VlanMode::Trunk,
        };
        self.vlan_mode.unwrap_or(usual)
    }

    /// Its VLANs, as NORMAL sees them.
    #[must_use]
    pub fn vlans(&self) -> PortVlans {
        let tag = self.tag.unwrap_or_default();
        let mode = match self.effective_vlan_mode() {
            config::VlanMode::Access => VlanMode::Access(tag),
            config::VlanMode::Trunk => VlanMode::Trunk,
            config::VlanMode::NativeTagged => VlanMode::NativeTagged(tag),
            config::VlanMode::NativeUntagged => VlanMode::NativeUntagged(tag),
        };
        let trunks = (!self.trunks.is_empty()).then(|| self.trunks.iter().copied().collect());
        PortVlans { mode, trunks }
    }
}

impl Control {
    /// Gives a port the VLANs of `vlans`, whose other settings are not looked at.
    pub(crate) async fn set_vlans(&self, vlans: Port) -> Result<(), SwitchError> {
        vlans.check()?;
        let (bridge, number) = {
            let bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(&vlans.name)?;
            (bridge.id, port.number)
        };
        self.with_port(bridge, number, |port| {
            port.settings.vlan_mode = vlans.vlan_mode;
            port.settings.tag = vlans.tag;
            port.settings.trunks = vlans.trunks;
        });
        self.publish_ports();
        self.plane.adopted(self.plane.pipeline.version()).await;
        Ok(())
    }

    /// The MAC addresses that NORMAL knows in a bridge, by VLAN.
    pub(crate) async fn macs(&self, bridge: &str) -> Result<Vec<MacStatus>, SwitchError> {
        let id = self.bridges.lock().find(bridge)?.id;
        // Hits refresh what they would have learned again: without them addresses look too old.
        self.plane.pull().await;
        let now = self.plane.clock.now();
        let macs = self.plane.pipeline.macs(id);
        let status = |entry: &Arc<shunt_pipeline::MacEntry>| MacStatus {
            port: entry.port,
            vlan: entry.vlan,
            mac: entry.mac,
            age: now.since(entry.seen()),
        };
        Ok(macs.iter().map(status).collect())
    }

    /// Forgets the MAC addresses of a bridge, or of all.
    pub(crate) async fn flush_macs(&self, bridge: Option<&str>) -> Result<(), SwitchError> {
        let ids = {
            let bridges = self.bridges.lock();
            match bridge {
                Some(name) => vec![bridges.find(name)?.id],
                None => bridges.iter().map(|bridge| bridge.id).collect(),
            }
        };
        for id in ids {
            let version = self.change(|pipeline| Ok::<_, SwitchError>(pipeline.flush_macs(id)))?;
            self.plane.adopted(version).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_alone_makes_an_access_port() {
        let port = Port { tag: Some(5), ..Port::default() };
        assert_eq!(port.vlans().mode, VlanMode::Access(5));
        assert_eq!(Port::default().vlans(), PortVlans::default());
        let mode = Some(config::VlanMode::NativeUntagged);
        let port = Port { vlan_mode: mode, trunks: vec![6], ..port };
        let vlans = port.vlans();
        assert_eq!((vlans.mode, vlans.trunks), (VlanMode::NativeUntagged(5), Some([6].into())));
    }

    #[test]
    fn what_the_mode_has_no_use_for_is_a_mistake() {
        use config::VlanMode::{Access, NativeTagged, Trunk};
        let complaint = |vlan_mode, tag, trunks: &[u16]| {
            let name = "p1".to_owned();
            let port = Port { name, vlan_mode, tag, trunks: trunks.to_vec(), ..Port::default() };
            port.check().map_or_else(|error| error.to_string(), |()| "fine".into())
        };
        for complaint in
            [complaint(Some(Trunk), Some(5), &[]), complaint(Some(Trunk), Some(0), &[])]
        {
            assert!(complaint.contains("has no `tag`"), "{complaint}");
        }
        for complaint in [complaint(Some(Access), None, &[5]), complaint(None, Some(5), &[6])] {
            assert!(complaint.contains("has no `trunks`"), "{complaint}");
        }
        for mode in [None, Some(NativeTagged)] {
            assert_eq!(complaint(mode, mode.map(|_| 5), &[6]), "fine");
        }
    }
}
