//! Checks that packets have the fields that actions use (OpenFlow 1.3.5, 6.4 and 5.12).
//!
//! A rule is refused if one of its actions uses a field that a packet may lack: the match of the
//! rule must require the field. Actions change which fields a packet has: `push_vlan` adds a tag,
//! `pop_mpls` changes the packet type. The check therefore walks the action list with a flow key,
//! and changes the key as the actions change the packet.
//!
//! The module also checks output ports, because the legal ports depend on the context of the
//! actions.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    extract::{VlanLimit, extract},
    prerequisite,
};
use shunt_pipeline::{
    Action, FlowMod, FlowModCommand, FlowModError, GroupMod, LearnAction, LearnSource, LearnTarget,
    Subfield, TableSelector,
};

use crate::{
    error::{ErrorCode, RequestRefusal},
    message::PacketOut,
};

/// The bit of `vlan_tci` that is set if the packet has a tag.
const VLAN_PRESENT: u128 = 0x1000;

/// The treatment of an action that uses a field that its packets may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentFields {
    /// A request with such an action is refused.
    Refused,
    /// The action has no effect on packets without the field.
    ///
    /// OpenFlow 1.0 and group buckets have such actions.
    Ignored,
}

/// Checks the instructions of a flow-mod.
///
/// # Errors
///
/// The first action that does not fit the packets that reach it.
pub fn check_flow_mod(flow_mod: &FlowMod, absent: AbsentFields) -> Result<(), RequestRefusal> {
    match flow_mod.command {
        FlowModCommand::Add | FlowModCommand::Modify | FlowModCommand::ModifyStrict => {}
        FlowModCommand::Delete | FlowModCommand::DeleteStrict => return Ok(()),
    }
    let instructions = &flow_mod.instructions;
    if let (TableSelector::One(table), Some(target)) = (flow_mod.table, instructions.goto)
        && target <= table
    {
        return Err(FlowModError::GotoNotUp { table, target }.into());
    }
    let mut packet = KnownPacket { absent, ..KnownPacket::of_match(&flow_mod.matching) };
    packet.walk(&instructions.apply)?;
    packet.context = ActionContext::ActionSet;
    packet.walk(&instructions.write)
}

/// Checks the buckets of a group-mod. Any packet may reach a bucket.
///
/// # Errors
///
/// The first action that does not fit the packets that reach it.
pub fn check_group_mod(group_mod: &GroupMod) -> Result<(), RequestRefusal> {
    let packet = KnownPacket {
        context: ActionContext::Bucket,
        absent: AbsentFields::Ignored,
        ..KnownPacket::of_match(&Match::any())
    };
    group_mod.buckets.iter().try_for_each(|bucket| packet.clone().walk(&bucket.actions))
}

/// Checks the actions of a packet-out against its packet.
///
/// Up to `limit` VLAN tags of the packet are parsed.
///
/// # Errors
///
/// The first action that does not fit the packet.
pub fn check_packet_out(
    packet_out: &PacketOut,
    limit: VlanLimit,
    absent: AbsentFields,
) -> Result<(), RequestRefusal> {
    let mut key = FlowKey::ZERO;
    extract(&packet_out.data, limit, &mut key);
    let mut mask = FlowMask::EMPTY;
    mask.words_mut().fill(u64::MAX);
    KnownPacket { key, mask, context: ActionContext::PacketOut, absent }.walk(&packet_out.actions)
}

/// The context in which actions are executed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ActionContext {
    Rule,
    /// An action set: the packet at its execution is unknown.
    ///
    /// In an action set, only writes to fields are checked against the match, as in Open vSwitch.
    ActionSet,
    /// A group bucket, which any packet may reach.
    Bucket,
    PacketOut,
}

/// The known field values of the packets that reach an action.
#[derive(Clone)]
struct KnownPacket {
    /// The field values that every packet has.
    key: FlowKey,
    /// The bits that have the same value in every packet.
    mask: FlowMask,
    /// The rule or list that has the action.
    context: ActionContext,
    /// The fields that the packets lack.
    absent: AbsentFields,
}

impl KnownPacket {
    /// Returns the known field values of the packets that `matching` matches.
    fn of_match(matching: &Match) -> Self {
        let mask = FlowMask::from(matching.mask());
        let absent = AbsentFields::Refused;
        Self { key: matching.key(), mask, context: ActionContext::Rule, absent }
    }

