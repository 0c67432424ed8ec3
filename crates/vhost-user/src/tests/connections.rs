//! Tests of back-ends with front-ends at a socket.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use shunt_thread_watch::watched_threads;

use super::KeptFrames;
use crate::{
    Backend, BackendError, GuestLink, NetHeader, SocketMode, Worker,
    testing::{BufferLayout, MessageOrder, TestFrontEnd, TestGuest},
};

/// Waits for a state of the link.
fn await_link(backend: &Backend, what: &str, is_reached: impl Fn(&GuestLink) -> bool) {
    let is_reached = backend.wait_for_link(Duration::from_secs(20), is_reached);
    assert!(is_reached, "not {what}, but {}", backend.link());
}

/// Sends a frame in each direction.
fn exchange(guest: &mut TestGuest, worker: &mut Worker) {
    assert!(guest.send(0, NetHeader::default(), &[9; 60], &BufferLayout::whole(72)));
    assert!(guest.offer_buffer(0, &BufferLayout::whole(100)));
    let mut kept = KeptFrames::default();
    worker.receiver.receive(32, &mut kept);
    assert_eq!(kept.frames, [(NetHeader::default(), vec![9; 60])]);
    assert_eq!(worker.sender.send([(NetHeader::default(), &[7; 60][..])]).frames, 1);
    assert_eq!(guest.take_received(0)[0].1, vec![7; 60]);
    assert_eq!(guest.take_sent(0), 1);
}

/// Waits for a connection, and returns its front-end.
fn accept_front_end(listener: &UnixListener) -> TestFrontEnd {
    TestFrontEnd::new(listener.accept().unwrap().0)
}

/// Returns a guest with one pair of queues.
fn guest() -> TestGuest {
    TestGuest::new(1, 8, TestGuest::SPLIT)
}

/// Returns a guest with one pair of packed queues of eight descriptors.
fn packed_guest() -> TestGuest {
    TestGuest::new(1, 8, TestGuest::PACKED)
}

#[test]
fn a_client_connects_again_after_each_side_restarts() {
    for guest in [guest(), packed_guest()] {
        check_client(guest);
    }
}

/// Checks that a back-end in client mode connects again after both kinds of end.
fn check_client(mut guest: TestGuest) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    let start = || Backend::start(&path, SocketMode::Client, 1).unwrap();
    let (mut backend, mut workers) = start();
    await_link(&backend, "waiting", |link| link.to_string().contains("No such file"));
    let listener = UnixListener::bind(&path).unwrap();
    for (round, order) in
        [MessageOrder::Qemu, MessageOrder::Dpdk].into_iter().cycle().take(4).enumerate()
    {
        let mut front_end = accept_front_end(&listener);
        await_link(&backend, "connected", |link| *link == GuestLink::Connected);
        front_end.start(&guest, order).unwrap();
        await_link(&backend, "up", GuestLink::is_up);
        exchange(&mut guest, &mut workers[0]);
        if round % 2 == 0 {
            // The hypervisor closes the connection, and continues to listen.
            drop(front_end);
        } else {
            // The switch ends, and starts a new back-end.
            drop(backend);
            (backend, workers) = start();
        }
    }
}

/// A peer that disconnects at once is retried after longer and longer pauses.
#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread needs a real clock")]
fn reconnects_to_a_closing_peer_are_delayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let _backend = Backend::start(&path, SocketMode::Client, 1).unwrap();
    let connection = listener.accept().unwrap();
    let first = Instant::now();
    drop(connection);
    for _ in 0..3 {
        drop(listener.accept().unwrap());
    }
    // The first three pauses are 50, 100 and 200 ms.
    assert!(first.elapsed() > Duration::from_millis(300), "{:?}", first.elapsed());
}

#[test]
fn a_server_listens_again_after_each_side_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    // A process that was killed leaves its socket file.
    drop(UnixListener::bind(&path).unwrap());
    let start = || Backend::start(&path, SocketMode::Server, 1).unwrap();
    let (mut backend, mut workers) = start();
    let mut guest = guest();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    for round in 0..3 {
        let mut front_end = TestFrontEnd::new(UnixStream::connect(&path).unwrap());
        front_end.start(&guest, MessageOrder::Qemu).unwrap();
        await_link(&backend, "up", GuestLink::is_up);
        exchange(&mut guest, &mut workers[0]);
        drop(front_end);
        await_link(&backend, "waiting", |link| matches!(link, GuestLink::Waiting { .. }));
        if round == 1 {
            drop(backend);
            assert!(!path.exists(), "a server removes its socket");
            (backend, workers) = start();
        }
    }
    let second = Backend::start(&path, SocketMode::Server, 1).map(drop).unwrap_err();
    assert!(matches!(second, BackendError::InUse { .. }), "{second}");
}

#[test]
fn a_server_replaces_nothing_but_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    File::create(&path).unwrap();
    let error = Backend::start(&path, SocketMode::Server, 1).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("cannot listen at "), "{error}");
    assert!(path.exists());
    let long = "x".repeat(120);
    let error = Backend::start(Path::new(&long), SocketMode::Client, 1).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("cannot use xxx"), "{error}");
}

/// Connects a front-end of a guest to a new server.
fn connect_guest(
    folder: &tempfile::TempDir,
    guest: &TestGuest,
) -> (Backend, Vec<Worker>, TestFrontEnd) {
    let path = folder.path().join("guest.sock");
    let (backend, workers) = Backend::start(&path, SocketMode::Server, 1).unwrap();
    let mut front_end = TestFrontEnd::new(UnixStream::connect(&path).unwrap());
    front_end.start(guest, MessageOrder::Qemu).unwrap();
    await_link(&backend, "up", GuestLink::is_up);
    (backend, workers, front_end)
}

