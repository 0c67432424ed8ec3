//! Ingress policing of ports, and other options that can change on an open port.

use shunt_datapath::packet::ingress_policer::IngressPolicing;

use crate::config::{PortOptions, PortType};

impl PortOptions {
    /// Returns the limits of ingress policing.
    #[must_use]
    pub const fn ingress_policing(&self) -> IngressPolicing {
        IngressPolicing {
            kbps: self.ingress_policing_rate,
            burst_kb: self.ingress_policing_burst,
            kpkts_rate: self.ingress_policing_kpkts_rate,
            kpkts_burst: self.ingress_policing_kpkts_burst,
        }
    }

    /// Returns the keys of ingress policing with a value other than 0,
    /// with their values.
    pub(crate) fn ingress_policing_keys(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let keys = [
            ("ingress_policing_rate", self.ingress_policing_rate),
            ("ingress_policing_burst", self.ingress_policing_burst),
            ("ingress_policing_kpkts_rate", self.ingress_policing_kpkts_rate),
            ("ingress_policing_kpkts_burst", self.ingress_policing_kpkts_burst),
        ];
        keys.into_iter().filter(|(_, value)| *value > 0)
    }

    /// Returns these options, with the ingress policing of `other`.
    #[must_use]
    pub fn with_ingress_policing_of(&self, other: &Self) -> Self {
        Self {
            ingress_policing_rate: other.ingress_policing_rate,
            ingress_policing_burst: other.ingress_policing_burst,
            ingress_policing_kpkts_rate: other.ingress_policing_kpkts_rate,
            ingress_policing_kpkts_burst: other.ingress_policing_kpkts_burst,
            ..self.clone()
        }
    }

    /// Returns these options, with the runtime options of `other`.
    ///
    /// Runtime options can change while a port is open.
    ///
    /// The copied options are the VLANs, the protection, the flooding of multicast packets, the
    /// ingress policing, the QoS, and the BFD session. For some types of ports, the MTU and the MAC
    /// address are copied too.
    #[must_use]
    pub fn with_runtime_keys_of(&self, other: &Self) -> Self {
        Self {
            qos: other.qos.clone(),
            bfd: other.bfd.clone(),
            mac: other.mac.clone(),
            mtu: if self.has_runtime_mtu() { other.mtu } else { self.mtu },
            ..self.with_vlans_of(other).with_ingress_policing_of(other)
        }
    }

    /// Returns these options, with the VLANs of `other`.
    ///
    /// The protection and the multicast flooding of `other` are copied too.
    #[must_use]
    pub fn with_vlans_of(&self, other: &Self) -> Self {
        Self {
            vlan_mode: other.vlan_mode,
            tag: other.tag,
            trunks: other.trunks.clone(),
            cvlans: other.cvlans.clone(),
            qinq_ethtype: other.qinq_ethtype,
            priority_tags: other.priority_tags,
            protected: other.protected,
            mcast_snooping_flood: other.mcast_snooping_flood,
            mcast_snooping_flood_reports: other.mcast_snooping_flood_reports,
            ..self.clone()
        }
    }

    /// Returns whether the VLANs of both ports are equal.
    ///
    /// The protection and the multicast flooding of the ports are compared too.
    #[must_use]
    pub fn has_vlans_of(&self, other: &Self) -> bool {
        let is_equal = self.vlan_mode == other.vlan_mode
            && self.tag == other.tag
            && self.trunks == other.trunks
            && self.cvlans == other.cvlans
            && self.qinq_ethtype == other.qinq_ethtype
            && self.priority_tags == other.priority_tags
            && self.protected == other.protected
            && self.mcast_snooping_flood == other.mcast_snooping_flood
            && self.mcast_snooping_flood_reports == other.mcast_snooping_flood_reports;
        debug_assert_eq!(
            is_equal,
            *self == self.with_vlans_of(other),
            "this function compares every key that `with_vlans_of` copies"
        );
        is_equal
    }

    /// Returns whether the runtime options of both ports are equal.
    ///
    /// The compared options are those that [`Self::with_runtime_keys_of`] copies.
    pub(crate) fn has_runtime_keys_of(&self, other: &Self) -> bool {
        self.has_vlans_of(other)
            && self.ingress_policing() == other.ingress_policing()
            && self.qos == other.qos
            && self.bfd == other.bfd
            && self.mac == other.mac
            && (self.mtu == other.mtu || !self.has_runtime_mtu())
    }

    /// Returns the key of ingress policing that a patch port may not have,
    /// and the reason.
    pub(crate) fn policing_problem(&self) -> Option<(&'static str, &'static str)> {
        let is_limited = self.ingress_policing() != IngressPolicing::default();
        (is_limited && self.kind == PortType::Patch).then_some((
            "ingress_policing_rate",
            "a patch port has no ingress policing: limit the port at which packets arrive",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patch_ports_have_no_ingress_policing() {
        let port = |kind| PortOptions {
            name: "p1".to_owned(),
            kind,
            peer: if kind == PortType::Patch { "p2".to_owned() } else { String::new() },
            ingress_policing_kpkts_burst: 1,
            ..PortOptions::default()
        };
        for kind in [PortType::AfPacket, PortType::Tap, PortType::Null] {
            assert!(port(kind).check().is_ok());
        }
        let error = port(PortType::Patch).check().unwrap_err().to_string();
        assert!(error.contains("a patch port has no ingress policing"), "{error}");
    }

    #[test]
    fn runtime_keys_are_vlans_and_policing() {
        let old = PortOptions { name: "p1".into(), mtu: 1500, ..PortOptions::default() };
        let new = PortOptions { ingress_policing_rate: 8, tag: Some(5), mtu: 9000, ..old.clone() };
        let merged = old.with_runtime_keys_of(&new);
        assert_eq!((merged.mtu, merged.tag, merged.ingress_policing().kbps), (9000, Some(5), 8));
        assert!(merged.has_vlans_of(&new) && !old.has_vlans_of(&new));
        assert_eq!(merged, new);
        assert!(merged.has_runtime_keys_of(&new) && !old.has_runtime_keys_of(&new));
        let xdp = |mtu| PortOptions { kind: PortType::AfXdp, mtu, ..old.clone() };
        assert_eq!(xdp(1500).with_runtime_keys_of(&xdp(3000)).mtu, 1500);
    }
}
