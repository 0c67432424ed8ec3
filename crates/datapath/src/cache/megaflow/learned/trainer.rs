//! Training of learned indexes in a thread beside the packet threads.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread::Builder,
    time::Duration,
};

use shunt_nuevomatch::{
    AnyStartIndex, CandidateIndex, KeySchema, PartitionSettings, StartIndexKind,
};
use shunt_pipeline::{
    IndexedTables, OwnerId, Pipeline, Time, TrainingReport,
    lanes::{CatalogueBox, LANES, LaneSelection},
};
use shunt_thread_watch::{IterationWatch, WatchedThread};

use super::reply_slot::{Reply, ReplySender, ReplySlot};
use crate::metrics::TrainingFailure;

/// The slot for the outcome of a training of tables.
pub(crate) type TablesReply = ReplySlot<Result<TrainingReport, TrainingFailure>>;

/// The slot for a trained index.
pub(super) type IndexReply = ReplySlot<Box<TrainedIndex>>;

/// Selects the thread that trains indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Training {
    /// A separate thread trains indexes.
    #[default]
    Thread,
    /// The requesting thread trains at once, so that tests are deterministic.
    Inline,
    /// Like `Inline`, but the index arrives later, for tests.
    Delayed {
        /// Number of polls at which the index is not ready yet.
        polls: u32,
    },
    /// No thread trains, as if the trainer had panicked, for tests.
    Lost,
}

/// Trains indexes, one after another.
#[derive(Debug)]
pub(crate) struct Trainer(TrainerKind);

/// The thread that trains the indexes.
#[derive(Debug)]
enum TrainerKind {
    /// A separate thread trains the indexes; the channel passes jobs to it.
    Thread(SyncSender<TrainerJob>),
    /// The requesting thread, which gets the index after some polls.
    Caller { polls: u32 },
    /// The trainer is lost, because its thread has panicked.
    Lost,
}

/// The box of each live entry, by slot.
pub(super) type BoxesBySlot = Vec<Option<CatalogueBox>>;

/// A training that was started.
#[derive(Debug)]
pub(super) enum PendingTraining {
    /// The trainer thread has the boxes, and will send the index to the slot.
    Sent,
    /// The training is done, and its index is due after some polls.
    Done { trained: Box<TrainedIndex>, polls: u32 },
}

/// The result of a poll of a training.
pub(super) enum TrainingPoll {
    /// The training has ended with this index.
    Trained(Box<TrainedIndex>),
    /// The training is not finished.
    Pending(PendingTraining),
    /// The trainer thread has panicked.
    Lost,
}

/// The reason why no training was started.
#[derive(Debug)]
pub(super) enum NoTraining {
    /// The trainer has another job; the boxes are returned.
    Busy(BoxesBySlot),
    /// The trainer thread has panicked.
    Lost,
}

/// A request to train the indexes of tables.
#[derive(Debug)]
pub(crate) enum TablesTraining {
    /// The training of the indexes has ended.
    Ended(Result<TrainingReport, TrainingFailure>),
    /// The trainer thread will send the outcome to the slot.
    Sent,
    /// The trainer has another job, and nothing was requested.
    Busy,
}

/// A job of the trainer thread.
enum TrainerJob {
    /// Builds an index of a kind.
    Train(BoxesBySlot, StartIndexKind, ReplySender<Box<TrainedIndex>>),
    /// Trains indexes over the rules of these tables, which were requested at a time.
    TrainTables(
        Arc<Pipeline>,
        IndexedTables,
        Time,
        ReplySender<Result<TrainingReport, TrainingFailure>>,
    ),
    /// Frees an index, which would delay a packet thread.
    Free(Box<TrainedIndex>),
}

/// The new box of an entry slot; `None`: the entry was removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxChange {
    /// Number of the entry slot.
    pub(super) slot: u32,
    /// The box; `None` if the entry was removed.
    pub(super) own: Option<CatalogueBox>,
}

