//! The control thread of a device, which connects, handles requests of the front-end, and
//! reconnects.
//!
//! Each device has a thread of its own, which sleeps until a message arrives. A system call about a file of
//! the front-end may take long, and delays no other device. Nobody waits for the thread: dropping a
//! [`Backend`] closes the queues and removes the socket file by itself.

use std::{
    io,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread::Builder,
    time::{Duration, Instant},
};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    eventfd::{EfdFlags, EventFd},
    socket::{SockType, UnixAddr},
};
use shunt_shared_memory::{
    LinkState, ListenError, ListeningSocket, OwnSocketFile, PeerLog, connect_at_once, listen_at,
};
use shunt_thread_watch::WatchedThread;
use tracing::{info, warn};

use crate::{
    device::VhostDevice,
    error::{BackendError, ProtocolError},
    link::GuestLink,
    message::VhostReply,
    message_socket::{MessageSocket, ReceivedMessage},
    queues::DeviceQueues,
    worker::Worker,
};

/// The side that listens on the socket: the hypervisor or the back-end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum SocketMode {
    /// The hypervisor listens, and the back-end connects.
    ///
    /// The back-end retries until it succeeds.
    #[default]
    Client,
    /// The back-end listens, and the hypervisor connects.
    Server,
}

/// The back-end of a network device.
///
/// Dropping the value stops the queues, and never waits for the front-end. The control thread then closes
/// the connection.
#[derive(Debug)]
pub struct Backend {
    link: Arc<LinkState<GuestLink>>,
    queues: Arc<DeviceQueues>,
    stop: Arc<EventFd>,
    /// The socket file of a server.
    _file: Option<OwnSocketFile>,
}

impl Backend {
    /// Starts the back-end of a device; returns it with the workers that move frames.
    ///
    /// A back-end in client mode starts also while no hypervisor listens.
    ///
    /// # Errors
    ///
    /// If the path is not valid for a socket, if a back-end in server mode cannot listen at the
    /// path, or if the system has no more descriptors or threads.
    pub fn start(
        path: &Path,
        mode: SocketMode,
        workers: u16,
    ) -> Result<(Self, Vec<Worker>), BackendError> {
        let failed =
            |doing| move |source| BackendError::System { doing, path: path.to_owned(), source };
        let address = UnixAddr::new(path).map_err(|errno| failed("use")(errno.into()))?;
        let (source, file) = match mode {
            SocketMode::Client => (ConnectionSource::Client(address), None),
            SocketMode::Server => {
                let listened = listen_at(&address, SockType::Stream);
                let ListeningSocket { listener, file } = listened.map_err(|error| match error {
                    ListenError::InUse => BackendError::InUse { path: path.to_owned() },
                    ListenError::System(source) => failed("listen at")(source),
                })?;
                (ConnectionSource::Server(listener), file)
            }
        };
        let start = |errno: nix::Error| failed("start a device for")(errno.into());
        let queues = Arc::new(DeviceQueues::new(workers).map_err(start)?);
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(start)?);
        let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(start)?;
        events.add(&*stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP)).map_err(start)?;
        let reason = "none has connected yet".to_owned();
        let link = Arc::new(LinkState::new(GuestLink::Waiting { reason }));
        let ends = (0..queues.workers()).map(|worker| Worker::new(&queues, worker)).collect();
        let control = ControlThread {
            path: path.to_owned(),
            source,
            queues: Arc::clone(&queues),
            link: Arc::clone(&link),
            events,
            log: PeerLog::default(),
            next_pause: RETRY_FIRST,
            watch: WatchedThread::new(&format!("vhost-user thread of {}", path.display())),
        };
        let thread = Builder::new().name("shunt-vhost".to_owned()).stack_size(STACK_BYTES);
        let own_stop = Arc::clone(&stop);
        let run = move || {
            control.run();
            // The event would leave the epoll set if it were closed before.
            drop(own_stop);
        };
        thread.spawn(run).map_err(failed("start a thread for"))?;
        Ok((Self { link, queues, stop, _file: file }, ends))
    }

    /// Returns the state of the link to the guest.
    #[must_use]
    pub fn link(&self) -> GuestLink {
        self.link.get()
    }

    /// Waits for a state of the link; returns whether it is reached.
    ///
    /// The wait ends after `timeout`.
    pub fn wait_for_link(
        &self,
        timeout: Duration,
        is_reached: impl FnMut(&GuestLink) -> bool,
    ) -> bool {
        self.link.wait_for(timeout, is_reached)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.queues.close();
        // The counter of the event cannot be full, because only this line writes it.
        let _ = self.stop.write(1);
    }
}

