//! The LACP actor of a bond: its members by name, and the time of the switch.
//!
//! Links, options and received frames go in. Frames to send come out, and the decision which members may
//! send and receive. The task of `lacp_task.rs` gives it the time. See the crate `shunt_lacp`.

use std::{collections::BTreeMap, num::NonZeroU16, time::Duration};

use shunt_flow::PortNo;
use shunt_lacp::{
    Aggregator, AggregatorSettings, AggregatorStatus, LacpEvent, LacpMode, MemberId,
    MemberSettings, MuxState, PduError, SystemId,
};
use shunt_pipeline::{LacpAdmission, Time};

use crate::config::BondOptions;

/// A port that can be a member of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberPort {
    pub(crate) number: PortNo,
    /// Hardware address.
    pub(crate) mac: [u8; 6],
    pub(crate) link_up: bool,
}

/// The LACP actor of a bond.
#[derive(Debug)]
pub(crate) struct LacpActor {
    aggregator: Aggregator,
    /// The numbers of the members by their names.
    members: BTreeMap<String, PortNo>,
    /// The member with the port number that is the key of all members.
    ///
    /// It is another one only when this one is no member any more.
    key_member: Option<String>,
    fallback_ab: bool,
}

/// A frame to send on a port of the bridge.
pub(crate) type LacpFrame = (PortNo, Vec<u8>);

/// A change of a member, for the log.
pub(crate) type LacpMemberEvent = (String, LacpEvent);

impl LacpActor {
    /// Makes the actor of a bond without members.
    pub(crate) fn new(options: &BondOptions, mode: LacpMode, bridge: [u8; 6]) -> Self {
        let settings = settings(options, mode, bridge, NonZeroU16::MIN);
        let fallback_ab = options.lacp_fallback_ab;
        let aggregator = Aggregator::new(settings);
        Self { aggregator, members: BTreeMap::new(), key_member: None, fallback_ab }
    }

    /// Follows the options, the ports and their links.
    ///
    /// `bridge` is the address of the bridge.
    pub(crate) fn follow(
        &mut self,
        options: &BondOptions,
        mode: LacpMode,
        bridge: [u8; 6],
        port: impl Fn(&str) -> Option<MemberPort>,
        now: Time,
    ) {
        let now = age(now);
        let ports: Vec<_> =
            options.members.iter().filter_map(|name| Some((name, port(name)?))).collect();
        let members = ports.iter().map(|(name, port)| ((*name).clone(), port.number)).collect();
        for (name, number) in std::mem::replace(&mut self.members, members) {
            if self.members.get(&name) != Some(&number) {
                self.aggregator.remove_member(id(number), now);
            }
        }
        self.key_member = self.key_member.take().filter(|name| self.members.contains_key(name));
        if self.key_member.is_none() {
            self.key_member = ports.first().map(|(name, _)| (*name).clone());
        }
        let own = self.key_member.as_ref().and_then(|name| Some((name, self.members.get(name)?)));
        let key = own.map_or(NonZeroU16::MIN, |(name, number)| port_id(options, name, *number));
        self.fallback_ab = options.lacp_fallback_ab;
        self.aggregator.set_settings(settings(options, mode, bridge, key), now);
        for (name, port) in ports {
            let member = MemberSettings {
                mac: port.mac,
                port: port_id(options, name, port.number),
                port_priority: options.lacp_priority_of(name),
                key: options.lacp_aggregation_key.get(name).and_then(|key| NonZeroU16::new(*key)),
            };
            self.aggregator.set_member(id(port.number), member, now);
            self.aggregator.on_link(id(port.number), port.link_up, now);
        }
    }

    /// Returns whether a port is a member.
    pub(crate) fn has(&self, number: PortNo) -> bool {
        self.members.values().any(|own| *own == number)
    }