    /// Checks a list of actions in their order.
    fn walk(&mut self, actions: &[Action]) -> Result<(), RequestRefusal> {
        actions.iter().try_for_each(|action| {
            // An unsupported action is refused as unsupported, before its context and arguments are
            // checked.
            if let Some(reason) = action.unsupported() {
                return Err(FlowModError::NotYet(reason).into());
            }
            // Changes inside a clone do not affect the actions after it. The codec limits the
            // nesting of clones.
            if let Action::Clone(actions) = action {
                return self.clone().walk(actions);
            }
            let refusal = |code| RequestRefusal::Action { code, action: Box::new(action.clone()) };
            self.step(action).map_err(refusal)
        })
    }

    /// Checks one action, and records its effect on the packet.
    fn step(&mut self, action: &Action) -> Result<(), ErrorCode> {
        use FieldId::{SctpDst, SctpSrc, TcpDst, TcpSrc, UdpDst, UdpSrc};

        match action {
            Action::Output { port, .. } => self.check_output(*port),
            Action::OutputTruncated { port, .. } => check_truncated(*port),
            Action::OutputField { source, .. } | Action::Push(source) => {
                self.check_prerequisites(source.field)
            }
            Action::SetField { field, value, mask } => self.set(*field, *value, *mask),
            Action::Load { target, value } => {
                self.set(target.field, u128::from(*value) << target.offset, target.bits())
            }
            Action::Move { source, target } => {
                self.check_prerequisites(source.field)?;
                self.write(*target)
            }
            Action::PushVlan { .. } => self.push_vlan(),
            Action::PushMpls { ethertype } => {
                self.set_type(*ethertype);
                // The protocol after an MPLS label is unknown.
                self.mask.remove_bits(FieldId::IpProto, FieldId::IpProto.value_max());
                Ok(())
            }
            Action::PopMpls { ethertype } => {
                self.need_outside_action_set(FieldId::MplsLabel)?;
                self.set_type(*ethertype);
                Ok(())
            }
            Action::SetMplsTtl(_) | Action::DecMplsTtl | Action::CopyTtlOut | Action::CopyTtlIn => {
                self.need_outside_action_set(FieldId::MplsTtl)
            }
            Action::PopVlan => self.pop_vlan(),
            Action::DecTtl { .. } | Action::SetNwTtl(_) => {
                self.need_outside_action_set(FieldId::NwTtl)
            }
            Action::SetTpSrc(_) => self.need_port([TcpSrc, UdpSrc, SctpSrc]),
            Action::SetTpDst(_) => self.need_port([TcpDst, UdpDst, SctpDst]),
            Action::Learn(learn) => self.check_learn(learn),
            Action::Pop(target) | Action::CheckPktLarger { target, .. } => self.write(*target),
            Action::Multipath(multipath) => self.write(multipath.target),
            Action::Bundle(bundle) => {
                bundle.members.iter().try_for_each(|port| check_member(*port))?;
                bundle.target.map_or(Ok(()), |target| self.write(target))
            }
            Action::FinTimeout { .. } => self.need(FieldId::TcpFlags),
            // A conjunction has no meaning outside of rules.
            Action::Conjunction { .. } if self.context != ActionContext::Rule => {
                Err(ErrorCode::ActionConjunction)
            }
            // The tables check that groups and meters exist, and which actions may accompany a
            // conjunction. `walk` handles clones and unsupported actions.
            Action::Conjunction { .. }
            | Action::Group(_)
            | Action::Meter(_)
            | Action::Controller(_)
            | Action::Resubmit { .. }
            | Action::SetQueue(_)
            | Action::PopQueue { .. }
            | Action::Note(_)
            | Action::Exit
            | Action::Clone(_)
            | Action::Ct(_)
            | Action::Nat(_)
            | Action::CtClear
            | Action::Sample(_) => Ok(()),
        }
    }

    /// Checks an output port.
    ///
    /// Unused port numbers are legal: the packet is dropped until such a port exists.
    const fn check_output(&self, port: PortNo) -> Result<(), ErrorCode> {
        let is_legal = match port {
            PortNo::IN_PORT
            | PortNo::NORMAL
            | PortNo::FLOOD
            | PortNo::ALL
            | PortNo::CONTROLLER
            | PortNo::LOCAL => true,
            PortNo::TABLE => matches!(self.context, ActionContext::PacketOut),
            _ => port.number() <= PortNo::MAX.number(),
        };
        if is_legal { Ok(()) } else { Err(ErrorCode::ActionOutPort) }
    }

