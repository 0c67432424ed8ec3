//! Peers that break the protocol lose their connection, and affect nothing else.

use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::Path,
};

use nix::sys::{
    eventfd::{EfdFlags, EventFd},
    memfd::{MFdFlags, memfd_create},
    socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket},
};
use shunt_shared_memory::{SharedMapping, receive_with_descriptors, send_with_descriptors};

use super::{await_links, await_reason, options, socket as socket_path, start};
use crate::{
    MemifInterface, MemifOptions, MemifRole,
    message::{InitMessage, MemifMessage, RingDirection, RingMessage, VERSION},
    ring::COOKIE,
};

/// A peer that sends any message, without checks.
struct RawPeer(OwnedFd);

impl RawPeer {
    /// Connects to a socket as a client.
    fn connect(path: &Path) -> Self {
        let own =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(own.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        Self(own)
    }

    /// Sends a message of the protocol; a closed connection drops it.
    fn send(&self, message: &MemifMessage, descriptor: Option<BorrowedFd<'_>>) {
        // Sending fails if the other side has closed the connection.
        let _ = send_with_descriptors(&self.0, &message.encode(), descriptor.as_slice());
    }

    /// Receives a message; `None` at the end of the connection.
    fn receive(&self) -> Option<MemifMessage> {
        let mut bytes = [0; 128];
        let received = receive_with_descriptors(&self.0, &mut bytes).ok()?;
        (received.length > 0).then(|| MemifMessage::parse(&bytes).unwrap())
    }

    /// Returns the reason for which the other side disconnects.
    fn refusal(&self) -> String {
        loop {
            match self.receive() {
                Some(MemifMessage::Disconnect { reason, .. }) => return reason,
                Some(_) => {}
                None => return "no reason".to_owned(),
            }
        }
    }

    /// Chooses the interface, and adds a region that has space for small rings.
    fn start(&self) -> File {
        self.send(&init(), None);
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"garbage", flags).unwrap());
        file.set_len(4096).unwrap();
        let region = SharedMapping::new(&file, 0, 4096).unwrap();
        for ring in [0, 512] {
            assert!(region.write(ring, &COOKIE.to_ne_bytes()));
        }
        self.send(&MemifMessage::AddRegion { index: 0, size: 4096 }, Some(file.as_fd()));
        file
    }
}

/// Returns a message that chooses an interface.
fn init() -> MemifMessage {
    let (version, name) = (VERSION, "garbage".to_owned());
    MemifMessage::Init(InitMessage { version, id: 0, mode: 0, secret: [0; 24], name })
}

/// Returns an eventfd.
fn event() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap()
}

/// A message that adds a valid ring.
const RING: RingMessage = RingMessage {
    direction: RingDirection::ToServer,
    index: 0,
    region: 0,
    offset: 0,
    log2_size: 3,
};

/// Checks that a server still serves a client that follows the protocol.
fn serves(server: &MemifInterface, path: &Path) {
    let (client, _) = start(options(path, MemifRole::Client));
    await_links(&[server, &client]);
    drop(client);
    await_reason(server, "the port was closed");
}

