//! What is handed over to the target, and what it tells.

use shunt_gigaflow::offload::{OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket};

use super::{
    OffloadAgent, Reason,
    ledger::{Confirmed, Outcome},
};

impl<T: OffloadDevice> OffloadAgent<T> {
    /// Takes in what the target tells.
    pub(super) fn hear(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.target.poll(&mut events);
        let has_heard = !events.is_empty();
        events.drain(..).for_each(|event| self.note(event));
        self.events = events;
        let outputs = &self.target.capabilities().outputs;
        if self.capabilities.outputs != *outputs {
            self.capabilities.outputs.clone_from(outputs);
        }
        if !self.target.is_there() {
            self.judge.lose();
        }
        has_heard
    }

    fn note(&mut self, event: OffloadEvent) {
        match event {
            OffloadEvent::Completed { ticket, result } => {
                if matches!(result, Err(OffloadError::Lost(_))) {
                    self.judge.lose();
                }
                self.complete(ticket, &result);
            }
            OffloadEvent::Counted { entry, counters } => {
                if let Some((own, traversal, hits)) = self.ledger.counted(entry, counters, self.now)
                {
                    self.pipeline.credit(&traversal, hits.packets, hits.bytes, self.now);
                    self.owner.touch(own.into(), self.now);
                    self.status.packets += hits.packets;
                    self.status.bytes += hits.bytes;
                }
            }
            OffloadEvent::Idle { entry } => self.to_end.extend(self.ledger.entry(entry)),
            OffloadEvent::Lost(_) => self.judge.lose(),
            OffloadEvent::Restored => {
                self.capabilities = self.target.capabilities().clone();
                self.ledger.set_capacity(&self.capabilities.stage_entries);
                self.judge.restore();
                let gone = self.ledger.restored(self.now);
                gone.iter().for_each(|piece| self.let_go(piece));
            }
        }
    }

    fn complete(&mut self, ticket: Ticket, result: &Result<(), OffloadError>) {
        self.reading.complete(ticket, result.is_ok());
        let Some(outcome) = self.ledger.complete(ticket, result, self.now) else { return };
        let Outcome { way, gone, refused } = outcome;
        if way.is_some() {
            self.pace.answer();
        }
        match way {
            Some((way, Confirmed::Yes)) => {
                if let Some(missed) = self.ways.confirm(way) {
                    self.status.latency.add(self.now.since(missed));
                }
            }
            Some((way, Confirmed::Never)) => self.ways.give_up(way),
            None => {}
        }
        if let Some(piece) = gone {
            self.let_go(&piece);
        }
        if let Some((entry, reason)) = refused {
            *self.status.refused.entry(reason).or_default() += 1;
            self.to_end.insert(entry);
        }
    }

    /// Hands over what can be asked for now; answers whether the target took any of it.
    pub(super) fn hand_over(&mut self) -> bool {
        if self.judge.is_lost() {
            return false;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let counts = (self.config.operations_per_iteration, self.pace.allowed(self.now));
        for entry in self.ledger.next(&mut batch, counts) {
            *self.status.refused.entry(Reason::NoRoom).or_default() += 1;
            self.to_end.insert(entry);
        }
        let asked_count = batch.len();
        if asked_count > 0 && self.target.submit(&mut batch).is_err() {
            self.judge.lose();
        }
        let is_taken = batch.len() < asked_count;
        self.ledger.give_back(&mut batch);
        self.batch = batch;
        is_taken
    }

    /// Begins to read the target's counters if it is time, and ends what is idle when they are read.
    pub(super) fn read_counters(&mut self) -> bool {
        let finished = self.reading.finish();
        if let Some(read) = finished {
            self.ledger.ask_again();
            if read.is_good && self.capabilities.counts {
                self.to_end.extend(self.ledger.idle(read.began, self.config.max_idle));
            }
        }
        let is_due = self.reading.is_due(self.now, self.config.count_every);
        if self.judge.is_lost() || !is_due {
            return finished.is_some();
        }
        // What is on its way out comes with a last count.
        let mut tickets: Vec<Ticket> = self.ledger.removals_under_way().collect();
        let entries = if self.capabilities.counts { self.ledger.held() } else { Vec::new() };
        if !entries.is_empty() {
            let ticket = self.ledger.new_ticket();
            let mut batch = vec![(ticket, Operation::Count { entries })];
            if self.target.submit(&mut batch).is_err() {
                self.judge.lose();
            }
            if !batch.is_empty() {
                return finished.is_some();
            }
            self.ledger.operations.counts += 1;
            tickets.push(ticket);
        }
        self.reading.begin(self.now, tickets);
        true
    }
}
