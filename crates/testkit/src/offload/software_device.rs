//! An offload device in memory that executes all operations, and checks that its owner keeps the rules.
//!
//! Operations are executed and completed by the next poll. Packets walk its stages by a linear search of
//! all rules.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use shunt_flow::{FlowKey, FlowMask};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    offload::{
        Counters, Effects, Lost, LtmIndex, OffloadCapabilities, OffloadDevice, OffloadError,
        OffloadEvent, Operation, Ticket,
    },
    partition::StageId,
};
use shunt_pipeline::DatapathAction;

/// An offload device in memory.
#[derive(Debug)]
pub struct SoftwareDevice {
    capabilities: OffloadCapabilities,
    /// The real number of entries per stage.
    pub stage_entries: usize,
    /// True while the device is connected.
    pub is_connected: bool,
    /// If set, it accepts operations but reports no events.
    pub is_silent: bool,
    /// All removals of entries fail, if set.
    pub fails_removals: bool,
    /// The submitted operations in order, since this was last cleared.
    pub log: Vec<Operation>,
    entries: BTreeMap<LtmIndex, SoftwareEntry>,
    waiting: VecDeque<(Ticket, Operation)>,
    events: Vec<OffloadEvent>,
}

/// An entry of a [`SoftwareDevice`].
#[derive(Clone, Debug)]
pub struct SoftwareEntry {
    /// Stage of the entry.
    pub stage: StageId,
    /// Rule of the entry.
    pub rule: Arc<LtmRule>,
    /// Hits of the entry.
    pub counters: Counters,
}

impl SoftwareDevice {
    /// Creates an empty device with this number of stages and with all capabilities.
    #[must_use]
    pub fn new(stages_count: usize, stage_entries: usize) -> Self {
        let all = {
            let mut mask = FlowMask::EMPTY;
            mask.words_mut().fill(u64::MAX);
            mask
        };
        let capabilities = OffloadCapabilities {
            stage_entries: vec![stage_entries; stages_count].into(),
            matches: all.clone(),
            writes: all,
            masks_max: None,
            key_bits_max: None,
            tag_bits: 16,
            length_max: 4096 / u16::try_from(stages_count).unwrap_or(u16::MAX).max(1),
            effects: Effects::All,
            outputs: None,
            counts: true,
            reports_idle: false,
            modifies: false,
        };
        Self {
            capabilities,
            stage_entries,
            is_connected: true,
            is_silent: false,
            fails_removals: false,
            log: Vec::new(),
            entries: BTreeMap::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// Changes the capabilities that the device reports.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut OffloadCapabilities)) -> Self {
        let mut capabilities = self.capabilities;
        change(&mut capabilities);
        Self { capabilities, ..self }
    }

    /// Returns the entries of the device.
    #[must_use]
    pub const fn entries(&self) -> &BTreeMap<LtmIndex, SoftwareEntry> {
        &self.entries
    }

    /// Returns the entries that a packet matches, first to last, if it hits.
    #[must_use]
    pub fn walk(&self, start: Tag, key: &FlowKey) -> Option<Vec<LtmIndex>> {
        let (mut tag, mut key, mut met) = (start, key.clone(), Vec::new());
        for number in 0..self.capabilities.stages_count() {
            let here = self.entries.iter().filter(|(_, entry)| entry.stage.index() == number);
            let matching = here.filter(|(_, SoftwareEntry { rule, .. })| {
                rule.tag == tag && rule.matching.matches(&key)
            });
            let Some((index, SoftwareEntry { rule, .. })) =
                matching.max_by_key(|(_, e)| e.rule.length)
            else {
                continue;
            };
            met.push(*index);
            for ((word, mask), value) in rule.rewrite.mask().iter().zip(rule.rewrite.value()) {
                let own = &mut key.words_mut()[word];
                *own = *own & !mask | value;
            }
            match rule.next {
                Next::Tag(next) => tag = next,
                Next::End => return Some(met),
            }
        }
        None
    }

    /// Returns the actions on a packet, if it hits.
    #[must_use]
    pub fn actions(&self, start: Tag, key: &FlowKey) -> Option<Vec<DatapathAction>> {
        let met = self.walk(start, key)?;
        let rules = met.iter().filter_map(|index| self.entries.get(index));
        Some(rules.flat_map(|entry| entry.rule.actions.iter().cloned()).collect())
    }

    /// Counts a packet if it hits; returns whether it does.
    pub fn send(&mut self, start: Tag, key: &FlowKey, bytes: u64) -> bool {
        let Some(met) = self.walk(start, key) else { return false };
        for index in &met {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.counters.packets += 1;
                entry.counters.bytes += bytes;
            }
        }
        true
    }

