//! The listeners, connections and interfaces of the control thread.

use std::{
    collections::BTreeMap,
    os::{fd::AsFd, unix::net::UnixListener},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use shunt_shared_memory::{LinkState, ListeningSocket, OwnSocketFile, PeerLog};
use tracing::info;

use crate::{
    error::{MemifError, MemifProtocolError},
    link::MemifLink,
    message::MemifMessage,
    options::{MemifOptions, MemifRole},
    queues::InterfaceQueues,
    session::{
        MemifClientSession, MemifServerSession, SessionStep, check_init, descriptor, disconnect,
        hello,
    },
    socket::{MemifAddress, MemifSocket},
};

/// The number of a listener, a connection or an interface in the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemifToken(u64);

impl MemifToken {
    /// The wake event of the control thread.
    pub(super) const WAKE: Self = Self(0);

    /// Returns the token as the number that an epoll event carries.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// Returns the token of the number that an epoll event carries.
    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// First pause between two attempts to connect; each failure doubles the pause.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two attempts to connect.
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// Maximum time until the connection of a client to this side is complete.
const CLIENT_LONGEST: Duration = Duration::from_secs(2);

/// Maximum time until a connection to a server is complete.
///
/// A server may listen before it answers. A program with the driver of DPDK panics if a connection that it
/// has not answered is closed, as seen with 22.11.
const SERVER_LONGEST: Duration = Duration::from_secs(10);

/// Maximum number of clients of a listener that have not chosen an interface yet.
const CHOOSING_MAX: usize = 64;

/// The listeners, connections and interfaces of the control thread.
#[derive(Debug)]
pub(super) struct MemifState {
    events: Arc<Epoll>,
    last_token: u64,
    listeners: BTreeMap<MemifToken, SocketListener>,
    connections: BTreeMap<MemifToken, MemifConnection>,
    interfaces: BTreeMap<MemifToken, InterfaceState>,
}

/// A listening socket, which several interfaces may share.
#[derive(Debug)]
struct SocketListener {
    address: MemifAddress,
    listener: UnixListener,
    /// The end of a pause in which the listener accepts no client.
    pause_end: Option<Instant>,
    /// Limits the log lines about refused clients.
    log: PeerLog,
    /// The file of the socket, unless the socket is abstract.
    _file: Option<OwnSocketFile>,
}

/// A connection with a peer.
#[derive(Debug)]
struct MemifConnection {
    socket: MemifSocket,
    peer: PeerSession,
    /// The time at which the connection is closed unless it is complete.
    deadline: Option<Instant>,
}

/// The role of this side of a connection, and the progress of its session.
#[derive(Debug)]
enum PeerSession {
    /// The client has not chosen an interface of the listener yet.
    Choosing { listener: MemifToken },
    /// The port of this switch is the memif server.
    Server { interface: MemifToken, session: MemifServerSession },
    /// The port of this switch is the memif client.
    Client { interface: MemifToken, session: Box<MemifClientSession> },
}

impl PeerSession {
    /// Returns the maximum time until the connection is complete.
    const fn longest(&self) -> Duration {
        match self {
            Self::Choosing { .. } | Self::Server { .. } => CLIENT_LONGEST,
            Self::Client { .. } => SERVER_LONGEST,
        }
    }
}

/// An interface, and the state of its connection.
#[derive(Debug)]
struct InterfaceState {
    address: MemifAddress,
    options: MemifOptions,
    queues: Arc<InterfaceQueues>,
    link: Arc<LinkState<MemifLink>>,
    connection: Option<MemifToken>,
    /// The time of the client's next attempt to connect.
    next_attempt: Option<Instant>,
    /// The pause after the next failed attempt.
    next_pause: Duration,
    /// Limits the log lines about peers of the interface.
    log: PeerLog,
}

impl InterfaceState {
    /// Sets the link to waiting for `reason`, and logs the reason if it is new.
    fn wait_because(&mut self, reason: &str, now: Instant) {
        if let Some(note) = self.log.note_new(reason, now) {
            let (socket, id) = (&self.address, self.options.id);
            info!(reason, "memif {socket} id {id}: no peer is connected{note}");
        }
        self.link.set(MemifLink::Waiting { reason: reason.to_owned() });
    }

    /// Plans the client's next attempt to connect.
    fn plan(&mut self, now: Instant) {
        if self.options.role == MemifRole::Client {
            self.next_attempt = Some(now + self.next_pause);
            self.next_pause = (self.next_pause * 2).min(RETRY_LONGEST);
        }
    }
}

/// Adds a descriptor to the epoll set of the control thread.
fn watch(events: &Epoll, descriptor: impl AsFd, token: MemifToken) -> nix::Result<()> {
    events.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, token.number()))
}

