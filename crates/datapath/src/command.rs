//! Commands of the control plane to a packet thread, handled between bursts.
//!
//! Commands are rare and may allocate. A reply is a closure that runs on the packet thread, so it
//! must only pass the result to another thread.

use std::{fmt, sync::Arc, time::Duration};

use shunt_flow::{PortNo, extract::VlanLimit};
use shunt_foresight::ForecastSource;
use shunt_pipeline::{BridgeId, DatapathPort, EntryId, Time, Traversal};

use crate::{
    cache::{CoverageLink, Wildcard},
    capture::CaptureTap,
    egress::PortQos,
    forecast::ThreadForecasts,
    metrics::{PortTraffic, RxLoad},
    netflow::NetflowCache,
    offload::OffloadCandidates,
    packet::ingress_policer::IngressPolicer,
    port::{Capabilities, Queues, RxQueue, TxQueue},
    rule_sample::RuleSampler,
    sample::{PacketSampler, SampleUse},
};

/// The ingress port of a packet from a controller.
pub const NO_INGRESS: DatapathPort = DatapathPort::new(u32::MAX);

/// The maximum number of a datapath port: threads index ports by number.
pub const DATAPATH_PORT_MAX: u32 = 65_535;

/// A function that passes the result of a command to the sender.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// A request to a packet thread.
pub enum Command {
    /// Take the queues of a port.
    AddPort(Box<ThreadPort>),
    /// Take the receive queue of a port that was added without one.
    AddReceiver(Box<ThreadReceiver>),
    /// Return a receive queue of a port, by its number, for another packet thread.
    ///
    /// The thread replies when it has no packet of the queue any more. The reply is `None` if the
    /// thread has no such queue, or keeps it because a transmit queue stays full.
    ReleaseReceiver(DatapathPort, u16, Reply<Option<ReleasedReceiver>>),
    /// Return the queues of a port, since a packet thread does not close them.
    ///
    /// `None` if the thread has no queues of the port.
    RemovePort(DatapathPort, Reply<Option<RemovedQueues>>),
    /// Bind a port to a bridge, with its port number in the bridge.
    Bind(DatapathPort, BridgeId, PortNo),
    /// Limit the rate of the packets received from a port; `None`: no limit.
    PoliceIngress(DatapathPort, Option<Arc<IngressPolicer>>),
    /// Set the quality of service of the packets sent to a port; `None`: none.
    SetQos(DatapathPort, Option<PortQos>),
    /// Execute a traversal on a packet from a controller, and credit its rules.
    Inject(Box<Injection>),
    /// Reply at once, which proves that the thread iterates.
    ///
    /// A sleeping thread wakes for a ping.
    Ping(Reply<()>),
    /// Credit all hits until now, then reply.
    Pull(Reply<()>),
    /// Return all cache entries of the thread.
    Dump(Reply<Vec<DumpedEntry>>),
    /// Return the entry in a slot.
    Entry(u32, Reply<Option<DumpedEntry>>),
    /// Change settings of the thread while it runs.
    Tune(Tuning),
    /// Remove all cache entries of the thread.
    EmptyCaches,
    /// Send offload candidates to this agent from now on; `None` stops this.
    OffloadCandidate(Option<Box<OffloadCandidates>>),
    /// Take forecasts, and run predictors; `None` ends forecasts and predictors.
    Forecasts(Option<Box<ThreadForecasts>>),
    /// Start a capture of packets.
    StartCapture(CaptureTap),
    /// End a capture; returns the number of copies for which its ring was full.
    StopCapture(u64, Reply<u64>),
    /// Sample the packets that a bridge receives; `None` ends the sampling.
    Sample(BridgeId, SampleUse, Option<Box<PacketSampler>>),
    /// Sample packets by `sample` actions of rules; `None` ends the sampling.
    SampleByRules(Option<Box<RuleSampler>>),
    /// Count the NetFlow flows that a bridge receives; `None` ends the counting.
    ///
    /// Returns the previous NetFlow cache.
    CountFlows(BridgeId, Option<Box<NetflowCache>>, Reply<Option<Box<NetflowCache>>>),
}

/// Settings of a packet thread that can be changed while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Time without a hit after which an entry expires.
    pub max_idle: Duration,
    /// Maximum number of translations in an iteration.
    pub translations_per_iteration: usize,
    /// One random hit in `verify_one_in` is translated and compared; 0 compares none.
    pub verify_one_in: u32,
    /// Selects whether stale entries are re-translated.
    pub repair: Repair,
    /// Selects the wildcard cache. A different wildcard cache starts empty.
    pub wildcard: Wildcard,
    /// Maximum number of megaflows, dead ones included.
    ///
    /// The oldest megaflows above this number expire.
    pub entries_max: usize,
    /// Longest sleep of an idle thread; zero: it never sleeps.
    pub sleep_max: Duration,
    /// Maximum number of VLAN tags to parse.
    ///
    /// Cache entries stay, because they decide by keys, which have the parsed tags.
    pub vlan_limit: VlanLimit,
}

