//! A target that misbehaves in every way that a target may: slow, out of order, full, gone.
//!
//! It stands in front of another target and hands operations on when it pleases. All that it does is
//! within the contract: every operation is answered once, and after `Restored` the target holds just
//! what was confirmed. What it does follows from a seed.

use std::collections::VecDeque;

use crate::{
    partition::StageId,
    target::{Capabilities, Event, Lost, LtmTarget, Operation, TargetError, Ticket},
};

/// How often, of 256 times, a thing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosSettings {
    /// A poll brings nothing.
    pub delay: u8,
    /// An answer comes with a later poll, after others.
    pub hold_back: u8,
    /// An insert finds no room.
    pub reject: u8,
    /// A poll finds the target lost.
    pub disconnect: u8,
    /// Polls until it is back.
    pub away: u32,
    /// Entries of room that are made up.
    pub made_up_room: usize,
}

/// A target that misbehaves.
#[derive(Debug)]
pub struct Chaos<T> {
    inner: T,
    settings: ChaosSettings,
    random: u64,
    waiting: VecDeque<(Ticket, Operation)>,
    /// Operations that the inner target has and has not answered.
    under_way: usize,
    /// Answers that come later.
    held_back: Vec<Event>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    There,
    /// It will be lost when what it has been handed is answered.
    Leaving,
    Away(u32),
}

impl<T: LtmTarget> Chaos<T> {
    /// Puts chaos in front of a target.
    pub const fn new(inner: T, settings: ChaosSettings, seed: u64) -> Self {
        let random = seed | 1;
        Self {
            inner,
            settings,
            random,
            waiting: VecDeque::new(),
            under_way: 0,
            held_back: Vec::new(),
            state: State::There,
        }
    }

    /// The target behind it.
    pub const fn inner(&mut self) -> &mut T {
        &mut self.inner
    }

    /// A number that nothing follows from (xorshift).
    const fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    fn happens(&mut self, often: u8) -> bool {
        self.draw() % 256 < u64::from(often)
    }

    fn hear(&mut self, events: &mut Vec<Event>) {
        let start = events.len();
        self.inner.poll(events);
        let answers = events.iter().skip(start);
        let count = answers.filter(|event| matches!(event, Event::Answered { .. })).count();
        self.under_way = self.under_way.saturating_sub(count);
        self.hold_back(events, start);
    }

    /// Keeps some of the answers that came, for later, and gives some of those that were kept.
    fn hold_back(&mut self, events: &mut Vec<Event>, start: usize) {
        let came: Vec<Event> = events.drain(start..).collect();
        for event in std::mem::take(&mut self.held_back).into_iter().chain(came) {
            let is_answer = matches!(event, Event::Answered { .. });
            if is_answer && self.happens(self.settings.hold_back) {
                self.held_back.push(event);
            } else {
                events.push(event);
            }
        }
    }

    fn hand_on(&mut self, events: &mut Vec<Event>) {
        let mut batch = Vec::new();
        while let Some((ticket, operation)) = self.waiting.pop_front() {
            let is_insert = matches!(operation, Operation::Insert { .. });
            if is_insert && self.happens(self.settings.reject) {
                let result = Err(TargetError::NoRoom);
                events.push(Event::Answered { ticket, result });
            } else {
                batch.push((ticket, operation));
            }
        }
        let count = batch.len();
        // What the inner target does not take waits on.
        let _ = self.inner.submit(&mut batch);
        self.under_way += count - batch.len();
        self.waiting.extend(batch);
    }
}

impl<T: LtmTarget> LtmTarget for Chaos<T> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn is_there(&self) -> bool {
        !matches!(self.state, State::Away(_)) && self.inner.is_there()
    }

    fn room(&self, stage: StageId) -> usize {
        self.inner.room(stage).saturating_add(self.settings.made_up_room)
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        if matches!(self.state, State::Away(_)) {
            return Err(Lost);
        }
        self.waiting.extend(batch.drain(..));
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        if self.happens(self.settings.delay) {
            return;
        }
        match self.state {
            State::There => {
                self.hear(events);
                if self.happens(self.settings.disconnect) {
                    self.state = State::Leaving;
                } else {
                    self.hand_on(events);
                }
            }
            State::Leaving => {
                self.hear(events);
                if self.under_way == 0 {
                    events.append(&mut self.held_back);
                    for (ticket, _) in self.waiting.drain(..) {
                        let result = Err(TargetError::Lost(Lost));
                        events.push(Event::Answered { ticket, result });
                    }
                    events.push(Event::Lost(Lost));
                    self.state = State::Away(self.settings.away);
                }
            }
            State::Away(0) => {
                events.push(Event::Restored);
                self.state = State::There;
            }
            State::Away(polls) => self.state = State::Away(polls - 1),
        }
    }
}
