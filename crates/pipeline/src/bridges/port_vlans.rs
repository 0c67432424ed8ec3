//! The VLANs of a port, for NORMAL (`vlan_mode`, `tag`, `trunks` in `ovs-vswitchd.conf.db(5)`).
//!
//! Actions other than NORMAL ignore the VLANs of a port.
//!
//! The frames of a `dot1q-tunnel` port may have the tags of a customer (IEEE 802.1ad). Within the
//! bridge they belong to the service VLAN of the port, and the VLAN of the customer lies below it.

use std::collections::BTreeSet;

/// The VLANs of a port, and the tags that their frames have on the link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortVlans {
    /// The tags of frames on the link.
    pub mode: VlanMode,
    /// The VLANs that a trunk carries, 0 for frames without a tag; `None`: all.
    ///
    /// An access port and a dot1q-tunnel port ignore this field.
    pub trunks: Option<BTreeSet<u16>>,
    /// The customer VLANs of a dot1q-tunnel port; `None`: all.
    ///
    /// 0 means frames without a tag. Other ports ignore this field.
    pub cvlans: Option<BTreeSet<u16>>,
    /// The type of the service tags of frames that arrive on a dot1q-tunnel port.
    pub qinq_ethtype: QinqEthtype,
    /// The tags of frames that are sent without a VLAN id.
    pub priority_tags: PriorityTags,
}

/// The frames that a port sends with a priority tag, of VLAN 0 (IEEE 802.1Q, 6.9).
///
/// `priority-tags` of `ovs-vswitchd.conf.db(5)`. A trunk keeps a nonzero priority of a frame of
/// VLAN 0 with every setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "kebab-case")
)]
pub enum PriorityTags {
    /// No frame: the tag of the port's own VLAN is removed with its priority.
    #[default]
    Never,
    /// Frames with a nonzero priority.
    IfNonzero,
    /// Frames that had a tag.
    Always,
}

impl PriorityTags {
    /// All settings of `priority-tags`.
    pub const ALL: [Self; 3] = [Self::Never, Self::IfNonzero, Self::Always];

    /// Returns the name, as in `ovs-vswitchd.conf.db(5)`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::IfNonzero => "if-nonzero",
            Self::Always => "always",
        }
    }
}

/// The Ethernet type of a service tag (`qinq-ethtype` of Open vSwitch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum QinqEthtype {
    /// 0x88a8, the type of service tags in IEEE 802.1ad.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "802.1ad"))]
    Dot1ad,
    /// 0x8100, the type of customer tags.
    #[cfg_attr(feature = "serde", serde(rename = "802.1q"))]
    Dot1q,
}

impl QinqEthtype {
    /// All settings of `qinq-ethtype`.
    pub const ALL: [Self; 2] = [Self::Dot1ad, Self::Dot1q];

    /// Returns the name, as in `ovs-vswitchd.conf.db(5)`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dot1ad => "802.1ad",
            Self::Dot1q => "802.1q",
        }
    }

    /// Returns the Ethernet type.
    #[must_use]
    pub const fn ethertype(self) -> u16 {
        match self {
            Self::Dot1ad => 0x88a8,
            Self::Dot1q => 0x8100,
        }
    }
}

/// The tags of frames on the link of a port (`vlan_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanMode {
    /// All VLANs, with their tags.
    #[default]
    Trunk,
    /// One VLAN, without a tag.
    Access(u16),
    /// All VLANs, with their tags; received frames without a tag belong to this VLAN.
    NativeTagged(u16),
    /// All VLANs, with their tags; frames of this VLAN have no tag, received or sent.
    NativeUntagged(u16),
    /// One service VLAN, without its tag; below it any customer VLANs, with their tags.
    Dot1qTunnel(u16),
}

impl PortVlans {
    /// Returns the VLAN of a received frame; `None` if the port drops it.
    ///
    /// `id` is the VLAN id of the frame, 0 without a tag.
    #[must_use]
    pub fn admit(&self, id: u16) -> Option<u16> {
        match self.mode {
            VlanMode::Access(vlan) => (id == 0).then_some(vlan),
            VlanMode::NativeTagged(vlan) | VlanMode::NativeUntagged(vlan) if id == 0 => Some(vlan),
            VlanMode::Dot1qTunnel(vlan) => self.carries_inside(id).then_some(vlan),
            VlanMode::Trunk | VlanMode::NativeTagged(_) | VlanMode::NativeUntagged(_) => {
                self.carries(id).then_some(id)
            }
        }
    }

    /// Returns whether frames of a VLAN are flooded to the port.
    #[must_use]
    pub fn carries(&self, vlan: u16) -> bool {
        let is_trunked = || self.trunks.as_ref().is_none_or(|trunks| trunks.contains(&vlan));
        match self.mode {
            VlanMode::Trunk => is_trunked(),
            VlanMode::Access(own) | VlanMode::Dot1qTunnel(own) => own == vlan,
            VlanMode::NativeTagged(own) | VlanMode::NativeUntagged(own) => {
                // Frames without a tag belong to the native VLAN, so the trunk does not carry VLAN
                // 0.
                own == vlan || vlan != 0 && is_trunked()
            }
        }
    }