    /// Takes a frame of slow protocols that a member received.
    ///
    /// # Errors
    ///
    /// If the frame is malformed, or of another protocol. It has changed nothing.
    pub(crate) fn receive(
        &mut self,
        number: PortNo,
        frame: &[u8],
        now: Time,
    ) -> Result<(), PduError> {
        self.aggregator.on_frame(id(number), frame, age(now))
    }

    /// Returns the frames to send now, and the changes of members since the last call.
    pub(crate) fn run(&mut self, now: Time) -> (Vec<LacpFrame>, Vec<LacpMemberEvent>) {
        let output = self.aggregator.poll(age(now));
        let frames =
            output.frames.into_iter().map(|(MemberId(id), frame)| (PortNo::new(id), frame));
        let event = |event: LacpEvent| Some((self.name_of(event.member)?.to_owned(), event));
        (frames.collect(), output.events.into_iter().filter_map(event).collect())
    }

    /// Returns the time of the next [`Self::run`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.aggregator.next_deadline().map(|age| Time::ZERO.after(age))
    }

    /// Returns whether a member may send frames of the bond.
    pub(crate) fn distributes(&self, member: &str) -> bool {
        self.mux(member).is_distributing()
    }

    /// Returns whether a member of the bond has a partner.
    pub(crate) const fn is_negotiated(&self) -> bool {
        self.aggregator.is_negotiated()
    }

    /// Returns the packets that a member takes.
    pub(crate) fn admission(&self, member: &str, is_enabled: bool) -> LacpAdmission {
        match self.is_negotiated() {
            false if self.fallback_ab => LacpAdmission::Fallback,
            true if is_enabled || self.mux(member).is_collecting() => LacpAdmission::All,
            true | false => LacpAdmission::None,
        }
    }

    /// Returns the state of the actor.
    pub(crate) fn status(&self) -> AggregatorStatus {
        self.aggregator.status()
    }

    /// Returns the id of a member in [`Self::status`].
    pub(crate) fn id_of(&self, member: &str) -> Option<MemberId> {
        self.members.get(member).map(|number| id(*number))
    }

    fn mux(&self, member: &str) -> MuxState {
        self.id_of(member).map_or(MuxState::Detached, |id| self.aggregator.mux(id))
    }

    fn name_of(&self, member: MemberId) -> Option<&str> {
        let own = self.members.iter().find(|(_, number)| id(**number) == member);
        own.map(|(name, _)| name.as_str())
    }
}

/// Returns the settings of an actor, with `key` for members without their own one.
fn settings(
    options: &BondOptions,
    mode: LacpMode,
    bridge: [u8; 6],
    key: NonZeroU16,
) -> AggregatorSettings {
    let mac = options.lacp_system().unwrap_or(bridge);
    AggregatorSettings {
        mode,
        time: options.lacp_time.time(),
        system: SystemId { priority: options.lacp_system_priority, mac },
        key,
        fallback_ab: options.lacp_fallback_ab,
    }
}

/// Returns the port number of a member for LACP.
///
/// Both have 16 bits, so that it is unique in the bridge.
fn port_id(options: &BondOptions, member: &str, number: PortNo) -> NonZeroU16 {
    let own = options.lacp_port_id.get(member).copied();
    let id = own.or_else(|| u16::try_from(number.number()).ok());
    id.and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX)
}

const fn id(number: PortNo) -> MemberId {
    MemberId(number.number())
}