/// Selects whether a thread re-translates entries that a change made stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// No repair: the next packet of the entry misses, and is translated.
    #[default]
    Off,
    /// Re-translate entries that still receive packets.
    On,
    /// As `On`, but at most this number of re-translations per second.
    Rate(u32),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddPort(added) => f.debug_tuple("AddPort").field(&added.port).finish(),
            Self::AddReceiver(added) => f.debug_tuple("AddReceiver").field(&added.port).finish(),
            Self::ReleaseReceiver(port, number, _) => {
                f.debug_tuple("ReleaseReceiver").field(port).field(number).finish()
            }
            Self::RemovePort(port, _) => f.debug_tuple("RemovePort").field(port).finish(),
            Self::Bind(port, bridge, number) => {
                f.debug_tuple("Bind").field(port).field(bridge).field(number).finish()
            }
            Self::PoliceIngress(port, policer) => {
                f.debug_tuple("PoliceIngress").field(port).field(policer).finish()
            }
            Self::SetQos(port, qos) => f.debug_tuple("SetQos").field(port).field(qos).finish(),
            Self::Inject(injection) => {
                f.debug_tuple("Inject").field(&injection.frame.len()).finish()
            }
            Self::Ping(_) => f.write_str("Ping"),
            Self::Pull(_) => f.write_str("Pull"),
            Self::Dump(_) => f.write_str("Dump"),
            Self::Entry(slot, _) => f.debug_tuple("Entry").field(slot).finish(),
            Self::EmptyCaches => f.write_str("EmptyCaches"),
            Self::Tune(tuning) => f.debug_tuple("Tune").field(tuning).finish(),
            Self::OffloadCandidate(candidates) => {
                f.debug_tuple("OffloadCandidate").field(&candidates.is_some()).finish()
            }
            Self::Forecasts(forecasts) => {
                f.debug_tuple("Forecasts").field(&forecasts.is_some()).finish()
            }
            Self::StartCapture(tap) => f.debug_tuple("StartCapture").field(tap).finish(),
            Self::StopCapture(id, _) => f.debug_tuple("StopCapture").field(id).finish(),
            Self::Sample(bridge, protocol, sampler) => {
                f.debug_tuple("Sample").field(bridge).field(protocol).field(sampler).finish()
            }
            Self::SampleByRules(sampler) => f.debug_tuple("SampleByRules").field(sampler).finish(),
            Self::CountFlows(bridge, cache, _) => {
                f.debug_tuple("CountFlows").field(bridge).field(cache).finish()
            }
        }
    }
}

/// The queues and the properties of a port for a packet thread.
pub struct ThreadPort {
    /// The port; at most [`DATAPATH_PORT_MAX`].
    pub port: DatapathPort,
    /// The bridge of the port.
    pub bridge: BridgeId,
    /// The port number in the bridge.
    pub number: PortNo,
    /// The offload capabilities of the port.
    pub capabilities: Capabilities,
    /// The receive and transmit queues of the port.
    pub queues: Queues,
    /// The counters of this thread for the port.
    pub traffic: Arc<PortTraffic>,
}

/// The receive queue of a port for a packet thread.
pub struct ThreadReceiver {
    /// The port that the queue belongs to.
    pub port: DatapathPort,
    /// The bridge of the port.
    pub bridge: BridgeId,
    /// The port number in the bridge.
    pub number: PortNo,
    /// The receive queue, which the thread polls from now on.
    pub queue: Box<dyn RxQueue>,
    /// The counters of this thread for the port.
    pub traffic: Arc<PortTraffic>,
    /// The rate limit of received packets, if there is one.
    pub policer: Option<Arc<IngressPolicer>>,
    /// The number and the counters of the queue.
    pub state: RxQueueState,
}

/// The part of a receive queue's state that moves with it between packet threads.
#[derive(Clone, Debug, Default)]
pub struct RxQueueState {
    /// Number of the queue among the receive queues of its port.
    pub number: u16,
    /// Number of frames that polls have returned so far.
    pub received: u64,
    /// The measured load of the queue.
    pub load: Arc<RxLoad>,
}

/// A receive queue that a packet thread has released.
pub struct ReleasedReceiver {
    /// The receive queue that the thread has released.
    pub queue: Box<dyn RxQueue>,
    /// The number and the counters of the queue.
    pub state: RxQueueState,
}

/// The queues of a removed port that a packet thread had.
pub struct RemovedQueues {
    /// The receive queues of the removed port.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// The transmit queue of the removed port.
    pub tx: Box<dyn TxQueue>,
}

/// A packet from a controller.
pub struct Injection {
    /// The frame of the packet-out.
    pub frame: Vec<u8>,
    /// The ingress port to assume, or [`NO_INGRESS`].
    pub ingress: DatapathPort,
    /// The traversal to execute; its key holds bridge and ingress port.
    pub traversal: Arc<Traversal>,
}

/// A snapshot of a cache entry.
#[derive(Clone, Debug)]
pub struct DumpedEntry {
    /// The id of the entry.
    pub entry: EntryId,
    /// The traversal of the entry.
    pub traversal: Arc<Traversal>,
    /// Number of packets that hit the entry.
    pub packets: u64,
    /// Bytes of the packets that hit.
    pub bytes: u64,
    /// Time of the last hit.
    pub used: Time,
    /// The position of an LTM entry in the chain of stages.
    pub link: Option<CoverageLink>,
    /// The origin of the forecast of the entry; `None`: a packet caused it.
    pub forecast: Option<ForecastSource>,
}