    /// Checks that packets meet the prerequisites of `field`.
    fn check_prerequisites(&self, field: FieldId) -> Result<(), ErrorCode> {
        let is_met = self.absent == AbsentFields::Ignored
            || prerequisite::is_met(field, &self.key, &self.mask);
        if is_met { Ok(()) } else { Err(ErrorCode::ActionInconsistent) }
    }

    /// Checks that packets have `field` and that it can be written.
    fn need(&self, field: FieldId) -> Result<(), ErrorCode> {
        match field {
            // This field can match untagged packets; writing it requires a tag.
            FieldId::VlanVid | FieldId::DlVlan
                if self.absent == AbsentFields::Refused && !self.has_tag() =>
            {
                Err(ErrorCode::ActionInconsistent)
            }
            field if is_of_connection(field) => Err(ErrorCode::SetFieldArgument),
            _ => self.check_prerequisites(field),
        }
    }

    /// Checks that packets have one of `ports`; action sets are not checked.
    fn need_port(&self, ports: [FieldId; 3]) -> Result<(), ErrorCode> {
        let is_met = ports.into_iter().any(|port| self.need_outside_action_set(port).is_ok());
        if is_met { Ok(()) } else { Err(ErrorCode::ActionInconsistent) }
    }

    /// Checks that packets have `field` and that it can be written.
    ///
    /// In an action set, prerequisites are not checked.
    fn need_outside_action_set(&self, field: FieldId) -> Result<(), ErrorCode> {
        if self.context == ActionContext::ActionSet { Ok(()) } else { self.need(field) }
    }

    /// Returns whether the packet is known to have a VLAN tag.
    fn has_tag(&self) -> bool {
        self.known(FieldId::VlanTci) & VLAN_PRESENT != 0
    }

    /// Returns the bits of a field that are known to be set.
    fn known(&self, field: FieldId) -> u128 {
        self.key.field(field) & self.mask.field(field)
    }

    /// Checks a write to a field, and records the value if others depend on it.
    fn set(&mut self, field: FieldId, value: u128, mask: u128) -> Result<(), ErrorCode> {
        self.need(field)?;
        // `VlanTci` is the only writable field with a value that decides whether other fields
        // exist.
        if field == FieldId::VlanTci {
            self.key.set_field_masked(field, value, mask);
            self.mask.add_bits(field, mask);
        }
        Ok(())
    }

    /// Checks that packets have a field that gets an unknown value.
    ///
    /// As in Open vSwitch, packets keep the tag that they are known to have. If the value removes
    /// the tag, a later write to `vlan_vid` adds one.
    fn write(&self, target: Subfield) -> Result<(), ErrorCode> {
        match target.field {
            // The copied value may contain the tag-present bit.
            FieldId::VlanVid => self.check_prerequisites(target.field),
            field => self.need(field),
        }
    }

    /// Adds a VLAN tag to the packet, or refuses the action.
    fn push_vlan(&mut self) -> Result<(), ErrorCode> {
        if self.has_tag() && self.known(FieldId::VlanTci1) & VLAN_PRESENT != 0 {
            return Err(ErrorCode::ActionTag);
        }
        self.key.set_field(FieldId::VlanTci1, self.key.field(FieldId::VlanTci));
        self.mask.remove_bits(FieldId::VlanTci1, FieldId::VlanTci1.value_max());
        self.mask.add_bits(FieldId::VlanTci1, self.mask.field(FieldId::VlanTci));
        self.key.set_field(FieldId::VlanTci, VLAN_PRESENT);
        self.mask.add_field(FieldId::VlanTci);
        Ok(())
    }

    /// Removes the outer VLAN tag of the packet, or refuses the action.
    fn pop_vlan(&mut self) -> Result<(), ErrorCode> {
        self.need_outside_action_set(FieldId::VlanVid)?;
        self.key.set_field(FieldId::VlanTci, self.key.field(FieldId::VlanTci1));
        self.mask.remove_bits(FieldId::VlanTci, FieldId::VlanTci.value_max());
        self.mask.add_bits(FieldId::VlanTci, self.mask.field(FieldId::VlanTci1));
        self.key.set_field(FieldId::VlanTci1, 0);
        self.mask.add_field(FieldId::VlanTci1);
        Ok(())
    }

    /// Records a new Ethernet type of the packet.
    fn set_type(&mut self, ethertype: u16) {
        self.key.set_field(FieldId::EthType, ethertype.into());
        self.mask.add_field(FieldId::EthType);
    }

