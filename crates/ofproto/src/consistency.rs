//! Whether actions fit what they act on (OpenFlow 1.3.5, 6.4 and 5.12).
//!
//! An action on a field that a packet may lack is refused while the rule is added: the match of
//! the rule must say that the field is there. Actions change what is there (`push_vlan` brings a
//! tag, `pop_vlan` takes it), so the list is walked with a key that changes as a packet would.
//! Output ports are checked here too, because what is legal depends on where the actions stand.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, PortNo,
    extract::{VlanLimit, extract},
    prerequisite,
};
use shunt_pipeline::{Action, FlowMod, FlowModCommand, Subfield, TableSelector};

use crate::{error::ErrorCode, message::PacketOut};

/// The bit of a tag control field that says that there is a tag.
const VLAN_PRESENT: u128 = 0x1000;

/// Checks the instructions that a flow-mod brings.
///
/// # Errors
///
/// The first thing that does not fit.
pub fn check_flow_mod(flow_mod: &FlowMod) -> Result<(), ErrorCode> {
    match flow_mod.command {
        FlowModCommand::Add | FlowModCommand::Modify | FlowModCommand::ModifyStrict => {}
        FlowModCommand::Delete | FlowModCommand::DeleteStrict => return Ok(()),
    }
    let instructions = &flow_mod.instructions;
    if let (TableSelector::One(table), Some(target)) = (flow_mod.table, instructions.goto)
        && target <= table
    {
        return Err(ErrorCode::InstructionTableId);
    }
    let matching = &flow_mod.matching;
    let mask = FlowMask::from(matching.mask());
    let mut packet = Packet { key: matching.key(), mask, place: Place::Rule };
    packet.walk(&instructions.apply)?;
    packet.place = Place::ActionSet;
    packet.walk(&instructions.write)
}

/// Checks the actions of a packet-out against its packet.
///
/// # Errors
///
/// The first thing that does not fit.
pub fn check_packet_out(packet_out: &PacketOut) -> Result<(), ErrorCode> {
    let mut key = FlowKey::ZERO;
    extract(&packet_out.data, VlanLimit::default(), &mut key);
    let mut mask = FlowMask::EMPTY;
    mask.words_mut().fill(u64::MAX);
    Packet { key, mask, place: Place::PacketOut }.walk(&packet_out.actions)
}

/// Where actions stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Rule,
    /// What a packet looks like when its action set is executed, its rule cannot know; only what is
    /// written into fields is held against the match, as in Open vSwitch.
    ActionSet,
    PacketOut,
}

/// What is known of the packets that reach an action.
#[derive(Clone)]
struct Packet {
    key: FlowKey,
    mask: FlowMask,
    place: Place,
}

impl Packet {
    fn walk(&mut self, actions: &[Action]) -> Result<(), ErrorCode> {
        actions.iter().try_for_each(|action| self.step(action))
    }

    fn step(&mut self, action: &Action) -> Result<(), ErrorCode> {
        match action {
            Action::Output { port, .. } => self.check_output(*port),
            Action::OutputTruncated { port, .. } => check_truncated(*port),
            Action::OutputField { source, .. } => self.need(source.field),
            Action::SetField { field, value, mask } => self.write(*field, *value, *mask),
            Action::Load { target, value } => {
                self.write(target.field, u128::from(*value) << target.offset, target.bits())
            }
            Action::Move { source, target } => self.copy(*source, *target),
            Action::PushVlan { .. } => {
                self.push_vlan();
                Ok(())
            }
            Action::PopVlan | Action::DecTtl { .. } if self.place == Place::ActionSet => Ok(()),
            Action::PopVlan => self.pop_vlan(),
            Action::DecTtl { .. } => self.need(FieldId::NwTtl),
            // What happens inside is undone afterwards. The codec bounds how deep clones nest.
            Action::Clone(actions) => self.clone().walk(actions),
            Action::Controller(_)
            | Action::Resubmit { .. }
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::Note(_)
            | Action::Exit => Ok(()),
        }
    }

    /// Numbers that no port has yet are legal: the packet goes nowhere until one does.
    const fn check_output(&self, port: PortNo) -> Result<(), ErrorCode> {
        let is_legal = match port {
            PortNo::IN_PORT | PortNo::FLOOD | PortNo::ALL | PortNo::CONTROLLER | PortNo::LOCAL => {
                true
            }
            PortNo::TABLE => matches!(self.place, Place::PacketOut),
            _ => port.number() <= PortNo::MAX.number(),
        };
        if is_legal { Ok(()) } else { Err(ErrorCode::ActionOutPort) }
    }

    /// Asks that packets have `field`.
    fn need(&self, field: FieldId) -> Result<(), ErrorCode> {
        let has_tag =
            self.key.field(FieldId::VlanTci) & self.mask.field(FieldId::VlanTci) & VLAN_PRESENT
                != 0;
        let is_met = match field {
            // A match may ask for the absence of a tag by this field; a write cannot.
            FieldId::VlanVid | FieldId::DlVlan => has_tag,
            _ => prerequisite::is_met(field, &self.key, &self.mask),
        };
        if is_met { Ok(()) } else { Err(ErrorCode::ActionInconsistent) }
    }

    fn write(&mut self, field: FieldId, value: u128, mask: u128) -> Result<(), ErrorCode> {
        self.need(field)?;
        // The one field that decides by its value whether others exist, and can be written.
        if field == FieldId::VlanTci {
            self.key.set_field_masked(field, value, mask);
            self.mask.add_bits(field, mask);
        }
        Ok(())
    }

    fn copy(&mut self, source: Subfield, target: Subfield) -> Result<(), ErrorCode> {
        self.need(source.field)?;
        self.need(target.field)?;
        if target.field == FieldId::VlanTci {
            self.mask.remove_bits(FieldId::VlanTci, target.bits());
        }
        Ok(())
    }

    fn push_vlan(&mut self) {
        self.key.set_field(FieldId::VlanTci1, self.key.field(FieldId::VlanTci));
        self.mask.add_bits(FieldId::VlanTci1, self.mask.field(FieldId::VlanTci));
        self.key.set_field(FieldId::VlanTci, VLAN_PRESENT);
        self.mask.add_field(FieldId::VlanTci);
    }

    fn pop_vlan(&mut self) -> Result<(), ErrorCode> {
        self.need(FieldId::VlanVid)?;
        self.key.set_field(FieldId::VlanTci, self.key.field(FieldId::VlanTci1));
        self.key.set_field(FieldId::VlanTci1, 0);
        Ok(())
    }
}

/// Only what leaves by one port can be cut.
fn check_truncated(port: PortNo) -> Result<(), ErrorCode> {
    let is_legal = port == PortNo::IN_PORT || port.is_physical();
    if is_legal { Ok(()) } else { Err(ErrorCode::ActionOutPort) }
}
