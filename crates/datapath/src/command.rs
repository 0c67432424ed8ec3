//! What control asks of a packet thread, between two turns.
//!
//! Commands are rare and may allocate. Where there is an answer it is given by a closure, which runs
//! on the packet thread and must only hand the answer on.

use std::{fmt, sync::Arc, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort, EntryId, Time, Traversal};

use crate::{
    cache::{ChainLink, Wildcard},
    capture::Tap,
    metrics::PortTraffic,
    offload::OffloadCandidates,
    port::{Capabilities, Queues},
};

/// The ingress of a packet that came in by no port of the datapath: a controller's.
pub const NO_INGRESS: DatapathPort = DatapathPort::new(u32::MAX);

/// The highest number of a port of the datapath: threads index ports by number.
pub const DATAPATH_PORT_MAX: u32 = 65_535;

/// Hands an answer on.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// A request to a packet thread.
pub enum Command {
    /// Take these queues of a port.
    AddPort(Box<ThreadPort>),
    /// Give the queues of a port back: closing them is not for a packet thread. `None` if it has
    /// none.
    RemovePort(DatapathPort, Reply<Option<Queues>>),
    /// From now on what the port receives enters this bridge by this port number.
    Bind(DatapathPort, BridgeId, PortNo),
    /// Run the actions of a traversal on a packet of a controller, and credit it.
    Inject(Box<Injection>),
    /// Credit what was counted until now, then answer.
    Pull(Reply<()>),
    /// Say which entries there are.
    Dump(Reply<Vec<DumpedEntry>>),
    /// Say which entry is in a slot.
    Entry(u32, Reply<Option<DumpedEntry>>),
    /// Work by these settings from now on.
    Tune(Tuning),
    /// Offer the packets that no cache knows to the owner of this target from now on; `None`: to nobody.
    OffloadCandidate(Option<Box<OffloadCandidates>>),
    /// Copy packets to a capture.
    StartCapture(Tap),
    /// End a capture; the answer is how many copies found no room.
    StopCapture(u64, Reply<u64>),
}

/// Settings of a packet thread that can be changed while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Time without a hit after which an entry goes.
    pub max_idle: Duration,
    /// Translations that a turn makes at most.
    pub translations_per_iteration: usize,
    /// One hit of so many is translated anew and compared; 0: none.
    pub verify_one_in: u32,
    /// Whether entries that a change made stale are made anew.
    pub repair: Repair,
    /// What knows packets by the bits that mattered. Another one than before begins empty.
    pub wildcard: Wildcard,
}

/// Whether entries that a change made stale are made anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// The next packet does it.
    #[default]
    Off,
    /// Those that packets come to.
    On,
    /// The same, but so many a second at most.
    Rate(u32),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddPort(added) => f.debug_tuple("AddPort").field(&added.port).finish(),
            Self::RemovePort(port, _) => f.debug_tuple("RemovePort").field(port).finish(),
            Self::Bind(port, bridge, number) => {
                f.debug_tuple("Bind").field(port).field(bridge).field(number).finish()
            }
            Self::Inject(injection) => {
                f.debug_tuple("Inject").field(&injection.frame.len()).finish()
            }
            Self::Pull(_) => f.write_str("Pull"),
            Self::Dump(_) => f.write_str("Dump"),
            Self::Entry(slot, _) => f.debug_tuple("Entry").field(slot).finish(),
            Self::Tune(tuning) => f.debug_tuple("Tune").field(tuning).finish(),
            Self::OffloadCandidate(offers) => {
                f.debug_tuple("Offer").field(&offers.is_some()).finish()
            }
            Self::StartCapture(tap) => f.debug_tuple("StartCapture").field(tap).finish(),
            Self::StopCapture(id, _) => f.debug_tuple("StopCapture").field(id).finish(),
        }
    }
}

/// The queues of a port that a packet thread takes, and what it needs to know of it.
pub struct ThreadPort {
    /// The port; at most [`DATAPATH_PORT_MAX`].
    pub port: DatapathPort,
    /// The bridge that its packets enter.
    pub bridge: BridgeId,
    /// Its number there.
    pub number: PortNo,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The queues.
    pub queues: Queues,
    /// Where this thread counts its packets.
    pub traffic: Arc<PortTraffic>,
}

/// A packet of a controller.
pub struct Injection {
    /// The frame.
    pub frame: Vec<u8>,
    /// The port that it pretends to have come in by, or [`NO_INGRESS`].
    pub ingress: DatapathPort,
    /// What happens to it; its key says bridge and ingress port.
    pub traversal: Arc<Traversal>,
}

/// A cache entry, as it was found.
#[derive(Clone, Debug)]
pub struct DumpedEntry {
    /// Its name.
    pub entry: EntryId,
    /// What made it.
    pub traversal: Arc<Traversal>,
    /// Packets that hit it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last of them came.
    pub used: Time,
    /// Where it stands in a chain of stages, if it is a piece of one.
    pub link: Option<ChainLink>,
}
