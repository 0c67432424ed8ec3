//! The LACP actor of a bond, with members by name and the daemon's clock.
//!
//! The actor gets links, options and received frames. The actor returns the frames to send, and
//! decides which members may send and receive. The LACP task (`lacp_task.rs`) passes it the time.
//! The crate `shunt_lacp` has the protocol.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
    time::Duration,
};

use shunt_flow::PortNo;
use shunt_lacp::{
    Aggregator, AggregatorSettings, AggregatorStatus, LacpEvent, LacpMode, MemberId,
    MemberSettings, MuxState, PduError, SystemId,
};
use shunt_pipeline::{LacpAdmission, Time};

use super::bond_events::BondEvent;
use crate::config::BondOptions;

/// A port that can be a member of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberPort {
    /// The number of the port in its bridge.
    pub(crate) number: PortNo,
    /// MAC address of the port.
    pub(crate) mac: [u8; 6],
    /// True if the link is up.
    pub(crate) link_up: bool,
}

/// The LACP actor of a bond.
#[derive(Debug)]
pub(crate) struct LacpActor {
    /// The state machines of LACP.
    aggregator: Aggregator,
    /// The port numbers of the members, by member name.
    members: BTreeMap<String, PortNo>,
    /// The LACP key of members without a configured key,
    /// which the first member determines.
    ///
    /// The key stays when this member is removed. A new key would make all other members negotiate
    /// again. Only a configured key of another bond replaces the key.
    key: Option<NonZeroU16>,
    /// Number of frames, by member, that were dropped because newer frames had arrived.
    refused: BTreeMap<PortNo, u64>,
    /// True if the bond acts as `active-backup` without a partner.
    fallback_ab: bool,
}

/// The LACP keys that the other bonds of a bridge use.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenLacpKeys {
    /// Keys of `lacp_aggregation_key`, which have precedence over chosen keys.
    pub(crate) configured: BTreeSet<NonZeroU16>,
    /// Keys that the switch chose for bonds.
    pub(crate) chosen: BTreeSet<NonZeroU16>,
}

impl TakenLacpKeys {
    /// Returns whether a bond uses a key.
    fn contains(&self, key: NonZeroU16) -> bool {
        self.configured.contains(&key) || self.chosen.contains(&key)
    }
}

/// A frame to send, with the number of the port in the bridge.
pub(crate) type LacpFrame = (PortNo, Vec<u8>);

/// A change of a member by its name, for the log.
pub(crate) type LacpMemberEvent = (String, LacpEvent);

