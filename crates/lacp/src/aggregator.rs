//! The aggregator: the members of a bond, and the events that change their states.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    error::PduError,
    machines::{mux::MuxState, receive::ReceiveState},
    member::{AggregatorMember, add_one},
    selection::{LeadRank, select},
    settings::{AggregatorSettings, MemberSettings},
    status::{AggregatorStatus, LacpEvent, LacpMemberStatus},
    wire::frame::SlowFrame,
};

/// The id of a member, which the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// The LACP actor of a bond.
///
/// Each event has the time of its occurrence, counted from a start that the caller chooses. After
/// each event, and at [`next_deadline`](Self::next_deadline), the caller calls [`poll`](Self::poll)
/// and sends the returned frames. [`mux`](Self::mux) returns which members carry the frames of the
/// bond. Each call costs O(members).
#[derive(Debug)]
pub struct Aggregator {
    settings: AggregatorSettings,
    members: BTreeMap<MemberId, AggregatorMember>,
    lead: Option<MemberId>,
    reported: BTreeMap<MemberId, (ReceiveState, MuxState)>,
}

/// The result of [`Aggregator::poll`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LacpOutput {
    /// Ethernet frames to send, each with its member.
    pub frames: Vec<(MemberId, Vec<u8>)>,
    /// Changes of members since the last call.
    pub events: Vec<LacpEvent>,
}

impl Aggregator {
    /// Returns an aggregator without members.
    #[must_use]
    pub const fn new(settings: AggregatorSettings) -> Self {
        Self { settings, members: BTreeMap::new(), lead: None, reported: BTreeMap::new() }
    }

    /// Changes the settings of the aggregator.
    ///
    /// The members negotiate again if the change affects the partner.
    pub fn set_settings(&mut self, settings: AggregatorSettings, now: Duration) {
        self.settings = settings;
        self.step(now);
    }

    /// Adds a member, or changes its settings.
    ///
    /// The link of a new member is down.
    pub fn set_member(&mut self, id: MemberId, settings: MemberSettings, now: Duration) {
        self.members.entry(id).or_insert_with(|| AggregatorMember::new(settings)).settings =
            settings;
        self.step(now);
    }

    /// Removes a member, if it exists; returns its last LACPDU as a frame.
    ///
    /// No frame is returned if the link of the member is down, or both ends are passive. The frame
    /// states that this end no longer uses the link, so the partner stops using the link
    /// immediately. Without the frame, the partner detects the removal by a timeout.
    pub fn remove_member(&mut self, id: MemberId, now: Duration) -> Option<Vec<u8>> {
        let member = self.members.remove(&id);
        self.reported.remove(&id);
        self.step(now);
        member?.last_frame(&self.settings)
    }

    /// Records the state of the link of a member; unknown ids are ignored.
    pub fn on_link(&mut self, id: MemberId, is_up: bool, now: Duration) {
        if let Some(member) = self.members.get_mut(&id) {
            member.link(is_up, now);
        }
        self.step(now);
    }

    /// Handles a received frame of slow protocols.
    ///
    /// Frames are ignored if the link is down, or the id is unknown.
    ///
    /// # Errors
    ///
    /// If the frame is malformed, or of a protocol other than LACP and the marker protocol. A
    /// refused frame changes only [`rx_bad_pdus`](crate::LacpCounters::rx_bad_pdus).
    pub fn on_frame(&mut self, id: MemberId, frame: &[u8], now: Duration) -> Result<(), PduError> {
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        let frame = SlowFrame::parse(frame).inspect_err(|error| {
            if error.is_malformed() {
                add_one(&mut member.counters.rx_bad_pdus);
            }
        })?;
        // If the partner's information expired before the frame arrived, the expiry is handled
        // first.
        member.expire(now);
        if member.receive.state() != ReceiveState::PortDisabled {
            let actor = member.actor(&self.settings);
            member.take(&frame, &actor, now);
        }
        self.step(now);
        Ok(())
    }

    /// Returns the frames to send now, and the changes of members since the last call.
    pub fn poll(&mut self, now: Duration) -> LacpOutput {
        self.step(now);
        let mut output = LacpOutput::default();
        let mut frames = Vec::new();
        for (&id, member) in &mut self.members {
            member.transmit(&self.settings, now, &mut frames);
            output.frames.extend(frames.drain(..).map(|frame| (id, frame)));
            let states = (member.receive.state(), member.mux.state());
            let initial = (ReceiveState::PortDisabled, MuxState::Detached);
            if self.reported.insert(id, states).unwrap_or(initial) != states {
                let (receive, mux) = states;
                let partner = member.receive.has_partner().then(|| *member.receive.partner());
                output.events.push(LacpEvent { member: id, receive, mux, partner });
            }
        }
        output
    }

    /// Returns the time at which [`poll`](Self::poll) must be called next.
    ///
    /// If the time has passed, it must be called immediately.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.members.values().filter_map(|member| member.deadline(&self.settings)).min()
    }

    /// Returns whether a member may receive and send frames of the bond.
    #[must_use]
    pub fn mux(&self, id: MemberId) -> MuxState {
        self.members.get(&id).map_or(MuxState::Detached, |member| member.mux.state())
    }

    /// Returns whether any member has a partner.
    ///
    /// Without a partner, members are enabled only with `fallback_ab`.
    #[must_use]
    pub const fn is_negotiated(&self) -> bool {
        self.lead.is_some()
    }

    /// Returns the status of the aggregator and of its members.
    #[must_use]
    pub fn status(&self) -> AggregatorStatus {
        let status = |(&id, member): (&MemberId, &AggregatorMember)| LacpMemberStatus {
            member: id,
            receive: member.receive.state(),
            mux: member.mux.state(),
            unselected: member.selected.err(),
            actor: member.actor(&self.settings),
            partner: *member.receive.partner(),
            counters: member.counters,
        };
        AggregatorStatus {
            settings: self.settings,
            lead: self.lead,
            members: self.members.iter().map(status).collect(),
        }
    }

    /// Advances all state machines until nothing more changes at `now`.
    fn step(&mut self, now: Duration) {
        let settings = &self.settings;
        for member in self.members.values_mut() {
            member.expire(now);
        }
        let ranks = self.members.iter().filter_map(|(&id, member)| {
            Some((LeadRank::of(&member.actor(settings), &member.receive).ok()?, id))
        });
        self.lead = ranks.min().map(|(_, id)| id);
        let lead = self.lead.and_then(|id| self.members.get(&id));
        let aggregation = lead.map(|member| member.aggregation(settings));
        for member in self.members.values_mut() {
            let actor = member.actor(settings);
            member.selected = select(&actor, &member.receive, aggregation, settings.fallback_ab);
            member.follow(settings, now);
        }
    }
}
