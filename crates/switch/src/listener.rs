//! The thread that takes packets for controllers from packet threads.
//!
//! Packet threads put them into bounded rings and wake this thread if it sleeps; it hands them to
//! the asynchronous side of control. Neither end waits for the other: what does not fit is dropped
//! and counted.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use shunt_datapath::{Waker, thread::ControlEnds};
use shunt_pipeline::PacketIn;
use tokio::sync::mpsc;

/// Packets that may wait for controllers' connections, all bridges together.
const PACKET_INS_MAX: usize = 4096;

/// Longest sleep, so that a stop is never missed.
const SLEEP_MAX_MS: u16 = 500;

/// The thread, and what it shares with control.
pub(crate) struct Listener {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    dropped: Arc<AtomicU64>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Starts the thread; packets come out of the receiver.
    pub(crate) fn start(
        waker: Arc<Waker>,
        threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    ) -> io::Result<(Self, mpsc::Receiver<PacketIn>)> {
        let (sender, receiver) = mpsc::channel(PACKET_INS_MAX);
        let (stop, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let taker = Taker { threads, sender, dropped: Arc::clone(&dropped) };
        let (stopped, own_waker) = (Arc::clone(&stop), Arc::clone(&waker));
        let handle = Builder::new().name("shunt-listener".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                own_waker.doze();
                if !taker.take() && !stopped.load(Ordering::Relaxed) {
                    let mut fds = [PollFd::new(own_waker.as_fd(), PollFlags::POLLIN)];
                    // Interrupted or woken, it looks again either way.
                    let _ = poll(&mut fds, PollTimeout::from(SLEEP_MAX_MS));
                }
                own_waker.rise();
            }
        })?;
        Ok((Self { stop, waker, dropped, handle: Mutex::new(Some(handle)) }, receiver))
    }

    /// Packets that found no room on their way to controllers.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(handle) = self.handle.lock().take() {
            // A thread that panicked has ended too.
            let _ = handle.join();
        }
    }
}

struct Taker {
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    sender: mpsc::Sender<PacketIn>,
    dropped: Arc<AtomicU64>,
}

impl Taker {
    /// Takes what there is; answers whether there was anything.
    fn take(&self) -> bool {
        let mut worked = false;
        for ends in self.threads.lock().iter_mut().flatten() {
            // Bounded by what is there now: commands go through the same lock, and a flood of
            // packets must not keep them out.
            for _ in 0..ends.packet_ins.slots() {
                let Ok(packet) = ends.packet_ins.pop() else { break };
                worked = true;
                if self.sender.try_send(packet).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        worked
    }
}