impl LacpActor {
    /// Creates the actor of a bond without members.
    pub(crate) fn new(options: &BondOptions, mode: LacpMode, bridge: [u8; 6]) -> Self {
        let settings = settings(options, mode, bridge, NonZeroU16::MIN);
        let fallback_ab = options.lacp_fallback_ab;
        let aggregator = Aggregator::new(settings);
        let (members, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { aggregator, members, key: None, refused, fallback_ab }
    }

    /// Updates the actor from the options, the ports and their links.
    ///
    /// `bridge` is the MAC address of the bridge, and `taken` has the LACP keys of its other bonds.
    /// The actor chooses another key if `lacp_aggregation_key` of another bond has its key. Returns
    /// this change if a member has the key of the actor.
    pub(crate) fn follow(
        &mut self,
        options: &BondOptions,
        mode: LacpMode,
        bridge: [u8; 6],
        taken: &TakenLacpKeys,
        port: impl Fn(&str) -> Option<MemberPort>,
        now: Time,
    ) -> Option<BondEvent> {
        let now = age(now);
        let ports: Vec<_> =
            options.members.iter().filter_map(|name| Some((name, port(name)?))).collect();
        let members = ports.iter().map(|(name, port)| ((*name).clone(), port.number)).collect();
        for (name, number) in std::mem::replace(&mut self.members, members) {
            if self.members.get(&name) != Some(&number) {
                self.aggregator.remove_member(id(number), now);
            }
        }
        let members = &self.members;
        self.refused.retain(|number, _| members.values().any(|own| own == number));
        let before = self.key.filter(|key| taken.configured.contains(key));
        if before.is_some() {
            self.key = None;
        }
        if self.key.is_none() && !ports.is_empty() {
            let ids = ports.iter().map(|(name, port)| port_id(options, name, port.number));
            self.key = ids.chain(all_keys()).find(|key| !taken.contains(*key));
        }
        self.fallback_ab = options.lacp_fallback_ab;
        let key = self.key.unwrap_or(NonZeroU16::MIN);
        self.aggregator.set_settings(settings(options, mode, bridge, key), now);
        let mut is_used = false;
        for (name, port) in ports {
            let configured = options.lacp_aggregation_key.get(name);
            let member = MemberSettings {
                mac: port.mac,
                port: port_id(options, name, port.number),
                port_priority: options.lacp_priority_of(name),
                key: configured.and_then(|key| NonZeroU16::new(*key)),
            };
            is_used |= member.key.is_none();
            self.aggregator.set_member(id(port.number), member, now);
            self.aggregator.on_link(id(port.number), port.link_up, now);
        }
        let change = before.zip(self.key).filter(|_| is_used);
        change.map(|(before, after)| BondEvent::Rekeyed { before, after })
    }

    /// Removes a member, and returns its last LACPDU.
    ///
    /// With this LACPDU, the partner stops using the link immediately. The next [`Self::follow`]
    /// adds the member again if its port and its option still exist.
    pub(crate) fn leave(&mut self, member: &str, now: Time) -> Option<LacpFrame> {
        let number = self.members.remove(member)?;
        Some((number, self.aggregator.remove_member(id(number), age(now))?))
    }

    /// Returns the names of the ports that are members of the bond.
    pub(crate) fn member_names(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    /// Returns the LACP key of members without a configured key.
    ///
    /// `None` before the first member.
    pub(crate) const fn key(&self) -> Option<NonZeroU16> {
        self.key
    }

    /// Returns whether a port is a member of the bond.
    pub(crate) fn has(&self, number: PortNo) -> bool {
        self.members.values().any(|own| *own == number)
    }

    /// Handles a frame of slow protocols that a member received.
    ///
    /// # Errors
    ///
    /// If the frame is malformed, or of another protocol. A refused frame has no effect.
    pub(crate) fn receive(
        &mut self,
        number: PortNo,
        frame: &[u8],
        now: Time,
    ) -> Result<(), PduError> {
        self.aggregator.on_frame(id(number), frame, age(now))
    }

    /// Counts frames of a member that were dropped because newer frames had arrived.
    pub(crate) fn count_refused(&mut self, number: PortNo, count: u64) {
        if count > 0 {
            let own = self.refused.entry(number).or_default();
            *own = own.saturating_add(count);
        }
    }

    /// Returns the number of dropped frames of a member.
    ///
    /// The frames were dropped because newer frames had arrived.
    pub(crate) fn refused(&self, member: &str) -> u64 {
        let number = self.members.get(member);
        number.and_then(|number| self.refused.get(number)).copied().unwrap_or_default()
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

    /// Returns whether any member of the bond has a partner.
    pub(crate) const fn is_negotiated(&self) -> bool {
        self.aggregator.is_negotiated()
    }

    /// Returns which packets a member may receive.
    pub(crate) fn admission(&self, member: &str, is_enabled: bool) -> LacpAdmission {
        match self.is_negotiated() {
            false if self.fallback_ab => LacpAdmission::Fallback,
            true if is_enabled || self.mux(member).is_collecting() => LacpAdmission::All,
            true | false => LacpAdmission::None,
        }
    }

    /// Returns the status of the actor.
    pub(crate) fn status(&self) -> AggregatorStatus {
        self.aggregator.status()
    }

    /// Returns the id of a member in [`Self::status`].
    pub(crate) fn id_of(&self, member: &str) -> Option<MemberId> {
        self.members.get(member).map(|number| id(*number))
    }

    /// Returns the state of the mux machine of a member.
    fn mux(&self, member: &str) -> MuxState {
        self.id_of(member).map_or(MuxState::Detached, |id| self.aggregator.mux(id))
    }

    /// Returns the port name of a member.
    fn name_of(&self, member: MemberId) -> Option<&str> {
        let own = self.members.iter().find(|(_, number)| id(**number) == member);
        own.map(|(name, _)| name.as_str())
    }
}

/// Returns the settings of an actor; `key` is for members without a configured key.
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

/// Returns the LACP port number of a member.
///
/// By default it is the OpenFlow port number: numbers that fit 16 bits are unique in the bridge.
fn port_id(options: &BondOptions, member: &str, number: PortNo) -> NonZeroU16 {
    let own = options.lacp_port_id.get(member).copied();
    let id = own.or_else(|| u16::try_from(number.number()).ok());
    id.and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX)
}

/// Returns all possible LACP keys, the lowest first.
fn all_keys() -> impl Iterator<Item = NonZeroU16> {
    (1..=u16::MAX).filter_map(NonZeroU16::new)
}

/// Returns a port number as the id of a member.
const fn id(number: PortNo) -> MemberId {
    MemberId(number.number())
}

/// Returns the time since the start of the daemon's clock.
const fn age(now: Time) -> Duration {
    now.since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BondLacp;

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    /// Two switches, each with a bond of p1 and p2;
    /// cables connect members of the same name.
    struct Cables {
        ends: [(BondOptions, LacpActor); 2],
        links: [bool; 2],
        /// The LACP keys of other bonds on both switches.
        taken: TakenLacpKeys,
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
            Self { ends: MACS.map(end), links: [true; 2], taken: TakenLacpKeys::default() }
        }

        /// Runs both switches for a range of seconds.
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
                    actor.follow(options, LacpMode::Active, mac, &self.taken, port, now);
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

        /// Returns the admissions of both members.
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
    fn other_members_keep_key_of_removed_one() {
        let mut cables = Cables::new(|options| {
            options.lacp_port_id.insert("p1".to_owned(), 77);
            options.lacp_system_id = "02:00:00:00:00:99".to_owned();
        });
        cables.ends[1].0.lacp_system_id.clear();
        cables.run(0..5);
        cables.ends[0].0.members.remove(0);
        // A member that negotiated again would wait for two seconds before it is attached.
        cables.run(5..6);
        let (_, actor) = &cables.ends[0];
        assert!(!actor.has(PortNo::new(1)) && actor.has(PortNo::new(2)));
        let status = actor.status();
        assert_eq!((status.settings.key.get(), status.members.len()), (77, 1));
        assert_eq!(status.members[0].mux, MuxState::CollectingDistributing);
        assert_eq!(status.settings.system.mac, [2, 0, 0, 0, 0, 0x99]);
        cables.ends[0].0.members.insert(0, "p1".to_owned());
        cables.run(6..12);
        assert_eq!(cables.ends[0].1.status().settings.key.get(), 77);
        assert_eq!(cables.admissions(), [LacpAdmission::All; 2]);
    }

    /// Returns a set of keys.
    fn keys(numbers: &[u16]) -> BTreeSet<NonZeroU16> {
        numbers.iter().copied().filter_map(NonZeroU16::new).collect()
    }

    #[test]
    fn configured_key_displaces_key_of_bond() {
        let mut cables = Cables::new(|_| ());
        cables.run(0..5);
        let key = |cables: &Cables| cables.ends[0].1.key().map(NonZeroU16::get);
        // Another bond cannot choose the key, and the actor keeps it.
        cables.taken.chosen = keys(&[1]);
        cables.run(5..6);
        assert_eq!((key(&cables), cables.admissions()), (Some(1), [LacpAdmission::All; 2]));
        cables.taken.configured = keys(&[1, 2]);
        cables.run(6..16);
        assert_eq!(key(&cables), Some(3));
        let status = cables.ends[1].1.status();
        assert!(
            status.members.iter().all(|member| member.partner.key == 3),
            "the partner sees the new key"
        );
        assert_eq!(cables.admissions(), [LacpAdmission::All; 2], "both ends have negotiated again");
        cables.taken = TakenLacpKeys::default();
        cables.run(16..17);
        assert_eq!(key(&cables), Some(3), "the key stays");
    }

    /// Without such a member, no partner has seen the key of the actor.
    #[test]
    fn only_the_key_of_a_member_is_rekeyed() {
        for has_own_keys in [false, true] {
            let mut cables = Cables::new(|options| {
                let names = options.members.iter().filter(|_| has_own_keys);
                options.lacp_aggregation_key = names.map(|name| (name.clone(), 9)).collect();
            });
            cables.run(0..1);
            let now = Time::ZERO.after(Duration::from_secs(1));
            let port = |name: &str| {
                let number = PortNo::new(if name == "p1" { 1 } else { 2 });
                Some(MemberPort { number, mac: MACS[0], link_up: true })
            };
            let taken = TakenLacpKeys { configured: keys(&[1]), ..TakenLacpKeys::default() };
            let (options, actor) = &mut cables.ends[0];
            let event = actor.follow(options, LacpMode::Active, MACS[0], &taken, port, now);
            assert_eq!(event.is_none(), has_own_keys, "{event:?}");
            assert_eq!(actor.key().map(NonZeroU16::get), Some(2), "another bond has key 1");
        }
    }

    #[test]
    fn bond_keys_are_unique() {
        let key = |taken: &[u16]| {
            let mut cables = Cables::new(|_| ());
            cables.taken.chosen = keys(taken);
            cables.run(0..1);
            cables.ends[0].1.key().map(NonZeroU16::get)
        };
        assert_eq!([key(&[2]), key(&[1]), key(&[1, 2])], [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn member_that_leaves_is_left_by_partner() {
        let mut cables = Cables::new(|_| ());
        cables.run(0..5);
        let now = Time::ZERO.after(Duration::from_secs(5));
        let [(_, own), (_, partner)] = &mut cables.ends;
        let (number, frame) = own.leave("p1", now).unwrap();
        partner.receive(number, &frame, now).unwrap();
        assert!(!partner.distributes("p1") && partner.distributes("p2"));
        assert_eq!(own.admission("p1", false), LacpAdmission::None);
        assert_eq!(own.leave("p1", now), None);
    }

    #[test]
    fn without_a_partner_only_the_fallback_admits() {
        for (fallback, admission) in [(false, LacpAdmission::None), (true, LacpAdmission::Fallback)]
        {
            let mut cables = Cables::new(|options| options.lacp_fallback_ab = fallback);
            cables.run(0..1);
            let taken = TakenLacpKeys::default();
            let (options, actor) = &mut cables.ends[0];
            // The partner sends nothing from now on.
            for second in 1..200 {
                let now = Time::ZERO.after(Duration::from_secs(second));
                let port = |name: &str| {
                    let number = PortNo::new(if name == "p1" { 1 } else { 2 });
                    Some(MemberPort { number, mac: MACS[0], link_up: true })
                };
                actor.follow(options, LacpMode::Active, MACS[0], &taken, port, now);
                actor.run(now);
            }
            assert_eq!(actor.admission("p1", false), admission);
            assert_eq!(actor.distributes("p1"), fallback);
        }
    }
}