impl MemifState {
    /// Returns a state without listeners, connections and interfaces.
    pub(super) const fn new(events: Arc<Epoll>) -> Self {
        Self {
            events,
            last_token: MemifToken::WAKE.0,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            interfaces: BTreeMap::new(),
        }
    }

    /// Returns a token that no socket has yet.
    fn next_token(&mut self) -> MemifToken {
        self.last_token += 1;
        MemifToken(self.last_token)
    }

    /// Adds an interface; the first server at a socket also adds the listener.
    ///
    /// # Errors
    ///
    /// If the number of the interface or the socket is in use.
    pub(super) fn add(
        &mut self,
        options: MemifOptions,
        queues: Arc<InterfaceQueues>,
        link: Arc<LinkState<MemifLink>>,
    ) -> Result<MemifToken, MemifError> {
        let address = MemifAddress::new(&options.socket);
        let (id, role) = (options.id, options.role);
        let is_same = |other: &InterfaceState| {
            other.address == address && (other.options.id, other.options.role) == (id, role)
        };
        if self.interfaces.values().any(is_same) {
            let (socket, role) = (address.to_string(), role.name());
            return Err(MemifError::IdInUse { socket, id, role });
        }
        let failed = |errno: nix::Error| MemifError::System {
            doing: "wait for events of",
            socket: address.to_string(),
            source: errno.into(),
        };
        let is_listening = self.listeners.values().any(|own| own.address == address);
        if role == MemifRole::Server && !is_listening {
            let ListeningSocket { listener, file } = address.listen()?;
            let token = self.next_token();
            watch(&self.events, &listener, token).map_err(failed)?;
            let listener = SocketListener {
                address: address.clone(),
                listener,
                pause_end: None,
                log: PeerLog::default(),
                _file: file,
            };
            self.listeners.insert(token, listener);
        }
        let token = self.next_token();
        if let Err(errno) = watch(&self.events, queues.failed(), token) {
            self.remove_unused_listener(&address);
            return Err(failed(errno));
        }
        let interface = InterfaceState {
            address,
            options,
            queues,
            link,
            connection: None,
            next_attempt: None,
            next_pause: RETRY_FIRST,
            log: PeerLog::default(),
        };
        self.interfaces.insert(token, interface);
        Ok(token)
    }

    /// Removes an interface with its connection.
    pub(super) fn remove(&mut self, token: MemifToken) {
        let Some(interface) = self.interfaces.remove(&token) else { return };
        if let Some(connection) = interface.connection.and_then(|own| self.connections.remove(&own))
        {
            // Sending fails if the peer has closed the connection.
            let _ = connection.socket.send(&disconnect("the port was closed"), None);
        }
        interface.queues.stop();
        let _ = self.events.delete(interface.queues.failed());
        self.remove_unused_listener(&interface.address);
    }

    /// Closes a listener that no interface uses any more.
    fn remove_unused_listener(&mut self, address: &MemifAddress) {
        let is_server =
            |own: &InterfaceState| own.address == *address && own.options.role == MemifRole::Server;
        if self.interfaces.values().any(is_server) {
            return;
        }
        let found = self.listeners.iter().find(|(_, own)| own.address == *address);
        let Some(token) = found.map(|(token, _)| *token) else { return };
        self.listeners.remove(&token);
        self.connections.retain(|_, connection| match connection.peer {
            PeerSession::Choosing { listener } => listener != token,
            PeerSession::Server { .. } | PeerSession::Client { .. } => true,
        });
    }

    /// Makes the connection attempts that are due,
    /// and closes connections that are not complete in time.
    ///
    /// Returns the time of the next attempt or closing.
    pub(super) fn attend(&mut self, now: Instant) -> Option<Instant> {
        let is_new = |own: &InterfaceState| {
            own.options.role == MemifRole::Client
                && own.connection.is_none()
                && own.next_attempt.is_none_or(|at| at <= now)
        };
        let due = self.interfaces.iter().filter(|(_, own)| is_new(own)).map(|(token, _)| *token);
        for token in due.collect::<Vec<_>>() {
            self.connect(token, now);
        }
        let is_late = |own: &MemifConnection| own.deadline.is_some_and(|deadline| deadline <= now);
        let late = self.connections.iter().filter(|(_, own)| is_late(own)).map(|(token, _)| *token);
        for token in late.collect::<Vec<_>>() {
            let longest = self.connections.get(&token).map(|own| own.peer.longest());
            let seconds = longest.unwrap_or_default().as_secs();
            self.end(token, &MemifProtocolError::Slow(seconds), now);
        }
        let events = Arc::clone(&self.events);
        for (token, own) in &mut self.listeners {
            if own.pause_end.take_if(|end| *end <= now).is_some() {
                // If the listener cannot be added to the epoll set, another pause follows.
                let is_watched = watch(&events, &own.listener, *token).is_ok();
                own.pause_end = (!is_watched).then(|| now + RETRY_LONGEST);
            }
        }
        let attempts = self.interfaces.values().filter(|own| own.connection.is_none());
        let attempts = attempts.filter_map(|own| own.next_attempt);
        let deadlines = self.connections.values().filter_map(|own| own.deadline);
        let pauses = self.listeners.values().filter_map(|own| own.pause_end);
        attempts.chain(deadlines).chain(pauses).min()
    }