    /// Refuses a `learn` action that uses a field which the packet may lack.
    fn check_learn(&self, learn: &LearnAction) -> Result<(), ErrorCode> {
        // The part of the learned match that is the same for all packets.
        let mut learned = Self::of_match(&Match::any());
        for spec in &learn.specs {
            if let LearnSource::Field(source) = spec.source {
                self.check_prerequisites(source.field)?;
            }
            match spec.target {
                LearnTarget::Match(target) => {
                    learned.check_prerequisites(target.field)?;
                    if let LearnSource::Value(value) = spec.source {
                        let (value, bits) = (value << target.offset, target.bits());
                        learned.key.set_field_masked(target.field, value, bits);
                        learned.mask.add_bits(target.field, bits);
                    }
                }
                // A learned rule may load a VLAN field without a match on a tag, as in Open
                // vSwitch.
                LearnTarget::Load(target) if !is_of_connection(target.field) => {
                    learned.check_prerequisites(target.field)?;
                }
                LearnTarget::Load(_) => return Err(ErrorCode::SetFieldArgument),
                LearnTarget::Output => {}
            }
        }
        learn.result.map_or(Ok(()), |result| self.need(result.field))
    }
}

/// Returns whether the field belongs to a connection, not to a packet.
const fn is_of_connection(field: FieldId) -> bool {
    matches!(field, FieldId::CtMark | FieldId::CtLabel)
}

/// Checks the port of a truncating output: only a single port is legal.
fn check_truncated(port: PortNo) -> Result<(), ErrorCode> {
    let is_legal = port == PortNo::IN_PORT || port.is_physical();
    if is_legal { Ok(()) } else { Err(ErrorCode::ActionOutPort) }
}

/// Checks a bundle member: a port with a link state, or no port at all.
fn check_member(port: PortNo) -> Result<(), ErrorCode> {
    let is_legal = matches!(port, PortNo::LOCAL | PortNo::IN_PORT | PortNo::ANY)
        || port.number() <= PortNo::MAX.number();
    if is_legal { Ok(()) } else { Err(ErrorCode::ActionOutPort) }
}

#[cfg(test)]
mod tests {
    use shunt_flow::text::{NoPortNames, parse_match};
    use shunt_pipeline::{
        Cookie, FlowFlags, Instructions, LearnSpec, Priority, RuleFilter, TableId,
    };

    use super::*;

    /// Checks actions behind a match.
    fn check(matching: &str, apply: Vec<Action>) -> Result<(), ErrorCode> {
        check_rule(matching, Instructions { apply: apply.into(), ..Instructions::default() })
    }

    fn check_written(matching: &str, write: Vec<Action>) -> Result<(), ErrorCode> {
        check_rule(matching, Instructions { write: write.into(), ..Instructions::default() })
    }

    fn check_rule(matching: &str, instructions: Instructions) -> Result<(), ErrorCode> {
        let flow_mod = FlowMod {
            command: FlowModCommand::Add,
            table: TableSelector::One(TableId::FIRST),
            matching: parse_match(matching, &NoPortNames).unwrap(),
            priority: Priority::new(1),
            cookie: Cookie::new(0),
            cookie_mask: 0,
            idle_timeout: std::time::Duration::ZERO,
            hard_timeout: std::time::Duration::ZERO,
            importance: 0,
            flags: FlowFlags::default(),
            out_port: PortNo::ANY,
            out_group: RuleFilter::GROUP_ANY,
            instructions,
        };
        check_flow_mod(&flow_mod, AbsentFields::Refused).map_err(|refusal| refusal.code())
    }

    /// Returns the action that sets a field.
    fn set(field: FieldId) -> Action {
        Action::SetField { field, value: 1, mask: field.value_max() }
    }

    #[test]
    fn mpls_hides_fields_until_it_is_popped() {
        let push = || Action::PushMpls { ethertype: 0x8847 };
        let pop = |ethertype| Action::PopMpls { ethertype };
        let inconsistent = Err(ErrorCode::ActionInconsistent);
        assert_eq!(check("tcp", vec![push(), set(FieldId::MplsLabel)]), Ok(()));
        assert_eq!(check("tcp", vec![push(), set(FieldId::Ipv4Dst)]), inconsistent);
        assert_eq!(check("tcp", vec![push(), pop(0x0800), set(FieldId::Ipv4Dst)]), Ok(()));
        assert_eq!(check("tcp", vec![push(), pop(0x0800), set(FieldId::TcpDst)]), inconsistent);
        assert_eq!(check("mpls", vec![pop(0x8847), pop(0x86dd), set(FieldId::Ipv6Dst)]), Ok(()));
        assert_eq!(check("tcp", vec![pop(0x0800)]), inconsistent);
        let written = [pop(0x0800), set(FieldId::TcpDst)];
        assert_eq!(check_written("tcp", written.to_vec()), Ok(()));
    }