/// Bytes of the stack of a control thread.
const STACK_BYTES: usize = 256 << 10;

/// Number of the event that stops the thread.
const STOP: u64 = 0;
/// Number of the events of the connection.
const CONNECTION: u64 = 1;
/// Number of the event of a failed queue.
const FAILURE: u64 = 2;
/// Number of the events of the listening socket.
const LISTENER: u64 = 3;

/// First pause between two attempts to connect.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Longest pause between two attempts to connect.
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// The source of connections, by socket mode.
#[derive(Debug)]
enum ConnectionSource {
    Client(UnixAddr),
    Server(UnixListener),
}

/// The control thread of a device: its socket, queues and events.
struct ControlThread {
    path: PathBuf,
    source: ConnectionSource,
    queues: Arc<DeviceQueues>,
    link: Arc<LinkState<GuestLink>>,
    /// The epoll set: the stop event, and the descriptors that are watched at present.
    events: Epoll,
    /// Limits the log lines about hypervisors and guests.
    log: PeerLog,
    /// The pause after the next attempt that fails.
    next_pause: Duration,
    /// The iterations of the thread, each from one wait to the next.
    watch: WatchedThread,
}

/// The reason for the end of the control thread: the back-end was dropped.
struct Stopped;

impl ControlThread {
    /// Runs the loop of the control thread.
    #[expect(clippy::disallowed_methods, reason = "a real peer needs a real clock")]
    fn run(mut self) {
        self.watch.begin();
        while let Ok(stream) = self.next_connection() {
            let start = Instant::now();
            let Err(error) = self.serve(stream) else { break };
            // The failure event may not be in the epoll set, which is no error.
            let _ = self.events.delete(self.queues.failed());
            self.wait_because(&error.to_string());
            if start.elapsed() > RETRY_LONGEST {
                self.next_pause = RETRY_FIRST;
            }
            if self.pause().is_err() {
                break;
            }
        }
    }

    /// Sets the link to waiting for `reason`, and logs the reason if it is new.
    #[expect(clippy::disallowed_methods, reason = "a real peer needs a real clock")]
    fn wait_because(&mut self, reason: &str) {
        if let Some(note) = self.log.note_new(reason, Instant::now()) {
            info!(reason, "vhost-user {}: no hypervisor is connected{note}", self.path.display());
        }
        self.link.set(GuestLink::Waiting { reason: reason.to_owned() });
    }

    /// Waits for the connection of a front-end.
    fn next_connection(&mut self) -> Result<UnixStream, Stopped> {
        loop {
            let attempt = match &self.source {
                ConnectionSource::Client(address) => {
                    connect_at_once(address, SockType::Stream).map(UnixStream::from)
                }
                ConnectionSource::Server(listener) => listener.accept().map(|(stream, _)| stream),
            };
            match (attempt, &self.source) {
                (Ok(stream), _) => return Ok(stream),
                (Err(error), ConnectionSource::Server(listener))
                    if error.kind() == io::ErrorKind::WouldBlock =>
                {
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
                    // The listener may be in the epoll set already, which is no error.
                    let _ = self.events.add(listener, event);
                    if self.wait(None).contains(&STOP) {
                        return Err(Stopped);
                    }
                }
                (Err(error), _) => {
                    self.wait_because(&error.to_string());
                    self.pause()?;
                }
            }
        }
    }

    /// Pauses between two attempts to connect; each pause doubles up to a maximum.
    fn pause(&mut self) -> Result<(), Stopped> {
        if let ConnectionSource::Server(listener) = &self.source {
            // A waiting front-end must not end the pause. The listener may not be in the epoll set.
            let _ = self.events.delete(listener);
        }
        let pause = self.next_pause;
        self.next_pause = (pause * 2).min(RETRY_LONGEST);
        if self.wait(Some(pause)).contains(&STOP) { Err(Stopped) } else { Ok(()) }
    }