/// An index with the lanes that it compares.
#[derive(Debug)]
pub(super) struct TrainedIndex {
    /// The index over the boxes of the entries.
    pub(super) index: CandidateIndex<LANES, AnyStartIndex>,
    /// The lanes that the index compares.
    pub(super) selection: LaneSelection,
    /// For each slot, true if the index has its entry.
    pub(super) has: Vec<bool>,
    /// Slots of entries that the index has no room for.
    pub(super) left_out: Vec<u32>,
    /// The boxes from which the index was built.
    pub(super) boxes: BoxesBySlot,
}

impl Trainer {
    /// Creates a trainer, with its thread if `training` requires one.
    ///
    /// `owner` is the packet thread that requests the trainings.
    ///
    /// If the system cannot create a thread, jobs are done at once in the requesting thread.
    pub(crate) fn new(training: Training, owner: OwnerId) -> Self {
        Self(match training {
            Training::Inline => TrainerKind::Caller { polls: 0 },
            Training::Delayed { polls } => TrainerKind::Caller { polls },
            Training::Lost => TrainerKind::Lost,
            Training::Thread => {
                let (jobs, waiting) = mpsc::sync_channel(1);
                let name = format!("trainer thread of packet thread {}", owner.0);
                let watch = WatchedThread::with_iteration_max(&name, TRAINING_MAX);
                let run = move || run_jobs(&waiting, &watch);
                match Builder::new().name("shunt-trainer".into()).spawn(run) {
                    Ok(_) => TrainerKind::Thread(jobs),
                    Err(_) => TrainerKind::Caller { polls: 0 },
                }
            }
        })
    }

    /// Starts to build an index of a kind, which the trainer thread sends to `reply`.
    pub(super) fn start(
        &self,
        boxes: BoxesBySlot,
        kind: StartIndexKind,
        reply: &IndexReply,
    ) -> Result<PendingTraining, NoTraining> {
        let jobs = match &self.0 {
            TrainerKind::Thread(jobs) => jobs,
            TrainerKind::Caller { polls } => {
                let trained = Box::new(TrainedIndex::train(boxes, kind));
                return Ok(PendingTraining::Done { trained, polls: *polls });
            }
            TrainerKind::Lost => return Err(NoTraining::Lost),
        };
        match jobs.try_send(TrainerJob::Train(boxes, kind, reply.begin())) {
            Ok(()) => Ok(PendingTraining::Sent),
            Err(TrySendError::Full(TrainerJob::Train(boxes, ..))) => Err(NoTraining::Busy(boxes)),
            Err(_) => Err(NoTraining::Lost),
        }
    }

    /// Trains the indexes of the tables that need a training.
    ///
    /// The trainer thread sends the outcome to `reply`.
    pub(crate) fn train_tables(
        &self,
        pipeline: &Arc<Pipeline>,
        tables: IndexedTables,
        now: Time,
        reply: &TablesReply,
    ) -> TablesTraining {
        let jobs = match &self.0 {
            TrainerKind::Thread(jobs) => jobs,
            TrainerKind::Caller { .. } => {
                return TablesTraining::Ended(guarded(|| pipeline.train_tables(tables, now)));
            }
            TrainerKind::Lost => return TablesTraining::Ended(Err(TrainingFailure::TrainerLost)),
        };
        let job = TrainerJob::TrainTables(Arc::clone(pipeline), tables, now, reply.begin());
        match jobs.try_send(job) {
            Ok(()) => TablesTraining::Sent,
            Err(TrySendError::Full(_)) => TablesTraining::Busy,
            Err(TrySendError::Disconnected(_)) => {
                TablesTraining::Ended(Err(TrainingFailure::TrainerLost))
            }
        }
    }

    /// Frees an index in the trainer thread, or in this thread if the trainer is busy.
    pub(super) fn free(&self, index: Box<TrainedIndex>) {
        if let TrainerKind::Thread(jobs) = &self.0 {
            // A refused job is dropped in this thread, with its index.
            let _ = jobs.try_send(TrainerJob::Free(index));
        }
    }
}

