//! One aggregator with several members; the tests script the LACPDUs of the partners.
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::{num::NonZeroU16, time::Duration};

use shunt_lacp::{
    Aggregator, AggregatorSettings, LacpInfo, LacpMode, LacpState, LacpTime, Lacpdu, MemberId,
    MemberSettings, MuxState, ReceiveState, SlowFrame, SystemId, Unselected,
};

/// A bond with a scripted partner for each member, which repeats what it was sent.
struct Bond {
    aggregator: Aggregator,
    settings: AggregatorSettings,
    partners: Vec<LacpInfo>,
    now: Duration,
}

impl Bond {
    /// Returns a bond with links that are up,
    /// after two seconds and some exchanged LACPDUs.
    fn new(
        settings: AggregatorSettings,
        members: &[MemberSettings],
        partners: &[LacpInfo],
    ) -> Self {
        let aggregator = Aggregator::new(settings);
        let mut bond =
            Self { aggregator, settings, partners: partners.into(), now: Duration::ZERO };
        for (id, member) in (0..).map(MemberId).zip(members) {
            bond.aggregator.set_member(id, *member, bond.now);
            bond.aggregator.on_link(id, true, bond.now);
        }
        bond.run(4);
        bond
    }

    /// Advances the time by seconds; partners with a port number answer each second.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 2 {
            let actors: Vec<_> = self.aggregator.status().members.iter().map(|m| m.actor).collect();
            for (index, (partner, actor)) in self.partners.iter().zip(actors).enumerate() {
                if partner.port != 0 {
                    let frame = SlowFrame::Lacpdu(Lacpdu {
                        actor: *partner,
                        partner: actor,
                        collector_max_delay: 0,
                    });
                    self.aggregator.on_frame(id(index), &frame.emit([4; 6]), self.now).unwrap();
                }
            }
            self.aggregator.poll(self.now);
            self.now += Duration::from_millis(500);
        }
    }

    fn enabled_members(&self) -> Vec<usize> {
        let is_enabled = |index: &usize| self.aggregator.mux(id(*index)).is_distributing();
        (0..self.partners.len()).filter(is_enabled).collect()
    }

    fn reasons(&self) -> Vec<Option<Unselected>> {
        self.aggregator.status().members.iter().map(|member| member.unselected).collect()
    }

    fn lead(&self) -> Option<MemberId> {
        self.aggregator.status().lead
    }
}

fn id(index: usize) -> MemberId {
    MemberId(u32::try_from(index).unwrap())
}

fn settings() -> AggregatorSettings {
    AggregatorSettings {
        mode: LacpMode::Active,
        time: LacpTime::Fast,
        system: SystemId { priority: 10, mac: [2; 6] },
        key: NonZeroU16::MIN,
        fallback_ab: false,
    }
}

fn member(port: u16) -> MemberSettings {
    let port_priority = MemberSettings::PORT_PRIORITY;
    MemberSettings { mac: [2; 6], port: NonZeroU16::new(port).unwrap(), port_priority, key: None }
}

/// Returns the information about a partner that is ready for frames.
///
/// The system of the partner has priority 20, so the other end chooses the lead.
fn partner(system: u8, port: u16) -> LacpInfo {
    let flags = [LacpState::ACTIVITY, LacpState::AGGREGATION, LacpState::USE];
    LacpInfo {
        system: SystemId { priority: 20, mac: [system; 6] },
        key: 5,
        port_priority: 9,
        port,
        state: flags.into_iter().fold(LacpState::default(), LacpState::with),
    }
}

/// The members with the numbers 1 to 3.
const THREE: fn() -> [MemberSettings; 3] = || [member(1), member(2), member(3)];

/// All other members lead to another system, and carry no frames.
#[test]
fn members_with_partner_of_lead_are_enabled() {
    let other = Some(Unselected::OtherPartner);
    let partners = [partner(1, 7), partner(2, 8), partner(1, 9)];
    let mut bond = Bond::new(settings(), &THREE(), &partners);
    assert_eq!((bond.enabled_members(), bond.lead()), (vec![0, 2], Some(id(0))));
    assert_eq!(bond.reasons(), [None, other, None]);
    // The member with the other partner gets a lower value, which is preferred.
    let preferred = MemberSettings { port_priority: 3, ..member(2) };
    bond.aggregator.set_member(id(1), preferred, bond.now);
    assert_eq!(bond.enabled_members(), [0_usize; 0], "the partner has changed");
    bond.run(4);
    assert_eq!((bond.enabled_members(), bond.lead()), (vec![1], Some(id(1))));
    assert_eq!(bond.reasons(), [other, None, other]);
}

