//! The exchange of messages at the start of a connection, for both roles.
//!
//! ```text
//!   server                                  client
//!     │── HELLO: limits ──────────────────────►│ creates the memory
//!     │◄──────────────── INIT: id and secret ──│
//!     │── ACK ────────────────────────────────►│
//!     │◄──────── ADD_REGION with a file ───────│ once for each region
//!     │── ACK ────────────────────────────────►│
//!     │◄──────── ADD_RING with an eventfd ─────│ once for each ring
//!     │── ACK ────────────────────────────────►│
//!     │◄───────────────────────── CONNECT ─────│
//!     │── CONNECTED ──────────────────────────►│
//! ```
//!
//! A session does no input or output: the control thread passes messages to it, and sends the
//! resulting messages. After the exchange, the only allowed message is `DISCONNECT`.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use shunt_shared_memory::{SharedMapping, accept_event};

use crate::{
    error::MemifProtocolError,
    layout::{ClientMemory, MemoryLayout},
    message::{
        HelloMessage, InitMessage, MODE_ETHERNET, MemifMessage, RingDirection, RingMessage, VERSION,
    },
    options::MemifOptions,
    queues::{QUEUES_MAX, ReceiveQueue, TransmitQueue},
    ring::{BufferOwner, LOG2_SIZE_MAX, ReceiveRing, Regions, RingMemory, TransmitRing},
};

/// The name of this program in messages.
const PROGRAM: &str = "shunt";

/// The maximum number of regions of a client.
///
/// A client that shares its whole memory has many regions.
const REGIONS_MAX: usize = 256;

/// The maximum total length of the regions of a client, in bytes.
///
/// The kernel accounts pages that the client has never touched to the switch once the switch uses
/// them.
const REGIONS_BYTES_MAX: u64 = 4 << 30;

/// The rings of a complete connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectedRings {
    pub(crate) receive: Vec<ReceiveQueue>,
    pub(crate) transmit: Vec<TransmitQueue>,
    /// The name of the interface at the peer.
    pub(crate) peer: String,
}

/// The effect of a message on a session.
#[derive(Debug)]
pub(crate) enum SessionStep {
    /// Another message must be sent.
    Send(MemifMessage, Option<Arc<File>>),
    /// The connection is complete; a last message may have to be sent.
    Connected(ConnectedRings, Option<MemifMessage>),
}

/// Returns the first message of a server.
pub(crate) fn hello() -> MemifMessage {
    /// The highest number of a region.
    #[expect(clippy::cast_possible_truncation, reason = "there are 256 regions")]
    const REGION_MAX: u16 = (REGIONS_MAX - 1) as u16;
    MemifMessage::Hello(HelloMessage {
        name: PROGRAM.to_owned(),
        version_min: VERSION,
        version_max: VERSION,
        region_max: REGION_MAX,
        to_client_max: QUEUES_MAX - 1,
        to_server_max: QUEUES_MAX - 1,
        log2_size_max: LOG2_SIZE_MAX,
    })
}

/// Returns the last message of a connection.
pub(crate) fn disconnect(reason: &str) -> MemifMessage {
    MemifMessage::Disconnect { code: 0, reason: reason.to_owned() }
}

/// Checks the choice of a client against the chosen interface.
///
/// # Errors
///
/// If the client cannot use the interface.
pub(crate) fn check_init(
    init: &InitMessage,
    options: &MemifOptions,
) -> Result<(), MemifProtocolError> {
    if init.version != VERSION {
        return Err(MemifProtocolError::Version { min: init.version, max: init.version });
    }
    if !options.secret.permits(&init.secret) {
        return Err(MemifProtocolError::Secret);
    }
    if init.mode != MODE_ETHERNET {
        return Err(MemifProtocolError::Mode(init.mode));
    }
    Ok(())
}

/// The session of a server, after its client has chosen the interface.
#[derive(Debug, Default)]
pub(crate) struct MemifServerSession {
    name: String,
    allow_unsealed: bool,
    regions: Vec<SharedMapping>,
    /// Total length of all regions, in bytes.
    regions_bytes: u64,
    /// Rings to the server by number, each with its eventfd.
    to_server: BTreeMap<u16, (RingMessage, File)>,
    to_client: BTreeMap<u16, (RingMessage, File)>,
    is_connected: bool,
}

impl MemifServerSession {
    /// Creates the session of an interface.
    pub(crate) fn new(options: &MemifOptions) -> Self {
        let (name, allow_unsealed) = (options.name.clone(), options.allow_unsealed);
        Self { name, allow_unsealed, ..Self::default() }
    }