impl PendingTraining {
    /// Takes the index if the training is done; `reply` is the slot of its start.
    pub(super) fn poll(self, reply: &IndexReply) -> TrainingPoll {
        match self {
            Self::Done { trained, polls: 0 } => TrainingPoll::Trained(trained),
            Self::Done { trained, polls } => {
                TrainingPoll::Pending(Self::Done { trained, polls: polls - 1 })
            }
            Self::Sent => match reply.take() {
                Some(Reply::Sent(trained)) => TrainingPoll::Trained(trained),
                Some(Reply::Lost) => TrainingPoll::Lost,
                None => TrainingPoll::Pending(Self::Sent),
            },
        }
    }
}

impl TablesTraining {
    /// Takes the outcome of a sent request if the trainer thread has sent it.
    pub(crate) fn poll(reply: &TablesReply) -> Self {
        match reply.take() {
            Some(Reply::Sent(outcome)) => Self::Ended(outcome),
            Some(Reply::Lost) => Self::Ended(Err(TrainingFailure::TrainerLost)),
            None => Self::Sent,
        }
    }
}

/// Trains tables by `train`.
///
/// A panic outside the training of a single table ends all trainings, and lookups use the tables as
/// before. So the trainer continues.
fn guarded(train: impl FnOnce() -> TrainingReport) -> Result<TrainingReport, TrainingFailure> {
    catch_unwind(AssertUnwindSafe(train)).map_err(|_| TrainingFailure::Panicked)
}

/// Runs the jobs of the trainer thread, until the last sender ends.
fn run_jobs(jobs: &Receiver<TrainerJob>, watch: &IterationWatch) {
    while let Ok(job) = jobs.recv() {
        watch.run(|| match job {
            TrainerJob::Train(boxes, kind, reply) => {
                reply.send(Box::new(TrainedIndex::train(boxes, kind)));
            }
            TrainerJob::TrainTables(pipeline, tables, now, reply) => {
                reply.send(guarded(|| pipeline.train_tables(tables, now)));
            }
            TrainerJob::Free(index) => drop(index),
        });
    }
}

/// Time that a training may take before the thread counts as one that hangs.
///
/// A training of a large table may take minutes, and lookups use the earlier index meanwhile.
const TRAINING_MAX: Duration = Duration::from_secs(1800);

