//! Training of learned indexes beside the packet threads.

use std::{
    sync::mpsc::{self, Receiver, SyncSender, TrySendError},
    thread::Builder,
};

use shunt_nuevomatch::{CandidateIndex, KeySchema, PartitionSettings};

use super::lanes::{BoxesBySlot, CatalogueBox, LANES, LaneSelection};

/// Selects where indexes are trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Training {
    /// In a thread of its own.
    #[default]
    Thread,
    /// At once, in the thread that asks: for tests, which must be deterministic.
    Inline,
}

/// Trains indexes, one after another.
#[derive(Debug)]
pub(crate) struct Trainer {
    /// `None`: each job is done at once.
    jobs: Option<SyncSender<TrainerJob>>,
}

/// A training that was started.
#[derive(Debug)]
pub(super) enum PendingTraining {
    /// The trainer has the boxes.
    Sent(Receiver<TrainedIndex>),
    /// The training is done.
    Done(Box<TrainedIndex>),
}

#[derive(Debug)]
enum TrainerJob {
    /// Builds an index.
    Train(BoxesBySlot, SyncSender<TrainedIndex>),
    /// Frees an index: a packet thread would need too long for it.
    Free(Box<TrainedIndex>),
}

/// The box that an entry slot has from now on; `None`: the entry was removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxChange {
    pub(super) slot: u32,
    pub(super) own: Option<CatalogueBox>,
}

/// An index with the lanes that it compares.
#[derive(Debug)]
pub(super) struct TrainedIndex {
    pub(super) index: CandidateIndex<LANES>,
    pub(super) selection: LaneSelection,
    /// Set for the slots of entries that the index has.
    pub(super) has: Vec<bool>,
    /// Slots of entries that the index has no room for.
    pub(super) left_out: Vec<u32>,
    /// The boxes that it was built of.
    pub(super) boxes: BoxesBySlot,
}

impl Trainer {
    /// Creates a trainer, with its thread unless jobs are done at once.
    ///
    /// If the system has no thread left, jobs are done at once as well.
    pub(crate) fn new(training: Training) -> Self {
        let jobs = match training {
            Training::Inline => None,
            Training::Thread => {
                let (jobs, waiting) = mpsc::sync_channel(1);
                let run = move || run_jobs(&waiting);
                Builder::new().name("shunt-trainer".into()).spawn(run).is_ok().then_some(jobs)
            }
        };
        Self { jobs }
    }

    /// Starts to build an index.
    ///
    /// Returns the boxes if the trainer has another job, or has died.
    pub(super) fn start(&self, boxes: BoxesBySlot) -> Result<PendingTraining, BoxesBySlot> {
        let Some(jobs) = &self.jobs else {
            return Ok(PendingTraining::Done(Box::new(TrainedIndex::train(boxes))));
        };
        let (reply, trained) = mpsc::sync_channel(1);
        jobs.try_send(TrainerJob::Train(boxes, reply)).map_err(|error| match error {
            TrySendError::Full(TrainerJob::Train(boxes, _))
            | TrySendError::Disconnected(TrainerJob::Train(boxes, _)) => boxes,
            _ => BoxesBySlot::new(),
        })?;
        Ok(PendingTraining::Sent(trained))
    }

    /// Frees an index in the trainer's thread, or here if that is busy.
    pub(super) fn free(&self, index: TrainedIndex) {
        if let Some(jobs) = &self.jobs {
            // A refused job is dropped here, with its index.
            let _ = jobs.try_send(TrainerJob::Free(Box::new(index)));
        }
    }
}

fn run_jobs(jobs: &Receiver<TrainerJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            TrainerJob::Train(boxes, reply) => {
                // The receiver is gone if another cache was selected meanwhile.
                let _ = reply.send(TrainedIndex::train(boxes));
            }
            TrainerJob::Free(index) => drop(index),
        }
    }
}

impl TrainedIndex {
    /// Builds an index of all boxes.
    ///
    /// # Panics
    ///
    /// Never: the lanes have 32 bits at most, and each box is made of a value and its mask.
    #[expect(clippy::expect_used, reason = "lanes and boxes are valid by construction")]
    fn train(boxes: BoxesBySlot) -> Self {
        let selection = LaneSelection::choose(boxes.iter().flatten());
        let schema = KeySchema::new(&selection.widths()).expect("lanes have at most 32 bits");
        let rules: Vec<_> = (0..)
            .zip(&boxes)
            .filter_map(|(slot, own)| Some(selection.project(own.as_ref()?, slot)))
            .collect();
        let (index, left_out) =
            CandidateIndex::build(&schema, &rules, &PartitionSettings::default())
                .expect("boxes lie in their lanes");
        let mut has: Vec<bool> = boxes.iter().map(Option::is_some).collect();
        let left_out: Vec<u32> =
            left_out.into_iter().map(|position| rules[position as usize].value).collect();
        left_out.iter().for_each(|slot| has[*slot as usize] = false);
        Self { index, selection, has, left_out, boxes }
    }
}

impl BoxChange {
    /// Sets the box of the slot.
    pub(super) fn apply(self, boxes: &mut BoxesBySlot) {
        let slot = self.slot as usize;
        if slot >= boxes.len() {
            boxes.resize(slot + 1, None);
        }
        boxes[slot] = self.own;
    }
}