    /// Tries to connect as a client.
    fn connect(&mut self, token: MemifToken, now: Instant) {
        let Some(interface) = self.interfaces.get_mut(&token) else { return };
        interface.plan(now);
        match interface.address.connect() {
            Ok(socket) => {
                let session = Box::new(MemifClientSession::new(interface.options.clone()));
                let peer = PeerSession::Client { interface: token, session };
                match self.add_connection(socket, peer, now) {
                    Ok(connection) => {
                        if let Some(interface) = self.interfaces.get_mut(&token) {
                            interface.connection = Some(connection);
                        }
                    }
                    Err(error) => self.interface_waits(token, &error.to_string(), now),
                }
            }
            Err(error) => interface.wait_because(&error.to_string(), now),
        }
    }

    /// Records why an interface waits for a peer.
    fn interface_waits(&mut self, token: MemifToken, reason: &str, now: Instant) {
        if let Some(interface) = self.interfaces.get_mut(&token) {
            interface.wait_because(reason, now);
        }
    }

    /// Adds a connection, and watches its socket.
    fn add_connection(
        &mut self,
        socket: MemifSocket,
        peer: PeerSession,
        now: Instant,
    ) -> nix::Result<MemifToken> {
        let token = self.next_token();
        watch(&self.events, &socket, token)?;
        let deadline = Some(now + peer.longest());
        self.connections.insert(token, MemifConnection { socket, peer, deadline });
        Ok(token)
    }

    /// Handles an event of a listener, a connection or an interface.
    pub(super) fn handle(&mut self, token: MemifToken, now: Instant) {
        if self.listeners.contains_key(&token) {
            self.accept(token, now);
        } else if self.connections.contains_key(&token) {
            if let Err(error) = self.receive(token, now) {
                self.end(token, &error, now);
            }
        } else if let Some(interface) = self.interfaces.get(&token) {
            let failure = interface.queues.take_failure();
            if let (Some(error), Some(connection)) = (failure, interface.connection) {
                self.end(connection, &error.into(), now);
            }
        }
    }

    /// Accepts a client, and sends it the limits of the server.
    fn accept(&mut self, token: MemifToken, now: Instant) {
        let Some(own) = self.listeners.get_mut(&token) else { return };
        let accepted = MemifSocket::accept(&own.listener);
        if accepted.is_err() {
            // A cause is, for example, that the process has too many open files. The client stays
            // in the queue.
            let _ = self.events.delete(&own.listener);
            own.pause_end = Some(now + RETRY_LONGEST);
        }
        if let Ok(Some(socket)) = accepted
            && socket.send(&hello(), None).is_ok()
        {
            self.limit_choosing(token, now);
            let _ = self.add_connection(socket, PeerSession::Choosing { listener: token }, now);
        }
    }

    /// Closes a client of a listener if too many have not chosen an interface.
    ///
    /// The client that has waited for the longest time without choosing is closed. So a client that
    /// chooses immediately is served, however many others are silent.
    fn limit_choosing(&mut self, token: MemifToken, now: Instant) {
        let choosing = self.connections.iter().filter(
            |(_, own)| matches!(own.peer, PeerSession::Choosing { listener } if listener == token),
        );
        // Tokens increase with time, so the lowest token is the oldest connection.
        let mut choosing = choosing.map(|(connection, _)| *connection);
        let oldest = choosing.next();
        if let Some(oldest) = oldest.filter(|_| choosing.count() + 1 >= CHOOSING_MAX) {
            self.end(oldest, &MemifProtocolError::Crowded(CHOOSING_MAX), now);
        }
    }

