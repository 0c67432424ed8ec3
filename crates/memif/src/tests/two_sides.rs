//! A server and a client that exchange frames.

use std::{
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::{LONGEST, TestFrames, await_links, await_reason, options, socket, start, wait_until};
use crate::{
    MemifInterface, MemifLink, MemifOptions, MemifRole, MemifSecret, MemifWorker, SendEnd,
};

/// Sends frames from one worker to another, and checks that they arrive in order.
fn exchange(sender: &mut MemifWorker, receiver: &mut MemifWorker) {
    let frames: Vec<Vec<u8>> =
        (1..200_u8).map(|number| vec![number; 60 * usize::from(number)]).collect();
    let mut received = TestFrames::default();
    let mut sent = 0;
    let is_complete = wait_until(|| {
        let next = frames[sent..].iter().map(Vec::as_slice).take(8);
        let result = sender.sender.send(next);
        sent += result.frames;
        receiver.receiver.receive(32, &mut received);
        received.frames.len() >= frames.len()
    });
    assert!(is_complete, "{sent} sent, {} received", received.frames.len());
    assert!(received.frames == frames, "the frames arrive unchanged and in order");
}

#[test]
fn frames_pass_both_ways() {
    for buffer_bytes in [64, 2048] {
        let (_folder, path) = socket();
        let (server, mut at_server) = start(options(&path, MemifRole::Server));
        let client =
            MemifOptions { buffer_bytes, ring_log2: 9, ..options(&path, MemifRole::Client) };
        let (client, mut at_client) = start(client);
        await_links(&[&server, &client]);
        exchange(&mut at_client, &mut at_server);
        exchange(&mut at_server, &mut at_client);
    }
}

#[test]
fn client_that_starts_first_waits_for_server() {
    let (_folder, path) = socket();
    let (client, mut at_client) = start(options(&path, MemifRole::Client));
    await_reason(&client, "No such file or directory");
    assert_eq!(at_client.sender.send([&[1; 60][..]]).end, SendEnd::Full);
    for _ in 0..3 {
        let (server, mut at_server) = start(options(&path, MemifRole::Server));
        await_links(&[&server, &client]);
        exchange(&mut at_client, &mut at_server);
        drop(server);
        // The reason may soon be that of the next attempt, so it is not checked.
        assert!(client.wait_for_link(LONGEST, |link| !link.is_up()), "{}", client.link());
        assert!(!path.exists(), "a server removes its socket");
    }
}

#[test]
fn a_server_takes_one_client_after_the_other() {
    let (_folder, path) = socket();
    let (server, mut at_server) = start(options(&path, MemifRole::Server));
    for _ in 0..3 {
        let (client, mut at_client) = start(options(&path, MemifRole::Client));
        await_links(&[&server, &client]);
        exchange(&mut at_server, &mut at_client);
        drop(client);
        await_reason(&server, "the port was closed");
    }
}

#[test]
fn interfaces_share_a_socket_by_their_numbers() {
    let (_folder, path) = socket();
    let both = [0, 7].map(|id| {
        let server = MemifOptions { id, ..options(&path, MemifRole::Server) };
        let client = MemifOptions { role: MemifRole::Client, ..server.clone() };
        (start(server), start(client))
    });
    for ((server, mut at_server), (client, mut at_client)) in both {
        await_links(&[&server, &client]);
        exchange(&mut at_client, &mut at_server);
    }
    let twice = MemifOptions { id: 3, ..options(&path, MemifRole::Server) };
    let _first = start(twice.clone());
    let error = MemifInterface::start(twice, 1).unwrap_err().to_string();
    assert!(error.contains("id 3 at ") && error.contains("the server of another port"), "{error}");
    let other = MemifOptions { id: 9, ..options(&path, MemifRole::Client) };
    let (lost, _) = start(other);
    await_reason(&lost, "no server at this socket has the memif id 9");
}

#[test]
fn a_secret_must_be_the_same() {
    let (_folder, path) = socket();
    let secret = |text: &str| MemifSecret::new(text.to_owned());
    let server = MemifOptions { secret: secret("abc"), ..options(&path, MemifRole::Server) };
    assert!(!format!("{server:?}").contains("abc"), "the text of options has no secret");
    let (_server, _) = start(server);
    for wrong in ["", "abd", "abcd"] {
        let wrong = MemifOptions { secret: secret(wrong), ..options(&path, MemifRole::Client) };
        let (client, _) = start(wrong);
        await_reason(
            &client,
            "the secret of the client is wrong: give both ports the same \
             `secret`",
        );
    }
    let right = MemifOptions { secret: secret("abc"), ..options(&path, MemifRole::Client) };
    let (client, _) = start(right);
    await_links(&[&client]);
}

#[test]
fn abstract_sockets_need_no_file() {
    let name = format!("@shunt-memif-{}", std::process::id());
    let path = std::path::Path::new(&name);
    let (server, mut at_server) = start(options(path, MemifRole::Server));
    let (client, mut at_client) = start(options(path, MemifRole::Client));
    await_links(&[&server, &client]);
    exchange(&mut at_client, &mut at_server);
}

#[test]
fn the_group_of_the_daemon_may_connect() {
    let (_folder, path) = socket();
    let _server = start(options(&path, MemifRole::Server));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn a_socket_of_another_program_is_refused() {
    let (_folder, path) = socket();
    std::fs::write(&path, "content").unwrap();
    let error = MemifInterface::start(options(&path, MemifRole::Server), 1).unwrap_err();
    assert!(error.to_string().starts_with("cannot listen at "), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content", "the file stays");
    let error = MemifInterface::start(options("/x".repeat(90).as_ref(), MemifRole::Client), 1);
    assert!(error.unwrap_err().to_string().starts_with("cannot use /x"), "the path is too long");
}

/// Rings and workers may have different numbers,
/// so workers share rings or have several.
#[test]
fn rings_are_spread_over_workers() {
    for (queues, workers) in [(3, 2), (1, 3)] {
        let (_folder, path) = socket();
        let server = options(&path, MemifRole::Server);
        let (server, mut at_server) = MemifInterface::start(server, workers).unwrap();
        let client = MemifOptions { queues, ..options(&path, MemifRole::Client) };
        let (client, mut at_client) = MemifInterface::start(client, workers).unwrap();
        await_links(&[&server, &client]);
        for worker in &mut at_client {
            assert_eq!(worker.sender.send([&[1; 60][..]]).frames, 1);
        }
        let mut received = TestFrames::default();
        let all = usize::from(workers);
        let has_all = || {
            at_server.iter_mut().for_each(|worker| {
                worker.receiver.receive(32, &mut received);
            });
            received.frames.len() == all
        };
        assert!(wait_until(has_all), "{queues} queues, {workers} workers");
    }
}

/// Number of frames that are sent to a sleeping worker.
const FRAMES: usize = 2000;

/// A worker sleeps while no frame arrives, and each frame wakes it.
#[test]
fn a_sleeping_worker_is_woken_by_each_frame() {
    let (_folder, path) = socket();
    let (server, mut at_server) = start(options(&path, MemifRole::Server));
    let (client, mut at_client) = start(options(&path, MemifRole::Client));
    await_links(&[&server, &client]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
            events.add(at_server.receiver.wait_fd(), event).unwrap();
            let mut received = TestFrames::default();
            while received.frames.len() < FRAMES {
                let polled = at_server.receiver.receive(32, &mut received);
                if polled.may_have_more {
                    continue;
                }
                let timeout = EpollTimeout::from(20_000_u16);
                let count = events.wait(&mut [EpollEvent::empty()], timeout).unwrap();
                assert_eq!(count, 1, "a frame wakes the worker");
            }
            is_over.store(true, Relaxed);
            received.frames
        });
        for number in 0..FRAMES {
            let frame = [&number.to_ne_bytes()[..], &[0; 60]].concat();
            while at_client.sender.send([&frame[..]]).frames == 0 && !is_over.load(Relaxed) {
                std::thread::yield_now();
            }
            if number % 64 == 0 {
                // The pause lets the receiver fall asleep.
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        }
        let frames = received.join().unwrap();
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame[..8], number.to_ne_bytes(), "frames are in order");
        }
    });
}