    #[test]
    fn action_sets_may_write_ports_without_a_match() {
        let push = Action::PushMpls { ethertype: 0x8847 };
        for action in [Action::SetTpSrc(5), Action::SetTpDst(5)] {
            let list = [push.clone(), action.clone()].to_vec();
            assert_eq!(check("sctp", list.clone()), Err(ErrorCode::ActionInconsistent));
            assert_eq!(check_written("sctp", list), Ok(()));
            assert_eq!(check_written("", [action].to_vec()), Ok(()));
        }
    }

    #[test]
    fn a_key_holds_two_parsed_tags() {
        let push = || Action::PushVlan { ethertype: 0x8100 };
        assert_eq!(check("", vec![push(), push()]), Ok(()));
        assert_eq!(check("", vec![push(), push(), push()]), Err(ErrorCode::ActionTag));
        assert_eq!(check("", vec![push(), push(), Action::PopVlan, push()]), Ok(()));
        let mut data = vec![0; 64];
        data[12..20].copy_from_slice(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
        let packet = PacketOut { in_port: PortNo::ANY, actions: vec![push()], data };
        assert_eq!(check_packet_out(&packet, VlanLimit::One, AbsentFields::Refused), Ok(()));
        let refused = check_packet_out(&packet, VlanLimit::Two, AbsentFields::Refused).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ActionTag);
    }

    /// Open vSwitch 3.1 accepts and refuses the same rules.
    #[test]
    fn an_unknown_write_keeps_the_known_tag() {
        let target = Subfield::whole(FieldId::VlanTci);
        let source = Subfield::new(FieldId::Reg0, 0, 16).unwrap();
        let inconsistent = Err(ErrorCode::ActionInconsistent);
        for write in [Action::Pop(target), Action::Move { source, target }] {
            let list = vec![write.clone(), set(FieldId::VlanVid)];
            assert_eq!(check("dl_vlan=5", list.clone()), Ok(()));
            assert_eq!(check("", list.clone()), inconsistent);
            assert_eq!(check("vlan_tci=0", list), inconsistent);
            let popped = vec![write, Action::PopVlan, set(FieldId::VlanVid)];
            assert_eq!(check("dl_vlan=5", popped), inconsistent);
        }
        let untagged = vec![set(FieldId::VlanTci), set(FieldId::VlanVid)];
        assert_eq!(check("dl_vlan=5", untagged), inconsistent);
    }

    #[test]
    fn a_learned_rule_needs_its_own_prerequisites() {
        let whole = |field, value| LearnSpec {
            source: LearnSource::Value(value),
            target: LearnTarget::Match(Subfield::whole(field)),
            width: FieldId::width(field),
        };
        let learn = |specs: Vec<LearnSpec>| {
            Action::Learn(Box::new(LearnAction {
                idle_timeout: 0,
                hard_timeout: 0,
                priority: Priority::new(1),
                cookie: Cookie::new(0),
                table: TableId::FIRST,
                fin_idle_timeout: 0,
                fin_hard_timeout: 0,
                send_flow_removed: false,
                delete_learned: false,
                limit: 0,
                result: None,
                specs: specs.into(),
            }))
        };
        let (ip, address) = (whole(FieldId::EthType, 0x0800), whole(FieldId::Ipv4Dst, 1));
        let inconsistent = Err(ErrorCode::ActionInconsistent);
        assert_eq!(check("ip", vec![learn(vec![address.clone()])]), inconsistent);
        assert_eq!(check("", vec![learn(vec![address.clone(), ip.clone()])]), inconsistent);
        assert_eq!(check("", vec![learn(vec![ip.clone(), address])]), Ok(()));
        let copied = LearnSpec {
            source: LearnSource::Field(Subfield::whole(FieldId::Ipv4Src)),
            target: LearnTarget::Match(Subfield::whole(FieldId::Ipv4Dst)),
            width: 32,
        };
        assert_eq!(check("", vec![learn(vec![ip.clone(), copied.clone()])]), inconsistent);
        assert_eq!(check("ip", vec![learn(vec![ip, copied])]), Ok(()));
    }
}