#[test]
fn members_with_another_partner_key_are_separate() {
    let partners = [partner(1, 7), LacpInfo { key: 6, ..partner(1, 8) }, partner(1, 9)];
    let bond = Bond::new(settings(), &THREE(), &partners);
    assert_eq!(bond.enabled_members(), [0, 2]);
}

#[test]
fn members_with_another_own_key_are_separate() {
    let own = MemberSettings { key: NonZeroU16::new(9), ..member(1) };
    let partners = [partner(1, 7), partner(1, 8), partner(1, 9)];
    let bond = Bond::new(settings(), &[own, member(2), member(3)], &partners);
    assert_eq!(bond.enabled_members(), [0]);
    assert_eq!(bond.reasons()[1], Some(Unselected::OtherKey));
    let status = bond.aggregator.status();
    assert_eq!(status.members.iter().map(|member| member.actor.key).collect::<Vec<_>>(), [9, 1, 1]);
}

#[test]
fn the_lower_system_decides_which_priorities_count() {
    let first = LacpInfo { port_priority: 8, ..partner(1, 7) };
    let second = LacpInfo { port_priority: 4, ..partner(2, 8) };
    let mut bond = Bond::new(settings(), &[member(1), member(2)], &[first, second]);
    assert_eq!(bond.lead(), Some(id(0)), "own port numbers");
    for partner in &mut bond.partners {
        partner.system.priority = 5;
    }
    bond.run(4);
    assert_eq!(
        (bond.lead(), bond.enabled_members()),
        (Some(id(1)), vec![1]),
        "priorities of partners"
    );
}

#[test]
fn an_individual_link_is_used_alone() {
    let alone = |port| {
        let info = partner(1, port);
        LacpInfo { state: info.state.without(LacpState::AGGREGATION), ..info }
    };
    let bond = Bond::new(settings(), &THREE(), &[alone(7), alone(8), partner(1, 9)]);
    assert_eq!(bond.enabled_members(), [0]);
}

#[test]
fn a_link_to_the_own_system_carries_nothing() {
    let own = LacpInfo { system: settings().system, ..partner(1, 7) };
    let bond = Bond::new(settings(), &[member(1), member(2)], &[own, partner(1, 8)]);
    assert_eq!((bond.enabled_members(), bond.lead()), (vec![1], Some(id(1))));
    assert_eq!(bond.reasons()[0], Some(Unselected::OwnSystem));
}

#[test]
fn a_silent_lead_gives_way_at_once() {
    let mut bond = Bond::new(settings(), &[member(1), member(2)], &[partner(1, 7), partner(2, 8)]);
    assert_eq!(bond.enabled_members(), [0]);
    bond.partners[0].port = 0;
    bond.run(4);
    let status = bond.aggregator.status().members[0];
    assert_eq!((status.receive, status.mux), (ReceiveState::Expired, MuxState::Detached));
    bond.run(2);
    assert_eq!(bond.enabled_members(), [1]);
}

/// With `lacp-fallback-ab`, members carry frames until one finds a partner.
#[test]
fn members_without_partner_are_only_fallback() {
    let settings = AggregatorSettings { fallback_ab: true, ..settings() };
    let silent = LacpInfo::default();
    let mut bond = Bond::new(settings, &THREE(), &[silent; 3]);
    assert_eq!((bond.enabled_members(), bond.aggregator.is_negotiated()), (vec![0, 1, 2], false));
    bond.aggregator.on_link(id(0), false, bond.now);
    assert_eq!(bond.enabled_members(), [1, 2]);
    assert_eq!(bond.reasons(), [Some(Unselected::LinkDown), None, None]);
    bond.partners[1] = partner(1, 7);
    bond.run(1);
    assert_eq!((bond.enabled_members(), bond.aggregator.is_negotiated()), (vec![], true));
    assert_eq!(bond.reasons()[2], Some(Unselected::NoPartner));
    bond.run(2);
    assert_eq!(bond.enabled_members(), [1]);
    bond.settings.fallback_ab = false;
    bond.partners[1] = silent;
    bond.aggregator.set_settings(bond.settings, bond.now);
    bond.run(8);
    assert_eq!(bond.enabled_members(), [0_usize; 0]);
}

