//! The listeners, connections and interfaces of the control thread.

use std::{
    collections::BTreeMap,
    os::{fd::AsFd, unix::net::UnixListener},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use shunt_shared_memory::{LinkState, PeerLog, SocketFile};
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

/// The number of a listener, a connection or an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemifToken(u64);

impl MemifToken {
    /// The wake event of the control thread.
    pub(super) const WAKE: Self = Self(0);

    pub(super) const fn number(self) -> u64 {
        self.0
    }

    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// First pause between two attempts to connect; pauses double up to the longest.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// Maximum time for the messages until both sides are connected.
const CONNECT_LONGEST: Duration = Duration::from_secs(2);

/// Maximum number of clients of a listener that have not chosen an interface yet.
const CHOOSING_MAX: usize = 64;

/// All that the control thread has.
#[derive(Debug)]
pub(super) struct MemifState {
    events: Arc<Epoll>,
    last_token: u64,
    listeners: BTreeMap<MemifToken, SocketListener>,
    connections: BTreeMap<MemifToken, MemifConnection>,
    interfaces: BTreeMap<MemifToken, InterfaceState>,
}

#[derive(Debug)]
struct SocketListener {
    address: MemifAddress,
    listener: UnixListener,
    /// The end of a pause, during which no client is accepted.
    pause_end: Option<Instant>,
    /// Limits the log lines about clients that were refused.
    log: PeerLog,
    /// The file of a socket that is not abstract.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
struct MemifConnection {
    socket: MemifSocket,
    peer: PeerSession,
    /// The time at which the connection is closed if it is not complete.
    deadline: Option<Instant>,
}

/// The role of this side of a connection, and its progress.
#[derive(Debug)]
enum PeerSession {
    /// A client has not chosen an interface of the listener yet.
    Choosing { listener: MemifToken },
    /// This side is the server.
    Server { interface: MemifToken, session: MemifServerSession },
    /// This side is the client.
    Client { interface: MemifToken, session: Box<MemifClientSession> },
}

#[derive(Debug)]
struct InterfaceState {
    address: MemifAddress,
    options: MemifOptions,
    queues: Arc<InterfaceQueues>,
    link: Arc<LinkState<MemifLink>>,
    connection: Option<MemifToken>,
    /// The time of the next attempt of a client.
    next_attempt: Option<Instant>,
    /// The pause after the next attempt that fails.
    next_pause: Duration,
    /// Limits the log lines about peers.
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

    /// Plans the next attempt of a client.
    fn plan(&mut self, now: Instant) {
        if self.options.role == MemifRole::Client {
            self.next_attempt = Some(now + self.next_pause);
            self.next_pause = (self.next_pause * 2).min(RETRY_LONGEST);
        }
    }
}

/// Adds a descriptor to the events of the control thread.
fn watch(events: &Epoll, descriptor: impl AsFd, token: MemifToken) -> nix::Result<()> {
    events.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, token.number()))
}

impl MemifState {
    pub(super) const fn new(events: Arc<Epoll>) -> Self {
        Self {
            events,
            last_token: MemifToken::WAKE.0,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            interfaces: BTreeMap::new(),
        }
    }

    fn next_token(&mut self) -> MemifToken {
        self.last_token += 1;
        MemifToken(self.last_token)
    }

    /// Adds an interface, and the listener of its socket for the first server there.
    ///
    /// # Errors
    ///
    /// If the number is in use, or the socket.
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
            let listener = address.listen()?;
            let token = self.next_token();
            watch(&self.events, &listener, token).map_err(failed)?;
            let listener = SocketListener {
                address: address.clone(),
                listener,
                pause_end: None,
                log: PeerLog::default(),
                _file: address.file(),
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
            // The peer may have gone.
            let _ = connection.socket.send(&disconnect("the port was closed"), None);
        }
        interface.queues.stop();
        let _ = self.events.delete(interface.queues.failed());
        self.remove_unused_listener(&interface.address);
    }

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

    /// Makes the attempts that are due, and closes connections that take too long.
    ///
    /// Returns the time at which something is due again.
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
            self.end(token, &MemifProtocolError::Slow, now);
        }
        let events = Arc::clone(&self.events);
        for (token, own) in &mut self.listeners {
            if own.pause_end.take_if(|end| *end <= now).is_some() {
                // The set may not have room, and the next pause follows.
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

    /// Connects a client.
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

    fn interface_waits(&mut self, token: MemifToken, reason: &str, now: Instant) {
        if let Some(interface) = self.interfaces.get_mut(&token) {
            interface.wait_because(reason, now);
        }
    }

    fn add_connection(
        &mut self,
        socket: MemifSocket,
        peer: PeerSession,
        now: Instant,
    ) -> nix::Result<MemifToken> {
        let token = self.next_token();
        watch(&self.events, &socket, token)?;
        let deadline = Some(now + CONNECT_LONGEST);
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

    /// Accepts a client, and sends it the limits of a server.
    fn accept(&mut self, token: MemifToken, now: Instant) {
        let Some(own) = self.listeners.get_mut(&token) else { return };
        let accepted = MemifSocket::accept(&own.listener);
        if accepted.is_err() {
            // The process has too many open files, for example. The client stays in the queue.
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

    /// Makes room for another client of a listener.
    ///
    /// The client that has not chosen an interface for the longest time is closed. One that chooses at once
    /// is therefore served, however many others say nothing.
    fn limit_choosing(&mut self, token: MemifToken, now: Instant) {
        let choosing = self.connections.iter().filter(
            |(_, own)| matches!(own.peer, PeerSession::Choosing { listener } if listener == token),
        );
        // Tokens grow with time.
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

    /// Gives a client the interface that it chooses.
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

    /// Ends a connection; the peer gets the reason.
    fn end(&mut self, token: MemifToken, error: &MemifProtocolError, now: Instant) {
        let Some(connection) = self.connections.remove(&token) else { return };
        let reason = error.to_string();
        // The peer may have gone.
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