/// Returns the time since the start of the clock.
const fn age(now: Time) -> Duration {
    now.since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BondLacp;

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    /// Two switches with a bond of p1 and p2, and a cable between members of one name.
    struct Cables {
        ends: [(BondOptions, LacpActor); 2],
        links: [bool; 2],
    }

    impl Cables {
        fn new(change: impl Fn(&mut BondOptions)) -> Self {
            let end = |mac| {
                let members = vec!["p1".to_owned(), "p2".to_owned()];
                let mut options = BondOptions {
                    name: "b".into(),
                    members,
                    lacp: BondLacp::Active,
                    ..BondOptions::default()
                };
                change(&mut options);
                let actor = LacpActor::new(&options, LacpMode::Active, mac);
                (options, actor)
            };
            Self { ends: MACS.map(end), links: [true; 2] }
        }

        /// Runs both ends, from one second to another.
        fn run(&mut self, seconds: std::ops::Range<u64>) {
            for ms in (seconds.start * 1000..seconds.end * 1000).step_by(100) {
                let now = Time::ZERO.after(Duration::from_millis(ms));
                let links = self.links;
                let mut frames = [Vec::new(), Vec::new()];
                for (((options, actor), mac), out) in
                    self.ends.iter_mut().zip(MACS).zip(&mut frames)
                {
                    let port = |name: &str| {
                        let number = if name == "p1" { 1 } else { 2 };
                        let link_up = links[number as usize - 1];
                        Some(MemberPort { number: PortNo::new(number), mac, link_up })
                    };
                    actor.follow(options, LacpMode::Active, mac, port, now);
                    *out = actor.run(now).0;
                }
                let [one, two] = frames;
                for (end, frames) in self.ends.iter_mut().zip([two, one]) {
                    for (number, frame) in frames {
                        end.1.receive(number, &frame, now).unwrap();
                    }
                }
            }
        }

        fn admissions(&self) -> [LacpAdmission; 2] {
            ["p1", "p2"].map(|name| self.ends[0].1.admission(name, false))
        }
    }

    #[test]
    fn members_with_one_partner_are_used() {
        let mut cables = Cables::new(|_| ());
        assert_eq!(cables.admissions(), [LacpAdmission::None; 2]);
        cables.run(0..5);
        assert_eq!(cables.admissions(), [LacpAdmission::All; 2]);
        assert!(cables.ends.iter().all(|(_, own)| own.distributes("p1") && own.distributes("p2")));
        cables.links[0] = false;
        cables.run(5..6);
        assert_eq!(cables.admissions(), [LacpAdmission::None, LacpAdmission::All]);
        let status = cables.ends[0].1.status();
        assert_eq!(status.settings.system.mac, MACS[0]);
        assert_eq!(status.settings.key.get(), 1, "the number of the first member");
        assert_eq!(status.members[1].partner.system.mac, MACS[1]);
    }

    #[test]
    fn a_removed_member_gives_its_key_and_its_partner_up() {
        let mut cables = Cables::new(|options| {
            options.lacp_port_id.insert("p2".to_owned(), 77);
            options.lacp_system_id = "02:00:00:00:00:99".to_owned();
        });
        cables.ends[1].0.lacp_system_id.clear();
        cables.run(0..5);
        cables.ends[0].0.members.remove(0);
        cables.run(5..6);
        let (_, actor) = &cables.ends[0];
        assert!(!actor.has(PortNo::new(1)) && actor.has(PortNo::new(2)));
        let status = actor.status();
        assert_eq!((status.settings.key.get(), status.members.len()), (77, 1));
        assert_eq!(status.settings.system.mac, [2, 0, 0, 0, 0, 0x99]);
    }

    #[test]
    fn without_a_partner_only_the_fallback_admits() {
        for (fallback, admission) in [(false, LacpAdmission::None), (true, LacpAdmission::Fallback)]
        {
            let mut cables = Cables::new(|options| options.lacp_fallback_ab = fallback);
            cables.run(0..1);
            let (options, actor) = &mut cables.ends[0];
            // The partner is silent from now on.
            for second in 1..200 {
                let now = Time::ZERO.after(Duration::from_secs(second));
                let port = |name: &str| {
                    let number = PortNo::new(if name == "p1" { 1 } else { 2 });
                    Some(MemberPort { number, mac: MACS[0], link_up: true })
                };
                actor.follow(options, LacpMode::Active, MACS[0], port, now);
                actor.run(now);
            }
            assert_eq!(actor.admission("p1", false), admission);
            assert_eq!(actor.distributes("p1"), fallback);
        }
    }
}
