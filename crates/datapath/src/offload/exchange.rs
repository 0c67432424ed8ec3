//! Operations that the agent sends to the device, and events of the device.

use shunt_gigaflow::offload::{OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket};

use super::{
    OffloadAgent, OffloadRefusal,
    ledger::{InsertionResult, ResponseOutcome},
};

impl<T: OffloadDevice> OffloadAgent<T> {
    /// Handles the device's events.
    pub(super) fn handle_events(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.device.poll(&mut events);
        let has_events = !events.is_empty();
        events.drain(..).for_each(|event| self.handle_event(event));
        self.events = events;
        let outputs = &self.device.capabilities().outputs;
        if self.capabilities.outputs != *outputs {
            self.capabilities.outputs.clone_from(outputs);
        }
        if !self.device.is_connected() {
            self.judge.note_lost();
        }
        has_events
    }

    /// Handles an event of the device.
    fn handle_event(&mut self, event: OffloadEvent) {
        match event {
            OffloadEvent::Completed { ticket, result } => {
                if matches!(result, Err(OffloadError::Lost(_))) {
                    self.judge.note_lost();
                }
                self.complete(ticket, &result);
            }
            OffloadEvent::Counted { entry, counters } => {
                if let Some((own, traversal, hits)) = self.ledger.counted(entry, counters, self.now)
                {
                    self.pipeline.credit(&traversal, hits.packets, hits.bytes, self.now);
                    self.owner.touch(own.into(), self.now);
                    if self.large_flows.note(own, hits.packets, self.now) {
                        self.gigaflow.ltm_mut().set_large(own, true, self.now);
                    }
                    self.status.packets += hits.packets;
                    self.status.bytes += hits.bytes;
                }
            }
            OffloadEvent::Idle { entry } => self.to_remove.extend(self.ledger.entry(entry)),
            OffloadEvent::Lost(_) => self.judge.note_lost(),
            OffloadEvent::Restored => {
                self.capabilities = self.device.capabilities().clone();
                self.ledger.set_capacity(&self.capabilities.stage_entries);
                self.judge.note_restored();
                let gone = self.ledger.restored(self.now);
                gone.iter().for_each(|offloaded| self.release_tags(offloaded));
            }
        }
    }

    /// Handles the response of the device to an operation.
    fn complete(&mut self, ticket: Ticket, result: &Result<(), OffloadError>) {
        self.reading.complete(ticket, result.is_ok());
        let Some(outcome) = self.ledger.complete(ticket, result, self.now) else { return };
        let ResponseOutcome { traversal_no, gone, refused } = outcome;
        if traversal_no.is_some() {
            self.insertion_limit.record_response();
        }
        match traversal_no {
            Some((traversal_no, InsertionResult::Confirmed)) => {
                if let Some(missed) = self.pending_traversals.confirm(traversal_no) {
                    self.status.latency.add(self.now.since(missed));
                }
            }
            Some((traversal_no, InsertionResult::Refused)) => {
                self.pending_traversals.abandon(traversal_no);
            }
            None => {}
        }
        if let Some(offloaded) = gone {
            self.release_tags(&offloaded);
        }
        if let Some((entry, reason)) = refused {
            *self.status.refused.entry(reason).or_default() += 1;
            self.to_remove.insert(entry);
        }
    }

    /// Sends operations that are due; returns whether the device accepted any.
    pub(super) fn send_operations(&mut self) -> bool {
        if self.judge.is_lost() {
            return false;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let operations_max = self.config.operations_per_iteration;
        let inserting_max = self.insertion_limit.allowed(self.now);
        for entry in self.ledger.next(&mut batch, operations_max, inserting_max) {
            *self.status.refused.entry(OffloadRefusal::NoRoom).or_default() += 1;
            self.to_remove.insert(entry);
        }
        let asked_count = batch.len();
        if asked_count > 0 && self.device.submit(&mut batch).is_err() {
            self.judge.note_lost();
        }
        let is_taken = batch.len() < asked_count;
        self.ledger.return_unsent(&mut batch);
        self.batch = batch;
        is_taken
    }

    /// Starts a reading of the device's counters if one is due.
    /// Removes idle entries after a reading.
    pub(super) fn read_counters(&mut self) -> bool {
        let finished = self.reading.finish();
        if let Some(read) = finished {
            for entry in self.large_flows.finish(self.now) {
                self.gigaflow.ltm_mut().set_large(entry, false, self.now);
            }
            self.ledger.retry_refused();
            if read.is_complete && self.capabilities.counts {
                self.to_remove.extend(self.ledger.idle(read.began_at, self.config.max_idle));
            }
        }
        let is_due = self.reading.is_due(self.now, self.config.count_every);
        if self.judge.is_lost() || !is_due {
            return finished.is_some();
        }
        // The responses to pending removals also contain the last counts.
        let mut tickets: Vec<Ticket> = self.ledger.pending_removals().collect();
        let entries = if self.capabilities.counts { self.ledger.held() } else { Vec::new() };
        if !entries.is_empty() {
            let ticket = self.ledger.new_ticket();
            let mut batch = vec![(ticket, Operation::Count { entries })];
            if self.device.submit(&mut batch).is_err() {
                self.judge.note_lost();
            }
            if !batch.is_empty() {
                return finished.is_some();
            }
            self.ledger.operations.counts += 1;
            tickets.push(ticket);
        }
        self.reading.begin(self.now, tickets);
        self.large_flows.begin(self.now);
        true
    }
}