#[test]
fn a_broken_guest_is_down_until_it_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = guest();
    let (backend, mut workers, mut front_end) = connect_guest(&folder, &guest);
    exchange(&mut guest, &mut workers[0]);
    guest.corrupt(1, 0x2002, &[99, 0]);
    workers[0].receiver.receive(32, &mut KeptFrames::default());
    await_link(&backend, "stopped", |link| link.to_string().contains("queue 1 was stopped"));
    // The driver of the guest starts again, with empty queues.
    let mut second = TestGuest::new(1, 8, TestGuest::SPLIT);
    for queue in [0, 1] {
        front_end.stop_queue(queue).unwrap();
    }
    await_link(&backend, "connected", |link| *link == GuestLink::Connected);
    front_end.set_memory(&second).unwrap();
    for queue in [0, 1] {
        front_end.start_queue(&second, queue).unwrap();
    }
    await_link(&backend, "up", GuestLink::is_up);
    exchange(&mut second, &mut workers[0]);
}

#[test]
fn wrong_messages_end_the_connection_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = guest();
    let file = File::open("/dev/null").unwrap();
    /// A request, its payload and descriptors, and the expected log text.
    type Mistake<'a> = (u32, Vec<u8>, Vec<std::os::fd::BorrowedFd<'a>>, &'a str);
    let mistakes: Vec<Mistake<'_>> = vec![
        (2, u64::MAX.to_le_bytes().to_vec(), vec![], "were not offered"),
        (10, [0; 3].to_vec(), vec![], "3 bytes, which is too short"),
        (18, [200, 0, 0, 0, 1, 0, 0, 0].to_vec(), vec![], "queue 200, which does not exist"),
        (12, [0; 8].to_vec(), vec![], "with 0 file descriptors, but 1 are needed"),
        (13, [0; 8].to_vec(), vec![file.as_fd()], "/dev/null, not an eventfd"),
        (200, vec![], vec![], "the front-end sent request 200, which this device does not support"),
        (1, vec![0; 300], vec![], "300 bytes: at most 264 are allowed"),
    ];
    for (request, payload, descriptors, reason) in mistakes {
        let (backend, mut workers, mut front_end) = connect_guest(&folder, &guest);
        exchange(&mut guest, &mut workers[0]);
        front_end.send(request, 0, &payload, &descriptors).unwrap();
        await_link(&backend, reason, |link| link.to_string().contains(reason));
        assert!(front_end.reply(request).is_err(), "the connection is closed");
    }
    let (_backend, mut workers, mut front_end) = connect_guest(&folder, &guest);
    assert_eq!(front_end.ask(200, &[], &[]).unwrap(), 1, "who asks learns of it");
    assert_eq!(front_end.ask(20, &67_u64.to_le_bytes(), &[]).unwrap(), 1, "the MTU is too small");
    assert_eq!(front_end.ask(20, &1500_u64.to_le_bytes(), &[]).unwrap(), 0);
    exchange(&mut guest, &mut workers[0]);
}

/// A front-end sends a message byte by byte, for longer than anybody may wait.
#[test]
fn back_end_ends_in_middle_of_message() {
    /// Length of the payload: a table of eight memory regions.
    const PAYLOAD: u32 = 264;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    let (backend, mut workers) = Backend::start(&path, SocketMode::Server, 1).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    let header: Vec<u8> = [5, 1, PAYLOAD].into_iter().flat_map(u32::to_le_bytes).collect();
    stream.write_all(&header).unwrap();
    await_link(&backend, "connected", |link| *link == GuestLink::Connected);
    let is_dropped = AtomicBool::new(false);
    let sent = scope(|scope| {
        let front_end = scope.spawn(|| {
            let is_next = |_: &u32| {
                sleep(Duration::from_millis(20));
                !is_dropped.load(Relaxed) && stream.write_all(&[0]).is_ok()
            };
            (0..PAYLOAD).take_while(is_next).count()
        });
        drop(backend);
        is_dropped.store(true, Relaxed);
        front_end.join().unwrap()
    });
    assert!(sent < PAYLOAD as usize, "the whole message was sent before the back-end ended");
    assert!(!path.exists(), "another back-end may listen there");
    assert_eq!(workers[0].sender.send([(NetHeader::default(), &[7; 60][..])]).frames, 0);
}

#[test]
fn a_message_must_be_whole_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    let (backend, _workers) = Backend::start(&path, SocketMode::Server, 1).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&[1]).unwrap();
    let reason = "the front-end has not sent the rest of a message within a second";
    await_link(&backend, reason, |link| link.to_string().contains(reason));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed");
}

/// The thread waits for a hypervisor without a time limit.
#[test]
fn a_waiting_control_thread_is_in_no_iteration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    let (backend, _workers) = Backend::start(&path, SocketMode::Server, 1).unwrap();
    let name = format!("vhost-user thread of {}", path.display());
    let find = || watched_threads().into_iter().find(|own| *own.name == *name);
    let iterations = find().unwrap().iterations;
    let wait_for_idle = |count| {
        while iterations.count() < count || iterations.current().is_some() {
            std::thread::yield_now();
        }
    };
    wait_for_idle(1);
    let count = iterations.count();
    let _front_end = UnixStream::connect(&path).unwrap();
    wait_for_idle(count + 1);
    drop(backend);
    while find().is_some() {
        std::thread::yield_now();
    }
}