#[test]
fn marker_requests_are_answered_five_times_a_second() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    bond.aggregator.poll(bond.now);
    let marker = shunt_lacp::Marker { port: 7, system: [1; 6], transaction: 0x0102_0304 };
    let request = SlowFrame::MarkerRequest(marker).emit([4; 6]);
    for _ in 0..8 {
        bond.aggregator.on_frame(id(0), &request, bond.now).unwrap();
    }
    let frames = bond.aggregator.poll(bond.now).frames;
    let response = SlowFrame::MarkerResponse(marker).emit([2; 6]);
    assert_eq!(frames, vec![(id(0), response.clone()); 5]);
    assert_eq!(bond.aggregator.on_frame(id(0), &response, bond.now), Ok(()));
    assert_eq!(bond.aggregator.poll(bond.now).frames, [], "a response has none");
    let counters = bond.aggregator.status().members[0].counters;
    assert_eq!((counters.rx_marker_requests, counters.tx_marker_responses), (8, 5));
    let later = bond.now + Duration::from_secs(1);
    bond.aggregator.on_frame(id(0), &request, later).unwrap();
    let frames = bond.aggregator.poll(later).frames;
    assert!(frames.contains(&(id(0), response)), "{frames:?}");
}

#[test]
fn a_link_without_carrier_takes_and_sends_nothing() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    let request = SlowFrame::MarkerRequest(shunt_lacp::Marker::default()).emit([4; 6]);
    bond.aggregator.on_frame(id(0), &request, bond.now).unwrap();
    bond.aggregator.on_link(id(0), false, bond.now);
    let before = bond.aggregator.status();
    for frame in [SlowFrame::Lacpdu(Lacpdu::default()).emit([4; 6]), request] {
        assert_eq!(bond.aggregator.on_frame(id(0), &frame, bond.now), Ok(()));
    }
    assert_eq!(bond.aggregator.poll(bond.now).frames, []);
    assert_eq!((bond.aggregator.status(), bond.aggregator.next_deadline()), (before, None));
}

#[test]
fn each_return_of_a_link_is_announced() {
    let mut bond = Bond::new(settings(), &[member(1)], &[LacpInfo::default()]);
    for _ in 0..2 {
        bond.aggregator.on_link(id(0), false, bond.now);
        bond.aggregator.on_link(id(0), true, bond.now);
        assert_eq!(bond.aggregator.poll(bond.now).frames.len(), 1);
        assert_eq!(bond.aggregator.poll(bond.now).frames.len(), 0);
    }
    assert_eq!(bond.aggregator.status().members[0].counters.carrier_changes, 5);
}

#[test]
fn a_flapping_partner_is_used_every_two_seconds() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    let (mut events, mut enabled) = (0, 0);
    // The partner sends 200 LACPDUs in a second, each with other flags than the previous LACPDU.
    for count in 0..2000 {
        let uses = partner(1, 7).state;
        let state = if count % 2 == 0 { uses.without(LacpState::USE) } else { uses };
        let actor = LacpInfo { state, ..partner(1, 7) };
        let partner = bond.aggregator.status().members[0].actor;
        let frame = SlowFrame::Lacpdu(Lacpdu { actor, partner, collector_max_delay: 0 });
        bond.aggregator.on_frame(id(0), &frame.emit([4; 6]), bond.now).unwrap();
        let changes = bond.aggregator.poll(bond.now).events;
        events += changes.len();
        enabled += changes.iter().filter(|event| event.mux.is_distributing()).count();
        bond.now += Duration::from_millis(5);
    }
    assert!(enabled <= 5 && events <= 15, "enabled {enabled} times, {events} changes in 10 s");
}

#[test]
fn the_flags_show_the_receive_state() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    let flags = |bond: &Bond| bond.aggregator.status().members[0].actor.state.to_string();
    let enabled = "activity timeout aggregation synchronized collecting distributing";
    assert_eq!(flags(&bond), enabled);
    bond.partners[0].port = 0;
    bond.run(4);
    assert_eq!(flags(&bond), "activity timeout aggregation expired");
    bond.run(3);
    assert_eq!(flags(&bond), "activity timeout aggregation defaulted");
}

