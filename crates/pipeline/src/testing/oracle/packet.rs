//! One concrete packet: its fields, its list of tags, and its frame.

use shunt_flow::{
    FieldId, FlowKey,
    field::Prerequisite,
    layout::{FLOW_WORDS, word},
    rewrite::TtlCopy,
};

use crate::{
    action::Action,
    id::QueueId,
    testing::frame::{Frame, visible},
};

/// A packet of the oracle: its fields, its VLAN tags and its frame.
#[derive(Clone)]
pub(super) struct Packet {
    /// All fields of the last parse, with later writes.
    /// The fields of VLAN tags are zero.
    pub(super) key: Box<FlowKey>,
    /// Type and control information of each tag, the outermost first.
    pub(super) tags: Vec<(u16, u16)>,
    /// The frame, without its VLAN tags.
    frame: Frame,
    /// The egress queue of later outputs.
    pub(super) queue: QueueId,
    /// True if a pop has uncovered headers that are not parsed yet.
    pub(super) is_uncovered: bool,
}

impl Packet {
    /// Returns the packet of a test key, with its VLAN tags as a list.
    pub(super) fn new(key: &FlowKey) -> Self {
        let frame = Frame::of(key);
        let mut key = visible(key);
        let vlan = std::mem::take(&mut key.words_mut()[usize::from(word::VLAN)]);
        let both = [(vlan >> 48, vlan >> 32), (vlan >> 16, vlan)];
        let tags = both.map(|(tpid, tci)| (low(tpid), low(tci)));
        let tags = tags.into_iter().take_while(|(_, tci)| tci & 0x1000 != 0).collect();
        Self { key: Box::new(key), tags, frame, queue: QueueId::DEFAULT, is_uncovered: false }
    }

    /// Executes an action on the egress queue of later outputs.
    pub(super) fn select_queue(&mut self, action: &Action) {
        match action {
            Action::SetQueue(queue) => self.queue = QueueId::new(*queue),
            Action::PopQueue { .. } => self.queue = QueueId::DEFAULT,
            _ => {}
        }
    }

    /// Returns the flow key of the packet.
    pub(super) fn key(&self) -> FlowKey {
        let mut key = FlowKey::clone(&self.key);
        key.words_mut()[usize::from(word::VLAN)] = self.vlan();
        key
    }

    /// Changes the DSCP of the frame that leaves; tables still see the earlier DSCP.
    pub(super) fn remark(&mut self, raise: impl Fn(u128) -> u128) {
        if let Some(dscp) = self.frame.dscp() {
            self.frame.set_dscp(raise(dscp));
        }
    }

    /// Returns the frame that an output would send now.
    pub(super) fn frame(&self) -> Frame {
        let mut frame = self.frame.clone();
        frame.write(usize::from(word::VLAN), self.vlan(), u64::MAX);
        frame
    }

    /// Parses the frame again; headers after labels stay hidden.
    pub(super) fn parse_again(&mut self) {
        let mut key = self.frame.view();
        let hidden = usize::from(word::ETH_DST);
        key.words_mut()[..hidden].copy_from_slice(&self.key.words()[..hidden]);
        key.words_mut()[usize::from(word::VLAN)] = 0;
        *self.key = key;
        self.is_uncovered = false;
    }

