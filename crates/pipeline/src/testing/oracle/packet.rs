//! One concrete packet: its fields, and its tags as a list.

use shunt_flow::{FieldId, FlowKey, field::Prerequisite, layout::word};

#[derive(Clone)]
pub(super) struct Packet {
    /// All fields; those of tags are zero.
    pub(super) key: FlowKey,
    /// Type and control information of each tag, the outermost first.
    pub(super) tags: Vec<(u16, u16)>,
    /// The DSCP that the packet leaves with, if a meter has changed it.
    pub(super) dscp: Option<u128>,
}

impl Packet {
    pub(super) fn new(key: &FlowKey) -> Self {
        let mut key = key.clone();
        let vlan = std::mem::take(&mut key.words_mut()[usize::from(word::VLAN)]);
        let both = [(vlan >> 48, vlan >> 32), (vlan >> 16, vlan)];
        let tags = both.map(|(tpid, tci)| (low(tpid), low(tci)));
        let tags = tags.into_iter().take_while(|(_, tci)| tci & 0x1000 != 0).collect();
        Self { key, tags, dscp: None }
    }

    pub(super) fn key(&self) -> FlowKey {
        let mut key = self.key.clone();
        let tag = |index: usize| match self.tags.get(index) {
            Some((tpid, tci)) => u64::from(*tpid) << 16 | u64::from(*tci),
            None => 0,
        };
        key.words_mut()[usize::from(word::VLAN)] = tag(0) << 32 | tag(1);
        key
    }

    /// The packet as it leaves.
    pub(super) fn wire(&self) -> FlowKey {
        let mut key = self.key();
        if let Some(dscp) = self.dscp {
            key.set_field(FieldId::IpDscp, dscp);
        }
        key
    }

    pub(super) fn has(&self, field: FieldId) -> bool {
        let key = self.key();
        let eth = key.field(FieldId::EthType);
        let proto = key.field(FieldId::IpProto);
        let later = key.field(FieldId::NwFrag) & 2 != 0;
        let (v4, v6) = (eth == 0x0800, eth == 0x86dd);
        match field.info().prerequisite {
            Prerequisite::Any | Prerequisite::Ethernet => true,
            Prerequisite::VlanVid => !self.tags.is_empty(),
            Prerequisite::Ipv4 => v4,
            Prerequisite::Ipv6 => v6,
            Prerequisite::Ip => v4 || v6,
            Prerequisite::Arp => eth == 0x0806 || eth == 0x8035,
            Prerequisite::Tcp => (v4 || v6) && proto == 6 && !later,
            Prerequisite::Udp => (v4 || v6) && proto == 17 && !later,
            Prerequisite::InPort => true,
            other => unreachable!("the generators make no field that needs {other:?}"),
        }
    }

    pub(super) fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        let shift = match field {
            FieldId::DlVlanPcp | FieldId::VlanPcp => 13,
            _ => 0,
        };
        let (tci, bits) = (low(value << shift), low(mask << shift));
        match field {
            FieldId::VlanVid | FieldId::VlanPcp if self.tags.is_empty() => return,
            FieldId::VlanTci if self.tags.is_empty() && tci & bits & 0x1000 == 0 => return,
            FieldId::VlanTci | FieldId::DlVlan | FieldId::DlVlanPcp if self.tags.is_empty() => {
                self.tags.push((0x8100, 0x1000));
            }
            FieldId::VlanTci
            | FieldId::VlanVid
            | FieldId::VlanPcp
            | FieldId::DlVlan
            | FieldId::DlVlanPcp => {}
            FieldId::IpDscp => {
                self.dscp = self.dscp.map(|dscp| dscp & !mask | value & mask);
                return self.key.set_field_masked(field, value, mask);
            }
            _ => return self.key.set_field_masked(field, value, mask),
        }
        self.tags[0].1 = self.tags[0].1 & !bits | tci & bits;
        if self.tags[0].1 & 0x1000 == 0 {
            self.tags.remove(0);
        }
    }
}

pub(super) fn low(value: impl Into<u128>) -> u16 {
    u16::try_from(value.into() & 0xffff).unwrap_or_default()
}