#[test]
fn a_late_lacpdu_is_handled_after_the_expiry() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    // The aggregator was not called for an hour.
    bond.now += Duration::from_secs(3600);
    let frame = SlowFrame::Lacpdu(Lacpdu::default()).emit([4; 6]);
    bond.aggregator.on_frame(id(0), &frame, bond.now).unwrap();
    let status = bond.aggregator.status().members[0];
    assert_eq!((status.counters.expired, status.counters.defaulted), (1, 0));
    assert_eq!(status.receive, ReceiveState::Current);
}

#[test]
fn malformed_frames_are_counted_and_change_nothing() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    let before = bond.aggregator.status().members[0];
    let mut frame = SlowFrame::Lacpdu(Lacpdu::default()).emit([4; 6]);
    frame[14] = 3;
    assert!(!bond.aggregator.on_frame(id(0), &frame, bond.now).unwrap_err().is_malformed());
    assert_eq!(
        bond.aggregator.status().members[0].counters.rx_bad_pdus,
        0,
        "the frame is not an LACPDU"
    );
    frame[14] = 1;
    frame[17] = 0;
    assert!(bond.aggregator.on_frame(id(0), &frame, bond.now).unwrap_err().is_malformed());
    let mut after = bond.aggregator.status().members[0];
    assert_eq!(after.counters.rx_bad_pdus, 1);
    after.counters.rx_bad_pdus = 0;
    assert_eq!(after, before);
}

#[test]
fn removed_and_unknown_members_are_detached() {
    let mut bond = Bond::new(settings(), &THREE(), &[partner(1, 7), partner(1, 8), partner(1, 9)]);
    bond.aggregator.remove_member(id(0), bond.now);
    bond.aggregator.on_link(id(5), true, bond.now);
    assert_eq!(bond.aggregator.on_frame(id(5), &[], bond.now), Ok(()));
    assert_eq!(bond.enabled_members(), [1, 2], "the others stay as they are");
    assert_eq!(bond.lead(), Some(id(1)));
}

#[test]
fn last_lacpdu_states_that_member_leaves() {
    let mut bond = Bond::new(settings(), &[member(1), member(2)], &[partner(1, 7), partner(1, 8)]);
    let frame = bond.aggregator.remove_member(id(0), bond.now).unwrap();
    let actor = LacpInfo {
        system: settings().system,
        key: 1,
        port_priority: MemberSettings::PORT_PRIORITY,
        port: 1,
        state: LacpState::ACTIVITY.with(LacpState::TIMEOUT).with(LacpState::AGGREGATION),
    };
    let pdu = Lacpdu { actor, partner: partner(1, 7), collector_max_delay: 0 };
    assert_eq!(SlowFrame::parse(&frame), Ok(SlowFrame::Lacpdu(pdu)));
    bond.aggregator.on_link(id(1), false, bond.now);
    assert_eq!(bond.aggregator.remove_member(id(1), bond.now), None, "its link is down");
    assert_eq!(bond.aggregator.remove_member(id(1), bond.now), None, "the port is no member");
}

#[test]
fn events_name_each_change_once() {
    let mut bond = Bond::new(settings(), &[member(1)], &[partner(1, 7)]);
    assert_eq!(bond.aggregator.poll(bond.now).events, []);
    bond.aggregator.on_link(id(0), false, bond.now);
    let texts = |bond: &mut Bond| {
        let events = bond.aggregator.poll(bond.now).events;
        events.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(texts(&mut bond), ["port_disabled detached"]);
    bond.aggregator.on_link(id(0), true, bond.now);
    let known = "partner 01:01:01:01:01:01 priority 20 key 5 port 7";
    assert_eq!(texts(&mut bond), [format!("expired waiting, {known}")]);
    assert_eq!(texts(&mut bond), [""; 0]);
    for _ in 0..2 {
        bond.aggregator.remove_member(id(0), bond.now);
        bond.aggregator.set_member(id(0), member(1), bond.now);
        bond.aggregator.on_link(id(0), true, bond.now);
        assert_eq!(texts(&mut bond), [UNKNOWN]);
    }
}

/// The state of a member that has heard of no partner.
const UNKNOWN: &str = "expired detached";