    /// Receives a message of a connection, and handles it.
    fn receive(&mut self, token: MemifToken, now: Instant) -> Result<(), MemifProtocolError> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Some((message, passed)) = connection.socket.receive()? else { return Ok(()) };
        let (interface, step) = match &mut connection.peer {
            PeerSession::Choosing { listener } => {
                let listener = *listener;
                return self.choose(token, listener, &message);
            }
            PeerSession::Server { interface, session } => {
                (*interface, session.handle(message, passed)?)
            }
            PeerSession::Client { interface, session } => (*interface, session.handle(message)?),
        };
        match step {
            SessionStep::Send(message, file) => {
                connection.socket.send(&message, descriptor(file.as_ref()))?;
            }
            SessionStep::Connected(rings, answer) => {
                let Some(interface) = self.interfaces.get_mut(&interface) else { return Ok(()) };
                interface.queues.start(rings.receive, rings.transmit);
                if let Some(answer) = answer {
                    connection.socket.send(&answer, None)?;
                }
                connection.deadline = None;
                interface.link.set(MemifLink::Up);
                interface.next_pause = RETRY_FIRST;
                let (socket, id, peer) = (&interface.address, interface.options.id, rings.peer);
                if let Some(note) = interface.log.note(now) {
                    info!(peer, "memif {socket} id {id}: connected{note}");
                }
            }
        }
        Ok(())
    }

    /// Connects a client with the interface that it has chosen.
    fn choose(
        &mut self,
        token: MemifToken,
        listener: MemifToken,
        message: &MemifMessage,
    ) -> Result<(), MemifProtocolError> {
        let MemifMessage::Init(init) = message else {
            return Err(MemifProtocolError::Unexpected(message.name()));
        };
        let no_interface = MemifProtocolError::NoSuchInterface(init.id);
        let Some(address) = self.listeners.get(&listener).map(|own| own.address.clone()) else {
            return Err(no_interface);
        };
        let mut interfaces = self.interfaces.iter_mut();
        let found = interfaces.find(|(_, own)| {
            let is_server = own.options.role == MemifRole::Server;
            is_server && own.address == address && own.options.id == init.id
        });
        let (interface_token, interface) = found.ok_or(no_interface)?;
        check_init(init, &interface.options)?;
        if interface.connection.is_some() {
            return Err(MemifProtocolError::AlreadyConnected(init.id));
        }
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        connection.socket.send(&MemifMessage::Ack, None)?;
        let session = MemifServerSession::new(&interface.options);
        connection.peer = PeerSession::Server { interface: *interface_token, session };
        interface.connection = Some(token);
        Ok(())
    }

    /// Ends a connection; a last message tells the peer the reason.
    fn end(&mut self, token: MemifToken, error: &MemifProtocolError, now: Instant) {
        let Some(connection) = self.connections.remove(&token) else { return };
        let reason = error.to_string();
        // Sending fails if the peer has closed the connection.
        let _ = connection.socket.send(&disconnect(&reason), None);
        let interface = match connection.peer {
            PeerSession::Choosing { listener } => {
                if let Some(own) = self.listeners.get_mut(&listener)
                    && let Some(note) = own.log.note_new(&reason, now)
                {
                    info!(reason, "memif {}: a client was refused{note}", own.address);
                }
                return;
            }
            PeerSession::Server { interface, .. } | PeerSession::Client { interface, .. } => {
                interface
            }
        };
        let Some(interface) = self.interfaces.get_mut(&interface) else { return };
        interface.connection = None;
        interface.queues.stop();
        interface.wait_because(&reason, now);
        interface.plan(now);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the deadline starts at the current time")]
mod tests {
    use nix::sys::{
        epoll::EpollCreateFlags,
        socket::{SockType, UnixAddr},
    };
    use shunt_shared_memory::listen_at;

    use super::*;

    #[test]
    fn a_client_gives_a_server_time_to_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memif.sock");
        let _silent = listen_at(&UnixAddr::new(&path).unwrap(), SockType::SeqPacket).unwrap();
        let events = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap());
        let mut state = MemifState::new(events);
        let queues = Arc::new(InterfaceQueues::new(1).unwrap());
        let link = Arc::new(LinkState::new(MemifLink::Waiting { reason: String::new() }));
        let options = MemifOptions { role: MemifRole::Client, ..MemifOptions::new(&path) };
        state.add(options, queues, Arc::clone(&link)).unwrap();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(state.attend(start), Some(after(10)));
        state.attend(after(9));
        assert_eq!(state.connections.len(), 1);
        state.attend(after(10));
        assert_eq!(state.connections.len(), 0);
        let reason = link.get().to_string();
        assert!(
            reason.contains("has not completed the exchange of messages within 10 seconds"),
            "{reason}"
        );
    }
}