    /// Returns whether the packet has a field.
    pub(super) fn has(&self, field: FieldId) -> bool {
        let key = self.key();
        let eth = key.field(FieldId::EthType);
        let proto = key.field(FieldId::IpProto);
        let later = key.field(FieldId::NwFrag) & 2 != 0;
        let (v4, v6) = (eth == 0x0800, eth == 0x86dd);
        match field.info().prerequisite {
            Prerequisite::Any | Prerequisite::Ethernet => true,
            Prerequisite::VlanVid => !self.tags.is_empty(),
            Prerequisite::Mpls => self.is_mpls(),
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

    /// Writes bits of a field.
    pub(super) fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        let shift = match field {
            FieldId::DlVlanPcp | FieldId::VlanPcp => 13,
            _ => 0,
        };
        let (tci, bits) = (low(value << shift), low(mask << shift));
        match field {
            FieldId::VlanPcp if self.tags.is_empty() => return,
            FieldId::VlanTci | FieldId::VlanVid
                if self.tags.is_empty() && tci & bits & 0x1000 == 0 =>
            {
                return;
            }
            FieldId::VlanTci | FieldId::VlanVid | FieldId::DlVlan | FieldId::DlVlanPcp
                if self.tags.is_empty() =>
            {
                self.tags.push((0x8100, 0x1000));
            }
            FieldId::VlanTci
            | FieldId::VlanVid
            | FieldId::VlanPcp
            | FieldId::DlVlan
            | FieldId::DlVlanPcp => {}
            _ => return self.set_field(field, value, mask),
        }
        self.tags[0].1 = self.tags[0].1 & !bits | tci & bits;
        if self.tags[0].1 & 0x1000 == 0 {
            self.tags.remove(0);
        }
    }

    /// Returns whether the Ethernet type is one of the two of MPLS.
    pub(super) fn is_mpls(&self) -> bool {
        matches!(self.key.eth_type(), 0x8847 | 0x8848)
    }

    /// Returns the number of labels that extraction shows, at most three.
    pub(super) fn labels(&self) -> usize {
        if !self.is_mpls() {
            return 0;
        }
        let shown = self.frame.labels.iter().take(3);
        let above = shown.take_while(|entry| *entry & 0x100 == 0).count();
        if self.frame.labels.len() > above { (above + 1).min(3) } else { 3 }
    }

    /// Pushes a label; returns false if there are too many.
    pub(super) fn push_label(&mut self, ether_type: u16) -> bool {
        let entry = match self.labels() {
            3 => return false,
            0 => self.first_label(),
            _ => self.frame.labels[0] & !0x100,
        };
        self.frame.labels.insert(0, entry);
        self.changed_labels(ether_type);
        true
    }

    /// Pops a label; returns false if there are too many.
    pub(super) fn pop_label(&mut self, ether_type: u16) -> bool {
        let labels = self.labels();
        if labels == 0 {
            return true;
        }
        if labels == 3 && self.frame.labels.get(2).is_none_or(|third| third & 0x100 == 0) {
            return false;
        }
        let all = !matches!(ether_type, 0x8847 | 0x8848);
        self.frame.labels.drain(..if all { labels } else { 1 });
        self.changed_labels(ether_type);
        self.is_uncovered = self.frame.labels.is_empty() || all;
        true
    }

    /// Copies a TTL between labels.
    /// Returns false for a copy between a label and the header after it.
    pub(super) fn copy_ttl(&mut self, copy: TtlCopy) -> bool {
        match (self.labels(), &mut self.frame.labels[..]) {
            (0, _) => return true,
            (2.., [outer, next, ..]) => match copy {
                TtlCopy::In => *next = *next & !0xff | *outer & 0xff,
                TtlCopy::Out => *outer = *outer & !0xff | *next & 0xff,
            },
            _ => return false,
        }
        self.show_labels();
        true
    }

    /// Copies a TTL between a label and the next label or header.
    pub(super) fn copy_ttl_behind(&mut self, copy: TtlCopy) {
        self.frame.copy_ttl(copy);
    }

    /// Returns the label stack entry that a first pushed label gets.
    fn first_label(&self) -> u32 {
        let small = |field| u32::try_from(self.key.field(field)).unwrap_or_default();
        let label = if self.key.eth_type() == 0x86dd { 2 << 12 } else { 0 };
        let (class, ttl) = match self.key.eth_type() {
            0x0800 | 0x86dd => (small(FieldId::IpDscp) & 7, small(FieldId::NwTtl)),
            _ => (0, 0),
        };
        label | class << 9 | 0x100 | if ttl == 0 { 64 } else { ttl }
    }

    /// Writes the Ethernet type, and removes the fields that a change of labels hides.
    fn changed_labels(&mut self, ether_type: u16) {
        self.frame.set_ether_type(ether_type);
        self.key.set_field(FieldId::EthType, ether_type.into());
        self.key.words_mut()[usize::from(word::IPV4)..FLOW_WORDS].fill(0);
        self.show_labels();
    }

    /// Copies the MPLS labels of the frame to the parsed fields.
    fn show_labels(&mut self) {
        let (first, third) = (usize::from(word::MPLS), usize::from(word::MPLS_PBB));
        let shown = self.frame.view();
        self.key.words_mut()[first] = shown.words()[first];
        self.key.words_mut()[third] = shown.words()[third];
    }

    /// Writes the masked bits of a field to the parsed fields and to the frame.
    fn set_field(&mut self, field: FieldId, value: u128, mask: u128) {
        self.key.set_field_masked(field, value, mask);
        let (mut written, mut bits) = (FlowKey::ZERO, FlowKey::ZERO);
        written.set_field_masked(field, value, mask);
        bits.set_field_masked(field, u128::MAX, mask);
        for (word, mask) in bits.words().iter().enumerate() {
            if *mask != 0 {
                self.frame.write(word, written.words()[word], *mask);
            }
        }
    }

    /// Returns the word with both VLAN tags.
    fn vlan(&self) -> u64 {
        let tag = |index: usize| match self.tags.get(index) {
            Some((tpid, tci)) => u64::from(*tpid) << 16 | u64::from(*tci),
            None => 0,
        };
        tag(0) << 32 | tag(1)
    }
}

/// Returns the lower 16 bits of a value.
pub(super) fn low(value: impl Into<u128>) -> u16 {
    u16::try_from(value.into() & 0xffff).unwrap_or_default()
}