#[test]
fn a_server_refuses_messages_that_break_the_protocol() {
    let (_folder, path) = socket_path();
    let (server, _) = start(options(&path, MemifRole::Server));
    let connect = MemifMessage::Connect { name: String::new() };
    let ring = |message| MemifMessage::AddRing(message);
    let mode = match init() {
        MemifMessage::Init(init) => MemifMessage::Init(InitMessage { mode: 1, ..init }),
        other => other,
    };
    /// Messages of a peer that break a rule.
    type PeerAction<'a> = &'a dyn Fn(&RawPeer);
    let cases: [(&str, PeerAction<'_>); 13] = [
        ("the peer sent the memif message CONNECT, which is not allowed at this point", &|peer| {
            peer.send(&connect, None);
        }),
        ("the mode 1 of the client is not supported", &|peer| peer.send(&mode, None)),
        ("the peer sent a memif message of 3 bytes, but each message has 128", &|peer| {
            send_with_descriptors(&peer.0, b"abc", &[]).unwrap();
        }),
        ("the peer sent a memif message of the unknown type 65535", &|peer| {
            send_with_descriptors(&peer.0, &[0xff; 128], &[]).unwrap();
        }),
        ("the peer sent the memif message ADD_REGION without its file descriptor", &|peer| {
            peer.start();
            peer.send(&MemifMessage::AddRegion { index: 1, size: 4096 }, None);
        }),
        ("the peer added memory region 2, but the next number is 1", &|peer| {
            let file = peer.start();
            peer.send(&MemifMessage::AddRegion { index: 2, size: 4096 }, Some(file.as_fd()));
        }),
        ("a memory region ends at byte 8192, but its file has only 4096 bytes", &|peer| {
            let file = peer.start();
            peer.send(&MemifMessage::AddRegion { index: 1, size: 8192 }, Some(file.as_fd()));
        }),
        (
            "the memory regions of the client have 4294971392 bytes: at most 4 GiB are possible",
            &|peer| {
                let file = peer.start();
                peer.send(&MemifMessage::AddRegion { index: 1, size: 4 << 30 }, Some(file.as_fd()));
            },
        ),
        ("bytes: at most 4 GiB", &|peer| {
            let file = peer.start();
            peer.send(&MemifMessage::AddRegion { index: 1, size: u64::MAX }, Some(file.as_fd()));
        }),
        ("not an eventfd", &|peer| {
            let file = peer.start();
            peer.send(&ring(RING), Some(file.as_fd()));
        }),
        ("the peer added ring 64, which", &|peer| {
            peer.start();
            peer.send(&ring(RingMessage { index: 64, ..RING }), Some(event().as_fd()));
        }),
        ("the peer did not add ring 0: rings are numbered from 0 without a gap", &|peer| {
            peer.start();
            peer.send(&ring(RingMessage { index: 1, ..RING }), Some(event().as_fd()));
            peer.send(&connect, None);
        }),
        ("the ring at byte 4095 of memory region 0 is outside", &|peer| {
            peer.start();
            peer.send(&ring(RingMessage { offset: 4095, ..RING }), Some(event().as_fd()));
            peer.send(&connect, None);
        }),
    ];
    for (reason, act) in cases {
        let peer = RawPeer::connect(&path);
        act(&peer);
        let refusal = peer.refusal();
        assert!(refusal.contains(reason), "{refusal}, not {reason}");
        assert_eq!(peer.receive(), None, "the connection is closed");
    }
    serves(&server, &path);
}

/// A client could crash the process by shortening its file.
#[test]
fn a_file_that_can_be_shortened_is_refused() {
    let (_folder, path) = socket_path();
    let (_server, _) = start(options(&path, MemifRole::Server));
    let peer = RawPeer::connect(&path);
    peer.send(&init(), None);
    let file = File::from(memfd_create(c"garbage", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(4096).unwrap();
    peer.send(&MemifMessage::AddRegion { index: 0, size: 4096 }, Some(file.as_fd()));
    let refusal = peer.refusal();
    assert!(refusal.contains("seal the file with F_SEAL_SHRINK"), "{refusal}");

    let trusting =
        MemifOptions { id: 1, allow_unsealed: true, ..options(&path, MemifRole::Server) };
    let (_trusting, _) = start(trusting);
    let peer = RawPeer::connect(&path);
    let MemifMessage::Init(init) = init() else { unreachable!() };
    peer.send(&MemifMessage::Init(InitMessage { id: 1, ..init }), None);
    peer.send(&MemifMessage::AddRegion { index: 0, size: 4096 }, Some(file.as_fd()));
    assert!(matches!(peer.receive(), Some(MemifMessage::Hello(_))));
    assert_eq!(
        [peer.receive(), peer.receive()],
        [Some(MemifMessage::Ack), Some(MemifMessage::Ack)]
    );
}

#[test]
fn a_broken_ring_ends_the_connection() {
    let (_folder, path) = socket_path();
    let (server, mut worker) = start(options(&path, MemifRole::Server));
    let peer = RawPeer::connect(&path);
    let file = peer.start();
    peer.send(&MemifMessage::AddRing(RING), Some(event().as_fd()));
    let to_client = RingMessage { direction: RingDirection::ToClient, offset: 512, ..RING };
    peer.send(&MemifMessage::AddRing(to_client), Some(event().as_fd()));
    peer.send(&MemifMessage::Connect { name: "garbage".to_owned() }, None);
    await_links(&[&server]);
    let region = SharedMapping::new(&file, 0, 4096).unwrap();
    assert!(region.write(6, &1000_u16.to_ne_bytes()));
    worker.receiver.receive(32, &mut super::TestFrames::default());
    await_reason(&server, "the peer announced 1000 descriptors in a ring that has only 8");
    assert!(peer.refusal().contains("announced 1000 descriptors"));
    serves(&server, &path);
}

/// A silent client does not occupy an interface, and is closed after a while.
#[test]
fn a_client_that_is_silent_is_closed() {
    let (_folder, path) = socket_path();
    let (server, _) = start(options(&path, MemifRole::Server));
    let silent: Vec<RawPeer> = (0..10).map(|_| RawPeer::connect(&path)).collect();
    serves(&server, &path);
    for peer in silent {
        assert!(
            peer.refusal().contains("has not completed the exchange of messages within 2 seconds")
        );
    }
}

/// Silent clients do not keep other clients from their listener,
/// or from another listener.
#[test]
fn silent_clients_give_way_to_new_ones() {
    let (_folder, path) = socket_path();
    let (server, _) = start(options(&path, MemifRole::Server));
    let (_other_folder, other_path) = socket_path();
    let (other, _) = start(options(&other_path, MemifRole::Server));
    let silent: Vec<RawPeer> = (0..80).map(|_| RawPeer::connect(&path)).collect();
    serves(&other, &other_path);
    serves(&server, &path);
    // At most 64 clients may wait, including the client that was served.
    for peer in &silent[..17] {
        let refusal = peer.refusal();
        assert!(refusal.contains("for the longest time of 64 such clients"), "{refusal}");
    }
}

#[test]
fn client_refuses_server_that_breaks_protocol() {
    let (_folder, path) = socket_path();
    let own =
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(own.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&own, Backlog::new(8).unwrap()).unwrap();
    let listener = UnixListener::from(own);
    let (client, _) = start(options(&path, MemifRole::Client));
    let cases = [
        (
            MemifMessage::Ack,
            "the peer sent the memif message ACK, which is not allowed at this \
             point",
        ),
        (
            MemifMessage::Connected { name: String::new() },
            "the memif message CONNECTED, which is not allowed at this point",
        ),
        (crate::session::disconnect("no\x1b"), "the peer has disconnected: no?"),
    ];
    for (message, reason) in cases {
        let (stream, _) = listener.accept().unwrap();
        RawPeer(stream.into()).send(&message, None);
        await_reason(&client, reason);
    }
    let (stream, _) = listener.accept().unwrap();
    let peer = RawPeer(stream.into());
    let MemifMessage::Hello(hello) = crate::session::hello() else { unreachable!() };
    let old = crate::message::HelloMessage { version_max: 0x100, version_min: 0x100, ..hello };
    peer.send(&MemifMessage::Hello(old), None);
    assert!(
        peer.refusal()
            .contains("the peer supports the versions 0x100 to 0x100 of memif: version 0x200")
    );
}