    /// Returns whether frames of the port may have a VLAN id in a second tag.
    ///
    /// `id` is 0 without a second tag.
    #[must_use]
    pub fn carries_inside(&self, id: u16) -> bool {
        match self.mode {
            VlanMode::Access(_) => id == 0,
            VlanMode::Dot1qTunnel(_) => self.cvlans.as_ref().is_none_or(|own| own.contains(&id)),
            VlanMode::Trunk | VlanMode::NativeTagged(_) | VlanMode::NativeUntagged(_) => true,
        }
    }

    /// Returns whether [`Self::carries_inside`] depends on the VLAN id.
    #[must_use]
    pub const fn selects_inside(&self) -> bool {
        match self.mode {
            VlanMode::Access(_) => true,
            VlanMode::Dot1qTunnel(_) => self.cvlans.is_some(),
            VlanMode::Trunk | VlanMode::NativeTagged(_) | VlanMode::NativeUntagged(_) => false,
        }
    }

    /// Returns the type of the service tag of received frames; `None`: no such tag.
    #[must_use]
    pub const fn service_tag(&self) -> Option<QinqEthtype> {
        match self.mode {
            VlanMode::Dot1qTunnel(_) => Some(self.qinq_ethtype),
            VlanMode::Trunk
            | VlanMode::Access(_)
            | VlanMode::NativeTagged(_)
            | VlanMode::NativeUntagged(_) => None,
        }
    }

    /// Returns whether frames of a VLAN are sent without the tag of this VLAN.
    #[must_use]
    pub const fn removes_tag(&self, vlan: u16) -> bool {
        match self.mode {
            VlanMode::Access(_) | VlanMode::Dot1qTunnel(_) => true,
            VlanMode::NativeUntagged(own) => own == vlan,
            VlanMode::Trunk | VlanMode::NativeTagged(_) => false,
        }
    }

    /// Returns the VLAN id that the port writes into the frames of a VLAN.
    ///
    /// 0 means that the frame has no tag of the VLAN, or a tag that carries only a priority.
    #[must_use]
    pub const fn id_on_wire(&self, vlan: u16) -> u16 {
        if self.removes_tag(vlan) { 0 } else { vlan }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the VLANs of a port with a mode.
    fn port(mode: VlanMode) -> PortVlans {
        PortVlans { mode, trunks: Some([0, 10, 20].into()), ..PortVlans::default() }
    }

    #[test]
    fn access_port_puts_untagged_frames_in_vlan() {
        let port = port(VlanMode::Access(7));
        assert_eq!((port.admit(0), port.admit(7), port.admit(10)), (Some(7), None, None));
        assert_eq!((port.carries(7), port.carries(10), port.id_on_wire(7)), (true, false, 0));
    }

    #[test]
    fn a_trunk_accepts_only_its_vlans() {
        let trunk = port(VlanMode::Trunk);
        assert_eq!((trunk.admit(0), trunk.admit(20), trunk.admit(7)), (Some(0), Some(20), None));
        assert_eq!(PortVlans::default().admit(7), Some(7));
        assert_eq!(trunk.id_on_wire(20), 20);
    }

    #[test]
    fn a_native_vlan_replaces_vlan_0() {
        let all = |mode| PortVlans { mode, ..PortVlans::default() };
        assert!(!all(VlanMode::NativeTagged(7)).carries(0));
        assert!(all(VlanMode::NativeUntagged(0)).carries(0) && all(VlanMode::Trunk).carries(0));
    }

    #[test]
    fn tunnel_puts_all_frames_in_service_vlan() {
        let tunnel = PortVlans { mode: VlanMode::Dot1qTunnel(7), ..PortVlans::default() };
        assert_eq!(
            (tunnel.admit(0), tunnel.admit(7), tunnel.admit(10)),
            (Some(7), Some(7), Some(7))
        );
        assert_eq!((tunnel.carries(7), tunnel.carries(10), tunnel.id_on_wire(7)), (true, false, 0));
        assert_eq!((tunnel.selects_inside(), tunnel.carries_inside(10)), (false, true));
        let some = PortVlans { cvlans: Some([0, 10].into()), ..tunnel };
        assert_eq!((some.admit(0), some.admit(7), some.admit(10)), (Some(7), None, Some(7)));
        assert_eq!((some.carries_inside(7), some.carries_inside(10)), (false, true));
        assert_eq!(some.service_tag().map(QinqEthtype::ethertype), Some(0x88a8));
        assert_eq!(port(VlanMode::Access(7)).service_tag(), None);
    }

    #[test]
    fn untagged_frames_are_in_the_native_vlan() {
        let tagged = port(VlanMode::NativeTagged(7));
        assert_eq!((tagged.admit(0), tagged.admit(7), tagged.id_on_wire(7)), (Some(7), Some(7), 7));
        let untagged = port(VlanMode::NativeUntagged(7));
        assert_eq!(
            (untagged.admit(0), untagged.id_on_wire(7), untagged.id_on_wire(10)),
            (Some(7), 0, 10)
        );
    }
}
