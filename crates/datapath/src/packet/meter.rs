//! Meters in action lists (OpenFlow 1.3.5, 5.7).

use std::sync::LazyLock;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, rewrite};
use shunt_pipeline::{DatapathAction, Meter, MeterVerdict, Time, raise_drop_precedence};

use crate::{packet::buffer::Packet, thread::execute::ParsedPacket};

/// Applies a meter to a packet, and remarks its DSCP if a band requires it.
///
/// Returns false if the meter drops the packet.
///
/// A packet that is still to be segmented counts as one packet, as it does for rules.
pub(crate) fn pass(
    packet: &mut Packet,
    meter: &Meter,
    parsed: &mut ParsedPacket<'_>,
    now: Time,
) -> bool {
    match meter.admit(now, packet.len()) {
        MeterVerdict::Pass => true,
        MeterVerdict::Drop => false,
        MeterVerdict::Remark(levels) => {
            remark(packet, parsed, levels);
            true
        }
    }
}

/// Applies the meters of actions that send no packet, or no further packet.
///
/// The meters count the packet although it is not sent. Returns whether the packet passed all
/// meters.
pub(crate) fn count<'a>(
    actions: impl IntoIterator<Item = &'a DatapathAction>,
    now: Time,
    length: usize,
) -> bool {
    for action in actions {
        match action {
            DatapathAction::Meter(meter) if meter.admit(now, length) == MeterVerdict::Drop => {
                return false;
            }
            // A meter in a copy drops the copy alone; copies nest at most 64 deep.
            DatapathAction::Copy(inner) => {
                count(inner.iter(), now, length);
            }
            _ => {}
        }
    }
    true
}

/// The header change for each DSCP value, so that remarking allocates nothing.
static REMARKS: LazyLock<Vec<Match>> = LazyLock::new(|| {
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::IpDscp);
    let remark = |dscp| {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::IpDscp, dscp);
        Match::new(&key, &mask)
    };
    (0..=FieldId::IpDscp.value_max()).map(remark).collect()
});

/// Raises the drop precedence of an IP packet by `levels`.
fn remark(packet: &mut Packet, parsed: &mut ParsedPacket<'_>, levels: u8) {
    if !matches!(parsed.key.eth_type(), 0x0800 | 0x86dd) {
        return;
    }
    let dscp = u8::try_from(parsed.key.field(FieldId::IpDscp)).unwrap_or_default();
    let raised = raise_drop_precedence(dscp, levels);
    let Some(set) = REMARKS.get(usize::from(raised)).filter(|_| raised != dscp) else { return };
    let checksum = packet.virtio.checksum_state(&parsed.layers);
    rewrite::set_header(packet.frame_mut(), &parsed.layers, parsed.key, set, checksum);
}