    /// Handles a message of the client.
    ///
    /// # Errors
    ///
    /// If the connection must be closed.
    pub(crate) fn handle(
        &mut self,
        message: MemifMessage,
        descriptor: Option<OwnedFd>,
    ) -> Result<SessionStep, MemifProtocolError> {
        let missing = MemifProtocolError::NoDescriptor(message.name());
        match message {
            MemifMessage::Disconnect { reason, .. } => {
                return Err(MemifProtocolError::Disconnected(reason));
            }
            _ if self.is_connected => return Err(MemifProtocolError::Unexpected(message.name())),
            MemifMessage::AddRegion { index, size } => {
                self.add_region(index, size, &descriptor.ok_or(missing)?)?;
            }
            MemifMessage::AddRing(ring) => self.add_ring(ring, descriptor.ok_or(missing)?)?,
            MemifMessage::Connect { name } => {
                let rings = self.connect(name)?;
                let answer = MemifMessage::Connected { name: self.name.clone() };
                return Ok(SessionStep::Connected(rings, Some(answer)));
            }
            other => return Err(MemifProtocolError::Unexpected(other.name())),
        }
        Ok(SessionStep::Send(MemifMessage::Ack, None))
    }

    /// Maps a memory region of the client.
    fn add_region(
        &mut self,
        index: u16,
        size: u64,
        file: &OwnedFd,
    ) -> Result<(), MemifProtocolError> {
        let next = self.regions.len();
        if usize::from(index) != next || next >= REGIONS_MAX {
            return Err(MemifProtocolError::Region { index, next, max: REGIONS_MAX });
        }
        let bytes = self.regions_bytes.saturating_add(size);
        if bytes > REGIONS_BYTES_MAX {
            return Err(MemifProtocolError::RegionsBytes(bytes));
        }
        let mapping = match self.allow_unsealed {
            true => SharedMapping::new(file, 0, size),
            false => SharedMapping::sealed(file, size),
        };
        self.regions.push(mapping?);
        self.regions_bytes = bytes;
        Ok(())
    }

    /// Adds a ring of the client.
    fn add_ring(&mut self, ring: RingMessage, event: OwnedFd) -> Result<(), MemifProtocolError> {
        let rings = match ring.direction {
            RingDirection::ToServer => &mut self.to_server,
            RingDirection::ToClient => &mut self.to_client,
        };
        if ring.index >= QUEUES_MAX || rings.contains_key(&ring.index) {
            return Err(MemifProtocolError::Ring { index: ring.index, max: QUEUES_MAX });
        }
        rings.insert(ring.index, (ring, accept_event(event)?));
        Ok(())
    }

    /// Opens all rings that the client has described.
    fn connect(&mut self, peer: String) -> Result<ConnectedRings, MemifProtocolError> {
        let regions: Regions = std::mem::take(&mut self.regions).into();
        let open =
            |ring: &RingMessage| RingMemory::open(Arc::clone(&regions), ring, BufferOwner::Peer);
        let mut rings = ConnectedRings { peer, ..ConnectedRings::default() };
        for (ring, event) in in_order_of_numbers(std::mem::take(&mut self.to_server))? {
            rings.receive.push(ReceiveQueue::new(ReceiveRing::start(open(&ring)?), event));
        }
        for (ring, event) in in_order_of_numbers(std::mem::take(&mut self.to_client))? {
            let ring = TransmitRing::start(open(&ring)?);
            rings.transmit.push(TransmitQueue { ring, event });
        }
        self.is_connected = true;
        Ok(rings)
    }
}

/// Returns rings in the order of their numbers; an error if a number is missing.
fn in_order_of_numbers(
    rings: BTreeMap<u16, (RingMessage, File)>,
) -> Result<impl Iterator<Item = (RingMessage, File)>, MemifProtocolError> {
    let gap = (0..).zip(rings.keys()).find(|(expected, number)| expected != *number);
    match gap.map(|(expected, _)| expected) {
        Some(missing) => Err(MemifProtocolError::MissingRing(missing)),
        None => Ok(rings.into_values()),
    }
}

/// The session of a client, from the start of its connection on.
#[derive(Debug)]
pub(crate) struct MemifClientSession {
    options: MemifOptions,
    memory: Option<ClientMemory>,
    layout: MemoryLayout,
    /// Messages to be sent; each waits for the acknowledgement of the previous message.
    waiting: VecDeque<(MemifMessage, Option<Arc<File>>)>,
    /// The eventfd of each ring, in the order of [`MemoryLayout::ring_messages`].
    events: Vec<Arc<File>>,
    is_connected: bool,
}