    /// Restarts with the confirmed entries, and sets their counters to zero.
    pub fn restart(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.counters = Counters::default());
    }

    /// Loses the device: all operations under way complete as lost.
    pub fn lose(&mut self) {
        self.is_connected = false;
        for (ticket, _) in self.waiting.drain(..) {
            let result = Err(OffloadError::Lost(Lost));
            self.events.push(OffloadEvent::Completed { ticket, result });
        }
        self.events.push(OffloadEvent::Lost(Lost));
    }

    /// Ends a loss of the device: it is connected again.
    pub fn restore(&mut self) {
        self.is_connected = true;
        self.events.push(OffloadEvent::Restored);
    }

    /// Reports that an entry is idle.
    pub fn report_idle(&mut self, entry: LtmIndex) {
        self.events.push(OffloadEvent::Idle { entry });
    }

    /// Returns the number of entries of a stage.
    fn count(&self, stage: StageId) -> usize {
        self.entries.values().filter(|entry| entry.stage == stage).count()
    }

    /// Adds an entry. Fails if its rule is unsupported or present, or without room.
    fn insert(
        &mut self,
        index: LtmIndex,
        stage: StageId,
        rule: Arc<LtmRule>,
    ) -> Result<(), OffloadError> {
        self.capabilities.check(&rule)?;
        let is_same = |entry: &SoftwareEntry| {
            let own = &entry.rule;
            entry.stage == stage
                && (own.tag, own.length) == (rule.tag, rule.length)
                && own.matching == rule.matching
        };
        if self.entries.values().any(is_same) {
            return Err(OffloadError::Exists);
        }
        if self.count(stage) >= self.stage_entries {
            return Err(OffloadError::NoRoom);
        }
        self.entries.insert(index, SoftwareEntry { stage, rule, counters: Counters::default() });
        Ok(())
    }

    /// Executes an operation at once. Removals fail if a test requests it.
    fn execute(&mut self, operation: Operation) -> Result<(), OffloadError> {
        match operation {
            Operation::Insert { entry, stage, rule } => self.insert(entry, stage, rule),
            Operation::Modify { entry, rule } => {
                let own = self.entries.get_mut(&entry).ok_or(OffloadError::NoSuchEntry)?;
                own.rule = rule;
                Ok(())
            }
            Operation::Remove { .. } if self.fails_removals => Err(OffloadError::Failed(2)),
            Operation::Remove { entry } => {
                let gone = self.entries.remove(&entry).ok_or(OffloadError::NoSuchEntry)?;
                self.events.push(OffloadEvent::Counted { entry, counters: gone.counters });
                Ok(())
            }
            Operation::Count { entries } => {
                for entry in entries {
                    if let Some(own) = self.entries.get(&entry) {
                        self.events.push(OffloadEvent::Counted { entry, counters: own.counters });
                    }
                }
                Ok(())
            }
        }
    }
}

impl OffloadDevice for SoftwareDevice {
    fn capabilities(&self) -> &OffloadCapabilities {
        &self.capabilities
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn room(&self, stage: StageId) -> usize {
        self.stage_entries.saturating_sub(self.count(stage))
    }

    /// # Panics
    ///
    /// Panics if two writes of one entry are under way at once.
    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        if !self.is_connected {
            return Err(Lost);
        }
        for (ticket, operation) in batch.drain(..) {
            let is_written = |(_, other): &(Ticket, Operation)| other.entry() == operation.entry();
            assert!(
                operation.entry().is_none() || !self.waiting.iter().any(is_written),
                "one write at a time: {operation:?}"
            );
            self.log.push(operation.clone());
            self.waiting.push_back((ticket, operation));
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
        if self.is_silent {
            return;
        }
        events.append(&mut self.events);
        if !self.is_connected {
            return;
        }
        while let Some((ticket, operation)) = self.waiting.pop_front() {
            let result = self.execute(operation);
            events.append(&mut self.events);
            events.push(OffloadEvent::Completed { ticket, result });
        }
    }

    fn forget(&mut self, entry: LtmIndex) {
        if !self.is_connected {
            self.entries.remove(&entry);
        }
    }
}
