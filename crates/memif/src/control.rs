//! The control thread of all interfaces of the process.
//!
//! Interfaces of one socket share its listener, and the first message of a client names the
//! interface. So one thread has all listeners and connections. The thread sleeps until a message
//! arrives or an attempt is due. The thread never waits for a peer, because messages arrive as a
//! whole. The thread starts with the first interface, and ends with the last.

mod state;

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    eventfd::{EfdFlags, EventFd},
};
use parking_lot::Mutex;
use shunt_shared_memory::LinkState;
use shunt_thread_watch::{IterationWatch, WatchedThread};

use crate::{
    control::state::{MemifState, MemifToken},
    error::MemifError,
    link::MemifLink,
    options::MemifOptions,
    queues::InterfaceQueues,
    socket::MemifAddress,
    worker::MemifWorker,
};

/// The control thread while an interface exists.
static CONTROL: Mutex<Weak<MemifControl>> = Mutex::new(Weak::new());

/// Bytes of the stack of the control thread.
const STACK_BYTES: usize = 256 << 10;

/// An interface to the program at the other side of a memif socket.
///
/// Dropping the value stops the rings and closes the connection.
#[derive(Debug)]
pub struct MemifInterface {
    token: MemifToken,
    link: Arc<LinkState<MemifLink>>,
    control: Arc<MemifControl>,
}

impl MemifInterface {
    /// Starts an interface; returns it with the workers that move frames.
    ///
    /// A client starts also while no server listens.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, or another interface of this process has the same number.
    /// A start also fails if a server cannot listen at the socket, or the system has no more
    /// descriptors or threads.
    pub fn start(
        options: MemifOptions,
        workers: u16,
    ) -> Result<(Self, Vec<MemifWorker>), MemifError> {
        options.check()?;
        let socket = MemifAddress::new(&options.socket);
        let failed = |doing| {
            let socket = socket.to_string();
            move |source| MemifError::System { doing, socket, source }
        };
        socket.to_unix().map_err(|errno| failed("use")(errno.into()))?;
        let queues = InterfaceQueues::new(workers);
        let queues =
            Arc::new(queues.map_err(|errno| failed("start an interface for")(errno.into()))?);
        let control = MemifControl::shared().map_err(failed("start a thread for"))?;
        let ends = (0..queues.workers()).map(|worker| MemifWorker::new(&queues, worker)).collect();
        let reason = "none has connected yet".to_owned();
        let link = Arc::new(LinkState::new(MemifLink::Waiting { reason }));
        let token = control.shared.state.lock().add(options, queues, Arc::clone(&link))?;
        control.shared.wake();
        Ok((Self { token, link, control }, ends))
    }

    /// Returns the state of the link to the peer.
    #[must_use]
    pub fn link(&self) -> MemifLink {
        self.link.get()
    }

    /// Waits at most `timeout` for a state of the link; returns whether it is reached.
    pub fn wait_for_link(
        &self,
        timeout: Duration,
        is_reached: impl FnMut(&MemifLink) -> bool,
    ) -> bool {
        self.link.wait_for(timeout, is_reached)
    }
}

impl Drop for MemifInterface {
    fn drop(&mut self) {
        self.control.shared.state.lock().remove(self.token);
    }
}

/// The control thread; dropping the value stops the thread.
#[derive(Debug)]
struct MemifControl {
    shared: Arc<SharedControl>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the control thread shares with the owners of interfaces.
#[derive(Debug)]
struct SharedControl {
    state: Mutex<MemifState>,
    /// The epoll set with all listeners, connections and interfaces.
    events: Arc<Epoll>,
    /// Set when another thread has changed the state.
    wake: EventFd,
    is_stopped: AtomicBool,
}

impl MemifControl {
    /// Returns the control thread; starts it if there is none.
    fn shared() -> io::Result<Arc<Self>> {
        let mut control = CONTROL.lock();
        if let Some(running) = control.upgrade() {
            return Ok(running);
        }
        let started = Arc::new(Self::start()?);
        *control = Arc::downgrade(&started);
        Ok(started)
    }

    /// Starts the control thread. Fails if the system has no descriptors or threads.
    fn start() -> io::Result<Self> {
        let events = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        events.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, MemifToken::WAKE.number()))?;
        let state = Mutex::new(MemifState::new(Arc::clone(&events)));
        let shared =
            Arc::new(SharedControl { state, events, wake, is_stopped: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("shunt-memif".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || own.run(&WatchedThread::new("memif thread")))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for MemifControl {
    fn drop(&mut self) {
        // The wake event orders the flag.
        self.shared.is_stopped.store(true, Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl SharedControl {
    /// Wakes the control thread of the interfaces.
    fn wake(&self) {
        // Writing fails only if the event is already set.
        let _ = self.wake.write(1);
    }

    /// Runs the loop of the control thread.
    #[expect(clippy::disallowed_methods, reason = "a real peer needs a real clock")]
    fn run(&self, watch: &IterationWatch) {
        watch.begin();
        while !self.is_stopped.load(Relaxed) {
            let due = self.state.lock().attend(Instant::now());
            let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
            for token in watch.wait_between(|| self.wait(timeout)) {
                if token == MemifToken::WAKE {
                    let _ = self.wake.read();
                } else {
                    self.state.lock().handle(token, Instant::now());
                }
            }
        }
        watch.end();
    }

    /// Waits for events; returns their tokens, or none after the timeout.
    fn wait(&self, timeout: Option<Duration>) -> Vec<MemifToken> {
        let timeout = timeout.map_or(EpollTimeout::NONE, |timeout| {
            // The timeout is rounded up, so that the attempt is due after it.
            let timeout = timeout.saturating_add(Duration::from_millis(1));
            EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::MAX)
        });
        let mut events = [EpollEvent::empty(); 16];
        // A signal may interrupt the wait: the result is then empty, and the caller waits again.
        let count = self.events.wait(&mut events, timeout).unwrap_or(0);
        events.iter().take(count).map(|event| MemifToken::from_number(event.data())).collect()
    }
}

#[cfg(test)]
mod tests {
    use shunt_thread_watch::{CurrentIteration, watched_threads};

    use super::*;
    use crate::options::MemifRole;

    /// Returns the present iterations of control threads.
    fn iterations() -> Vec<CurrentIteration> {
        let all = watched_threads().into_iter();
        let own = all.filter(|own| &*own.name == "memif thread");
        own.filter_map(|own| own.iterations.current()).collect()
    }

    /// The thread waits in its iteration for a lock that the test holds.
    #[test]
    fn a_thread_that_hangs_stays_in_its_iteration() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("memif.sock");
        let options = MemifOptions { role: MemifRole::Server, ..MemifOptions::new(&socket) };
        let (interface, _workers) = MemifInterface::start(options, 1).unwrap();
        let held = interface.control.shared.state.lock();
        interface.control.shared.wake();
        while iterations().is_empty() {
            std::thread::yield_now();
        }
        drop(held);
        while !iterations().is_empty() {
            std::thread::yield_now();
        }
    }
}
