//! The rings of a client and of a server in one process.

use std::sync::Arc;

use shunt_shared_memory::SharedMapping;

use crate::{
    MemifSink,
    layout::{ClientMemory, MemoryLayout},
    message::RingDirection,
    ring::{BufferOwner, ReceiveRing, Regions, RingMemory, TransmitRing},
};

/// One ring in each direction, with both of its sides.
#[derive(Debug)]
pub(crate) struct RingPair {
    pub(crate) client_sends: TransmitRing,
    pub(crate) server_receives: ReceiveRing,
    pub(crate) server_sends: TransmitRing,
    pub(crate) client_receives: ReceiveRing,
    /// The memory of both rings, for tests that break rules.
    pub(crate) memory: Regions,
}

impl RingPair {
    /// Creates rings with `1 << ring_log2` buffers.
    pub(crate) fn new(ring_log2: u8, buffer_bytes: u16) -> Self {
        let layout = MemoryLayout { ring_log2, buffer_bytes, to_server: 1, to_client: 1 };
        let client = ClientMemory::new(&layout).expect("there is memory");
        let mapping = SharedMapping::sealed(&client.file(), layout.bytes());
        let server: Regions = [mapping.expect("the file is sealed")].into();
        let mut messages = layout.ring_messages();
        let (to_server, to_client) = messages.next().zip(messages.next()).expect("there are two");
        let open = |regions: &Regions, message, owner| {
            RingMemory::open(Arc::clone(regions), message, owner).expect("the ring is valid")
        };
        let own = |direction| layout.buffers(direction, 0);
        let of_client = &client.regions;
        Self {
            client_sends: TransmitRing::start(open(
                of_client,
                &to_server,
                own(RingDirection::ToServer),
            )),
            server_receives: ReceiveRing::start(open(&server, &to_server, BufferOwner::Peer)),
            server_sends: TransmitRing::start(open(&server, &to_client, BufferOwner::Peer)),
            client_receives: ReceiveRing::start(open(
                of_client,
                &to_client,
                own(RingDirection::ToClient),
            )),
            memory: Arc::clone(&client.regions),
        }
    }
}

/// A sink for tests that keeps all frames up to a maximum length.
#[derive(Debug, Default)]
pub(crate) struct RingFrames {
    buffer: Vec<u8>,
    pub(crate) frames: Vec<Vec<u8>>,
}

/// Maximum length of a frame that the sink accepts, in bytes.
const LENGTH_MAX: usize = 1 << 17;

impl MemifSink for RingFrames {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        if length > LENGTH_MAX {
            return None;
        }
        self.buffer.resize(length, 0);
        Some(&mut self.buffer)
    }

    fn take(&mut self) {
        self.frames.push(self.buffer.clone());
    }
}