/// Number of frames that each client receives and sends before it ends.
const LOAD: usize = 100;

/// Interfaces start and end under load, without disturbing the other side.
#[test]
fn either_process_may_die_under_load() {
    let (_folder, path) = socket();
    let (server, mut at_server) = start(options(&path, MemifRole::Server));
    let is_over = AtomicBool::new(false);
    let at_server_received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let mut received = TestFrames::default();
                at_server.receiver.receive(32, &mut received);
                assert!(received.frames.iter().all(|frame| *frame == [2; 60]));
                at_server_received.fetch_add(received.frames.len(), Relaxed);
                at_server.sender.send([&[1; 60][..]; 4]);
            }
        });
        let are_served = (0..20).all(|_| {
            let (client, mut at_client) = start(options(&path, MemifRole::Client));
            let is_up = client.wait_for_link(LONGEST, MemifLink::is_up);
            let before = at_server_received.load(Relaxed);
            let mut received = TestFrames::default();
            let is_served = wait_until(|| {
                at_client.sender.send([&[2; 60][..]; 4]);
                at_client.receiver.receive(32, &mut received);
                let at_server_now = at_server_received.load(Relaxed) - before;
                received.frames.len() >= LOAD && at_server_now >= LOAD
            });
            is_up && is_served && received.frames.iter().all(|frame| *frame == [1; 60])
        });
        // The flag ends the other thread even if a client was not served.
        is_over.store(true, Relaxed);
        assert!(are_served, "each client gets frames, and gets them through");
    });
    await_reason(&server, "the port was closed");
}