    /// Handles the requests of a front-end until it disconnects.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended.
    #[expect(clippy::disallowed_methods, reason = "a real peer needs a real clock")]
    fn serve(&mut self, stream: UnixStream) -> Result<Stopped, ProtocolError> {
        if let ConnectionSource::Server(listener) = &self.source {
            // Other front-ends wait until this front-end disconnects. The listener may not be in
            // the epoll set.
            let _ = self.events.delete(listener);
        }
        let mut socket = MessageSocket::new(stream)?;
        let mut device = VhostDevice::new(Arc::clone(&self.queues));
        drop(self.queues.take_failures());
        let event = |number| EpollEvent::new(EpollFlags::EPOLLIN, number);
        self.events.add(socket.descriptor(), event(CONNECTION)).map_err(io::Error::from)?;
        self.events.add(self.queues.failed(), event(FAILURE)).map_err(io::Error::from)?;
        // The connection is logged after the first valid request, so a peer with another protocol
        // is not logged.
        let mut is_logged = false;
        loop {
            self.show(&device);
            let rest = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
            if self.wait(socket.deadline().map(rest)).contains(&STOP) {
                return Ok(Stopped);
            }
            // The rest of a message may be due, whatever the event is.
            if let Some(message) = socket.receive(Instant::now())? {
                obey(&mut device, &mut socket, message)?;
                if !std::mem::replace(&mut is_logged, true)
                    && let Some(note) = self.log.note(Instant::now())
                {
                    info!("vhost-user {}: connected{note}", self.path.display());
                }
            }
            for failure in self.queues.take_failures() {
                if device.fail(failure) {
                    let link = GuestLink::Stopped { queue: failure.queue, error: failure.error };
                    if let Some(note) = self.log.note(Instant::now()) {
                        warn!("vhost-user {}: {link}{note}", self.path.display());
                    }
                }
            }
        }
    }

    /// Sets the link state to the state of the device.
    fn show(&self, device: &VhostDevice) {
        let link = match device.failure() {
            Some(failure) => GuestLink::Stopped { queue: failure.queue, error: failure.error },
            None if self.queues.pairs_from_guest() > 0 && self.queues.pairs_to_guest() > 0 => {
                GuestLink::Up
            }
            None => GuestLink::Connected,
        };
        self.link.set(link);
    }

    /// Waits for events; returns their event numbers, or none after the timeout.
    fn wait(&self, timeout: Option<Duration>) -> Vec<u64> {
        let timeout = timeout.map_or(EpollTimeout::NONE, |timeout| {
            // A timeout is rounded up, so that what it waits for is due then.
            let timeout = timeout.saturating_add(Duration::from_millis(1));
            EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::MAX)
        });
        let mut events = [EpollEvent::empty(); 4];
        // A signal may interrupt the wait: the result is then empty, and the caller waits again.
        let wait = || self.events.wait(&mut events, timeout);
        let count = self.watch.wait_between(wait).unwrap_or(0);
        events.iter().take(count).map(EpollEvent::data).collect()
    }
}

/// Handles a request of the front-end, and replies.
fn obey(
    device: &mut VhostDevice,
    socket: &mut MessageSocket,
    message: ReceivedMessage,
) -> Result<(), ProtocolError> {
    let ReceivedMessage { number, needs_reply, request, descriptors } = message;
    let result = request.and_then(|request| device.handle(request, descriptors));
    match result {
        Ok(Some(reply)) => socket.reply(number, reply),
        Ok(None) if needs_reply => socket.reply(number, VhostReply::Number(0)),
        Ok(None) => Ok(()),
        Err(error) => {
            if needs_reply {
                socket.reply(number, VhostReply::Number(1))?;
            }
            // The reply has notified the front-end that the request is not supported or the value
            // is not valid, so the connection stays.
            let is_refused = matches!(error, ProtocolError::Unsupported(_) | ProtocolError::Mtu(_));
            let is_known = needs_reply && is_refused;
            if is_known { Ok(()) } else { Err(error) }
        }
    }
}