impl TrainedIndex {
    /// Builds an index of a kind over all boxes.
    ///
    /// # Panics
    ///
    /// Never: the lanes have 32 bits at most, each box is made of a value and its mask, and an index
    /// of any kind numbers all starts.
    #[expect(clippy::expect_used, reason = "lanes and boxes are valid by construction")]
    fn train(boxes: BoxesBySlot, kind: StartIndexKind) -> Self {
        let selection = LaneSelection::choose(boxes.iter().flatten());
        let schema = KeySchema::new(&selection.widths()).expect("lanes have at most 32 bits");
        let rules: Vec<_> = (0..)
            .zip(&boxes)
            .filter_map(|(slot, own)| Some(selection.project(own.as_ref()?, slot)))
            .collect();
        let (index, left_out) =
            CandidateIndex::build_with(&schema, &rules, &PartitionSettings::default(), &kind)
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

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use shunt_flow::{FieldId, FlowKey, FlowMask, SparseMask};

    use super::*;

    #[test]
    fn failed_trainings_of_tables_have_a_cause() {
        let report = TrainingReport { unindexable: 1, ..TrainingReport::default() };
        assert_eq!(guarded(|| report), Ok(report));
        let panicked = guarded(|| panic!("the test requests this panic"));
        assert_eq!(panicked, Err(TrainingFailure::Panicked));
        let pipeline = Arc::new(Pipeline::new(1));
        let (lost, reply) = (Trainer::new(Training::Lost, OwnerId(0)), TablesReply::default());
        let lost = lost.train_tables(&pipeline, IndexedTables::NONE, Time::ZERO, &reply);
        let TablesTraining::Ended(outcome) = lost else { panic!("{lost:?}") };
        assert_eq!(outcome, Err(TrainingFailure::TrainerLost));
    }

    /// Waits for the reply to a request.
    fn wait_for<T>(reply: &ReplySlot<T>) -> Reply<T> {
        loop {
            match reply.take() {
                Some(reply) => return reply,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn a_trainer_thread_replies_after_the_tables() {
        let (trainer, pipeline) =
            (Trainer::new(Training::Thread, OwnerId(0)), Arc::new(Pipeline::new(1)));
        let reply = TablesReply::default();
        let training = trainer.train_tables(&pipeline, IndexedTables::NONE, Time::ZERO, &reply);
        assert!(matches!(training, TablesTraining::Sent), "the first job is taken at once");
        assert_eq!(wait_for(&reply), Reply::Sent(Ok(TrainingReport::default())));
    }

    /// Packet threads request trainings while packets hit their caches.
    #[test]
    fn requests_to_a_trainer_thread_allocate_nothing() {
        let (trainer, pipeline) =
            (Trainer::new(Training::Thread, OwnerId(0)), Arc::new(Pipeline::new(1)));
        let (tables, index) = (TablesReply::default(), IndexReply::default());
        let mut mask = FlowMask::EMPTY;
        mask.add_bits(FieldId::TcpDst, 7);
        let own = CatalogueBox::new(&FlowKey::ZERO, &SparseMask::from(&mask));
        for _ in 0..3 {
            let request =
                || trainer.train_tables(&pipeline, IndexedTables::NONE, Time::ZERO, &tables);
            let allocated = measure(|| {
                // The trainer may still free the last index.
                while matches!(request(), TablesTraining::Busy) {
                    std::thread::yield_now();
                }
            });
            assert_eq!(allocated.count_total, 0, "a request for tables");
            assert_eq!(wait_for(&tables), Reply::Sent(Ok(TrainingReport::default())));

            let (mut boxes, mut started) = (vec![Some(own)], None);
            let allocated = measure(|| {
                let boxes = std::mem::take(&mut boxes);
                started = trainer.start(boxes, StartIndexKind::Tree, &index).ok();
            });
            assert!(matches!(started, Some(PendingTraining::Sent)));
            assert_eq!(allocated.count_total, 0, "a request for an index");
            let mut trained = None;
            let allocated = measure(|| {
                while trained.is_none() {
                    match PendingTraining::Sent.poll(&index) {
                        TrainingPoll::Trained(own) => trained = Some(own),
                        TrainingPoll::Pending(_) => std::thread::yield_now(),
                        TrainingPoll::Lost => panic!("the trainer has panicked"),
                    }
                }
            });
            assert_eq!(allocated.count_total, 0, "the trained index");
            let trained = trained.unwrap();
            assert_eq!(trained.index.len(), 1);
            let allocated = measure(|| trainer.free(trained));
            assert_eq!(allocated.count_total, 0, "the end of an index");
        }
    }

    /// The test holds the slot of the reply, so the job stays in its iteration.
    #[test]
    fn a_trainer_is_in_an_iteration_during_a_job() {
        let (jobs, waiting) = mpsc::sync_channel(1);
        let slot = TablesReply::default();
        let reply = slot.begin();
        let watch = Arc::new(IterationWatch::default());
        let own = Arc::clone(&watch);
        let thread = std::thread::spawn(move || run_jobs(&waiting, &own));
        assert_eq!(watch.current(), None, "the thread waits for a job");
        let pipeline = Arc::new(Pipeline::new(1));
        let job = TrainerJob::TrainTables(pipeline, IndexedTables::NONE, Time::ZERO, reply);
        let held = slot.hold_back();
        assert!(jobs.send(job).is_ok());
        while watch.current().is_none() {
            std::thread::yield_now();
        }
        drop(held);
        while watch.current().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(slot.take(), Some(Reply::Sent(Ok(TrainingReport::default()))));
        assert_eq!(watch.count(), 1);
        drop(jobs);
        assert!(thread.join().is_ok());
    }
}