impl MemifClientSession {
    /// Creates the session of an interface.
    pub(crate) fn new(options: MemifOptions) -> Self {
        let layout = MemoryLayout::of(&options);
        let (waiting, events) = (VecDeque::new(), Vec::new());
        Self { options, memory: None, layout, waiting, events, is_connected: false }
    }

    /// Handles a message of the server.
    ///
    /// # Errors
    ///
    /// If the connection must be closed.
    pub(crate) fn handle(
        &mut self,
        message: MemifMessage,
    ) -> Result<SessionStep, MemifProtocolError> {
        match message {
            MemifMessage::Disconnect { reason, .. } => {
                Err(MemifProtocolError::Disconnected(reason))
            }
            MemifMessage::Hello(hello) if self.memory.is_none() => {
                self.prepare(&hello)?;
                self.next()
            }
            MemifMessage::Ack if self.memory.is_some() => self.next(),
            MemifMessage::Connected { name }
                if self.memory.is_some() && self.waiting.is_empty() && !self.is_connected =>
            {
                self.is_connected = true;
                Ok(SessionStep::Connected(self.rings(name)?, None))
            }
            other => Err(MemifProtocolError::Unexpected(other.name())),
        }
    }

    /// Returns the next message to send.
    fn next(&mut self) -> Result<SessionStep, MemifProtocolError> {
        let (message, file) =
            self.waiting.pop_front().ok_or(MemifProtocolError::Unexpected("ACK"))?;
        Ok(SessionStep::Send(message, file))
    }

    /// Creates the memory within the limits of the server.
    fn prepare(&mut self, hello: &HelloMessage) -> Result<(), MemifProtocolError> {
        let HelloMessage { version_min, version_max, .. } = *hello;
        if !(version_min..=version_max).contains(&VERSION) {
            return Err(MemifProtocolError::Version { min: version_min, max: version_max });
        }
        let wanted = MemoryLayout::of(&self.options);
        self.layout = MemoryLayout {
            ring_log2: wanted.ring_log2.min(hello.log2_size_max),
            to_server: wanted.to_server.min(hello.to_server_max.saturating_add(1)),
            to_client: wanted.to_client.min(hello.to_client_max.saturating_add(1)),
            ..wanted
        };
        let memory = ClientMemory::new(&self.layout)?;
        let MemifOptions { id, secret, name, .. } = &self.options;
        let init = InitMessage {
            version: VERSION,
            id: *id,
            mode: MODE_ETHERNET,
            secret: secret.field(),
            name: PROGRAM.to_owned(),
        };
        let file = Arc::new(File::from(memory.file().try_clone_to_owned()?));
        let region = MemifMessage::AddRegion { index: 0, size: self.layout.bytes() };
        self.waiting.push_back((MemifMessage::Init(init), None));
        self.waiting.push_back((region, Some(file)));
        for ring in self.layout.ring_messages() {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            let event = EventFd::from_flags(flags).map_err(io::Error::from)?;
            let event = Arc::new(File::from(OwnedFd::from(event)));
            self.events.push(Arc::clone(&event));
            self.waiting.push_back((MemifMessage::AddRing(ring), Some(event)));
        }
        self.waiting.push_back((MemifMessage::Connect { name: name.clone() }, None));
        self.memory = Some(memory);
        Ok(())
    }

    /// Opens all rings of the client's memory.
    fn rings(&mut self, peer: String) -> Result<ConnectedRings, MemifProtocolError> {
        let mut rings = ConnectedRings { peer, ..ConnectedRings::default() };
        let Some(memory) = &self.memory else { return Ok(rings) };
        for (message, event) in self.layout.ring_messages().zip(self.events.drain(..)) {
            let owner = self.layout.buffers(message.direction, message.index);
            let ring = RingMemory::open(Arc::clone(&memory.regions), &message, owner)?;
            let event = File::from(event.as_fd().try_clone_to_owned()?);
            match message.direction {
                RingDirection::ToServer => {
                    let ring = TransmitRing::start(ring);
                    rings.transmit.push(TransmitQueue { ring, event });
                }
                RingDirection::ToClient => {
                    rings.receive.push(ReceiveQueue::new(ReceiveRing::start(ring), event));
                }
            }
        }
        Ok(rings)
    }
}

/// Returns the descriptor that accompanies a message.
pub(crate) fn descriptor(file: Option<&Arc<File>>) -> Option<BorrowedFd<'_>> {
    file.map(|file| file.as_fd())
}
