//! Functions for fuzz targets, which accept any bytes.

use std::{fs::File, os::fd::OwnedFd, path::Path, sync::Arc};

use nix::sys::{
    eventfd::{EfdFlags, EventFd},
    memfd::{MFdFlags, memfd_create},
};

use super::{RingFrames, RingPair};
use crate::{
    MemifOptions, MemifWorker,
    error::MemifProtocolError,
    layout::{ClientMemory, MemoryLayout},
    message::MemifMessage,
    queues::InterfaceQueues,
    session::{MemifClientSession, MemifServerSession, SessionStep},
};

/// A fuzzed session of either role.
enum FuzzedSession {
    Server(MemifServerSession),
    Client(Box<MemifClientSession>),
}

impl FuzzedSession {
    /// Handles a message in the role of the session.
    fn handle(
        &mut self,
        message: MemifMessage,
        descriptor: Option<OwnedFd>,
    ) -> Result<SessionStep, MemifProtocolError> {
        match self {
            Self::Server(session) => session.handle(message, descriptor),
            Self::Client(session) => session.handle(message),
        }
    }
}

/// Handles messages of arbitrary bytes, as a server or as a client.
///
/// The first byte of the input selects the role. Each message has a byte that selects its
/// descriptor, a byte for its length, and its bytes. When a session is complete, frames are moved
/// through its rings.
///
/// # Panics
///
/// Panics if a property of a session does not hold.
pub fn fuzz_messages(data: &[u8]) {
    let (Some((role, mut data)), Ok(queues)) = (data.split_first(), InterfaceQueues::new(2)) else {
        return;
    };
    let queues = Arc::new(queues);
    let mut workers = [0, 1].map(|worker| MemifWorker::new(&queues, worker));
    let options = MemifOptions { ring_log2: 2, queues: 2, ..MemifOptions::new(Path::new("@fuzz")) };
    let mut session = match role % 2 {
        0 => FuzzedSession::Server(MemifServerSession::new(&options)),
        _ => FuzzedSession::Client(Box::new(MemifClientSession::new(options))),
    };
    while let Some(([kind, length], rest)) = data.split_first_chunk() {
        let (payload, behind) = rest.split_at(rest.len().min((*length).into()));
        data = behind;
        let _ = MemifMessage::parse(payload);
        let mut bytes = payload.to_vec();
        bytes.resize(crate::message::MESSAGE_BYTES, 0);
        let Ok(message) = MemifMessage::parse(&bytes) else { continue };
        match session.handle(message, passed_descriptor(*kind)) {
            Err(_) => break,
            Ok(SessionStep::Send(..)) => {}
            Ok(SessionStep::Connected(rings, _)) => queues.start(rings.receive, rings.transmit),
        }
        for worker in &mut workers {
            worker.receiver.receive(4, &mut RingFrames::default());
            worker.sender.send([&[7; 60][..]]);
        }
        let _ = queues.take_failure();
    }
    queues.stop();
}

/// Returns a descriptor of a kind that a peer may pass.
fn passed_descriptor(kind: u8) -> Option<OwnedFd> {
    let layout = MemoryLayout { ring_log2: 2, buffer_bytes: 64, to_server: 1, to_client: 1 };
    let file = |length| {
        let file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_ALLOW_SEALING).ok()?);
        file.set_len(length).ok()?;
        Some(file.into())
    };
    match kind % 5 {
        0 => None,
        1 => EventFd::from_flags(EfdFlags::EFD_NONBLOCK).ok().map(OwnedFd::from),
        2 => ClientMemory::new(&layout).ok()?.file().try_clone_to_owned().ok(),
        3 => file(1 << 14),
        // A sparse file that is longer than the limit for all regions together.
        _ => file(1 << 40),
    }
}

/// Moves frames through rings after parts of the rings were overwritten.
///
/// The data are changes of the memory of both rings, each with offset, length and bytes.
///
/// # Panics
///
/// Panics if a property of the rings does not hold.
pub fn fuzz_ring(mut data: &[u8]) {
    let mut pair = RingPair::new(3, 128);
    loop {
        let mut sink = RingFrames::default();
        let frame = [3; 300];
        let mut results = [(); 4].map(|()| Ok(()));
        for (result, ring) in
            results.iter_mut().zip([&mut pair.client_sends, &mut pair.server_sends])
        {
            *result = ring.look(2).and_then(|()| ring.put_frame(&frame)).map(drop);
            ring.publish();
        }
        let receivers = [&mut pair.server_receives, &mut pair.client_receives];
        for (result, ring) in results.iter_mut().skip(2).zip(receivers) {
            let before = sink.frames.len();
            let (taken, end) = ring.take_frames(4, &mut sink);
            assert!(sink.frames.len() - before <= taken && taken <= 4, "no frame is taken twice");
            ring.set_interrupts(taken == 0);
            *result = end;
        }
        if results.iter().any(Result::is_err) {
            return;
        }
        let Some(([low, high, length], rest)) = data.split_first_chunk() else { return };
        let (bytes, behind) = rest.split_at(rest.len().min((*length).into()));
        let memory = &pair.memory[0];
        // Both rings are in the first 512 bytes, followed by their buffers.
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % memory.length();
        let inside = bytes.len().min(memory.length() - offset);
        assert!(memory.write(offset, &bytes[..inside]));
        data = behind;
    }
}
