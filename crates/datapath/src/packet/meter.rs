//! Meters on the way of a packet (OpenFlow 1.3.5, 5.7).

use std::sync::LazyLock;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, rewrite};
use shunt_pipeline::{DatapathAction, Meter, MeterVerdict, Time, raise_drop_precedence};

use crate::{
    packet::{buffer::Packet, change::checksum_state},
    thread::execute::Parsed,
};

/// Passes a meter as one packet of all its bytes, as the rules count it, still to be segmented or
/// not; answers whether the packet goes on, perhaps with another DSCP.
pub(crate) fn pass(packet: &mut Packet, meter: &Meter, parsed: &mut Parsed<'_>, now: Time) -> bool {
    match meter.admit(now, packet.len()) {
        MeterVerdict::Pass => true,
        MeterVerdict::Drop => false,
        MeterVerdict::Remark(levels) => {
            remark(packet, parsed, levels);
            true
        }
    }
}

/// Passes the meters of a list of which nothing is sent, or nothing any more: they count a packet of
/// this length all the same. Answers whether it has passed them all.
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
            // What a copy meets ends the copy alone; copies are at most 64 deep.
            DatapathAction::Copy(inner) => {
                count(inner.iter(), now, length);
            }
            _ => {}
        }
    }
    true
}

/// What writes each DSCP, by its number: made once, so that whoever remarks allocates nothing.
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

/// Raises the drop precedence of an IP packet by so many levels; others have none.
fn remark(packet: &mut Packet, parsed: &mut Parsed<'_>, levels: u8) {
    if !matches!(parsed.key.eth_type(), 0x0800 | 0x86dd) {
        return;
    }
    let dscp = u8::try_from(parsed.key.field(FieldId::IpDscp)).unwrap_or_default();
    let raised = raise_drop_precedence(dscp, levels);
    let Some(set) = REMARKS.get(usize::from(raised)).filter(|_| raised != dscp) else { return };
    let checksum = checksum_state(packet);
    rewrite::set_header(packet.frame_mut(), &parsed.layers, parsed.key, set, checksum);
}
