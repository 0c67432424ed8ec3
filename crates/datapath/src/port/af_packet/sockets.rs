//! The sockets and the rings of a port, and the changes between both.
//!
//! Each packet thread has a socket. While the port is busy, each thread also has a ring, which is a
//! second socket of the same fan-out group. [`RxSockets::maintenance`] decides on a change, and
//! returns the work that makes the change. [`switchover`](super::switchover) explains how frames
//! keep their order.

use std::{io, os::fd::AsFd, sync::Arc};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use parking_lot::Mutex;
use shunt_pipeline::Time;
use tracing::{debug, warn};

use super::{
    load::{LoadMeter, QUIET_TIME, WantedSource},
    queue::RingQueue,
    ring::{Ring, RingLayout},
    rx::SharedRx,
    socket::{AcceptedFrames, PacketSocket, has_long_queue},
    switchover::{RxMode, Switchover},
};
use crate::port::{FrameCopies, PortWork, StoredDescriptor, stored::copy, sys};

/// The device of a port, and the size of its rings.
#[derive(Clone, Debug)]
pub(super) struct RxSettings {
    /// The name of the device.
    pub(super) device: String,
    /// Number of the device.
    pub(super) index: u32,
    /// Number of slots of a ring; `None`: the default.
    pub(super) slots: Option<u32>,
}

/// The sockets of all receive queues of a port.
pub(super) struct RxSockets {
    /// The settings of receive queues.
    settings: RxSettings,
    /// The sockets of each packet thread.
    queues: Vec<QueueSockets>,
    /// The phase of the rings.
    state: Mutex<State>,
}

/// The sockets of one packet thread.
pub(super) struct QueueSockets {
    /// The socket that receives while there is no ring.
    pub(super) socket: KeptSocket,
    /// The state that the packet thread also uses.
    pub(super) shared: Arc<SharedRx>,
    /// The socket of the ring; `None` without a ring.
    ring: Mutex<Option<KeptSocket>>,
    /// Number of frames that closed rings have dropped because they were full.
    dropped: Mutex<u64>,
}

/// A socket that a later process can use.
pub(super) struct KeptSocket {
    /// The packet socket that is kept for a later process.
    pub(super) socket: Arc<PacketSocket>,
    /// The layout of the socket's ring; `None` without a ring.
    layout: Option<RingLayout>,
    /// The name of the socket's copy in the store.
    stored_name: Mutex<Option<String>>,
}

/// The phase and the measured load of the receive rings.
struct State {
    /// The phase between sockets alone and rings.
    phase: RxPhase,
    /// The measured load, which decides if rings are used.
    meter: LoadMeter,
    /// Time of the last failed attempt to add rings.
    failed: Option<Time>,
}

/// The phase of a port between sockets alone and rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RxPhase {
    Sockets,
    Rings,
    /// The kernel fills the sockets again, and packet threads still read their rings.
    Returning,
    /// The port always has rings.
    OnlyRings,
    /// A change is in progress.
    Changing,
}

/// A change of the rings of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingChange {
    Add,
    Leave,
    Close,
}

impl RxSockets {
    /// Opens the sockets of `count` packet threads.
    ///
    /// # Errors
    ///
    /// If the system refuses a socket.
    pub(super) fn open(settings: RxSettings, count: u16) -> io::Result<Arc<Self>> {
        let mut queues = Vec::<QueueSockets>::new();
        for _ in 0..count {
            let socket = PacketSocket::new()?;
            let first = queues.first().map(|queue| &queue.socket.socket);
            if first.is_some() {
                // Until it has joined the group, the socket would receive every frame.
                socket.accept(AcceptedFrames::None)?;
            }
            sys::make_promiscuous(socket.fd(), settings.index)?;
            sys::bind_packet(socket.fd(), settings.index)?;
            let grouped = match first {
                Some(first) => socket.join_group_of(first, 2 * count),
                None => socket.create_group(2 * count),
            };
            if count > 1 {
                grouped?;
            } // Otherwise the group is created when the first ring is added.
            queues.push(QueueSockets::new(KeptSocket::new(socket, None))?);
        }
        let sockets = Self::new(settings, queues);
        if count > 1 {
            let first = sockets.first()?;
            first.direct(0, 1)?;
            // After this call, the kernel has finished all frames that arrived before the group
            // existed.
            first.direct(0, 1)?;
            for queue in sockets.queues.iter().skip(1) {
                queue.socket.socket.accept(AcceptedFrames::All)?;
            }
            first.direct(0, count)?;
        } else if sockets.first()?.is_grouped() {
            // This first program does not wait; later programs wait for the end of the previous
            // program.
            sockets.first()?.direct(0, count)?;
        }
        if !has_long_queue(sockets.first()?.fd()) && sockets.first()?.is_grouped() {
            sockets.add_rings()?;
            sockets.state.lock().phase = RxPhase::OnlyRings;
        }
        Ok(Arc::new(sockets))
    }

    /// Uses the sockets that an earlier process stored.
    ///
    /// The function also uses the stored rings, if all packet threads have one.
    ///
    /// # Errors
    ///
    /// If the system refuses a socket or a ring.
    pub(super) fn inherit(
        settings: RxSettings,
        sockets: Vec<StoredDescriptor>,
        rings: Vec<(StoredDescriptor, RingLayout)>,
    ) -> io::Result<Arc<Self>> {
        let queues = sockets
            .into_iter()
            .map(|stored| QueueSockets::new(KeptSocket::inherited(stored, None)));
        let sockets = Self::new(settings, queues.collect::<io::Result<_>>()?);
        let is_long = has_long_queue(sockets.first()?.fd());
        if rings.len() == sockets.queues.len() {
            for (queue, (stored, layout)) in sockets.queues.iter().zip(rings) {
                let ring = Ring::inherit(stored.fd.as_fd(), layout)?;
                queue.add(KeptSocket::inherited(stored, Some(layout)), ring)?;
            }
            sockets.switch_to_rings()?;
        } else if sockets.first()?.is_grouped() {
            drop(rings);
            sockets.first()?.direct(0, sockets.count())?;
        }
        let has_rings = sockets.queues.iter().all(|queue| queue.ring.lock().is_some());
        if !is_long && !has_rings {
            sockets.add_rings()?;
        }
        sockets.state.lock().phase = match (is_long, has_rings) {
            (false, _) => RxPhase::OnlyRings,
            (true, true) => RxPhase::Rings,
            (true, false) => RxPhase::Sockets,
        };
        Ok(Arc::new(sockets))
    }

    /// Creates the sockets, all in socket mode.
    const fn new(settings: RxSettings, queues: Vec<QueueSockets>) -> Self {
        let (phase, meter) = (RxPhase::Sockets, LoadMeter::new());
        Self { settings, queues, state: Mutex::new(State { phase, meter, failed: None }) }
    }

    /// Returns the sockets of each packet thread.
    pub(super) fn queues(&self) -> &[QueueSockets] {
        &self.queues
    }

    /// Returns the socket of the first queue.
    fn first(&self) -> io::Result<&PacketSocket> {
        let first = self.queues.first().map(|queue| &*queue.socket.socket);
        first.ok_or_else(|| io::Error::other("the port has no packet thread"))
    }

    /// Returns the number of sockets.
    fn count(&self) -> u16 {
        u16::try_from(self.queues.len()).unwrap_or(u16::MAX)
    }

    /// Returns the work of a due change between sockets and rings.
    ///
    /// `None` while a change is in progress.
    pub(super) fn maintenance(self: &Arc<Self>, now: Time) -> Option<PortWork> {
        let frames = self.queues.iter().map(|queue| queue.shared.short_frames()).sum();
        let mut state = self.state.lock();
        let wanted = state.meter.measure(frames, now);
        let is_settled = |queue: &QueueSockets| queue.shared.switchover.is_settled();
        let change = match (state.phase, wanted) {
            (RxPhase::Sockets, Some(WantedSource::Rings))
                if state.failed.is_none_or(|failed| now.since(failed) >= QUIET_TIME) =>
            {
                RingChange::Add
            }
            (RxPhase::Rings, Some(WantedSource::Sockets)) if self.queues.iter().all(is_settled) => {
                RingChange::Leave
            }
            (RxPhase::Returning, _) if self.queues.iter().all(QueueSockets::is_returned) => {
                RingChange::Close
            }
            _ => return None,
        };
        state.phase = RxPhase::Changing;
        let sockets = Arc::clone(self);
        Some(Box::new(move || sockets.make(change, now)))
    }

    /// Adds or closes the receive rings of the port.
    fn make(&self, change: RingChange, now: Time) {
        let device = &self.settings.device;
        let phase = match change {
            RingChange::Add => match self.add_rings() {
                Ok(()) => RxPhase::Rings,
                Err(error) => {
                    // A service manager may not have closed the former rings yet, so this error is
                    // not logged.
                    if error.raw_os_error() != Some(libc::ENOSPC) {
                        warn!(
                            %error,
                            "device {device}: the receive rings cannot be created, so received \
                             frames cost more CPU time; tried again in {} s",
                            QUIET_TIME.as_secs()
                        );
                        self.state.lock().failed = Some(now);
                    }
                    if self.has_rings() { RxPhase::Returning } else { RxPhase::Sockets }
                }
            },
            RingChange::Leave => match self.switch_to_sockets() {
                Ok(()) => RxPhase::Returning,
                Err(error) => {
                    warn!(%error, "device {device}: the receive rings cannot be closed, so the \
                                   port still uses them");
                    RxPhase::OnlyRings
                }
            },
            RingChange::Close => {
                self.close_rings();
                RxPhase::Sockets
            }
        };
        debug!(?phase, "device {device}: receive rings");
        self.state.lock().phase = phase;
    }

    /// Returns whether the sockets have rings now.
    fn has_rings(&self) -> bool {
        self.queues.iter().any(|queue| queue.ring.lock().is_some())
    }

    /// Adds a ring for each packet thread, and directs all frames to the rings.
    fn add_rings(&self) -> io::Result<()> {
        let first = self.first()?;
        if !first.is_grouped() {
            // Linux before 6.13 refuses to create a group while the device is down.
            first.create_group(2 * self.count())?;
            first.direct(0, self.count())?;
        }
        let mut rings = Vec::with_capacity(self.queues.len());
        for _ in &self.queues {
            rings.push(self.ring(first)?);
        }
        // After this call, the kernel has finished all frames that arrived before the group
        // existed.
        first.direct(0, self.count())?;
        for (socket, _, _) in &rings {
            socket.accept(AcceptedFrames::All)?;
        }
        for (queue, (socket, layout, ring)) in self.queues.iter().zip(rings) {
            queue.add(KeptSocket::new(socket, Some(layout)), ring)?;
        }
        self.switch_to_rings()
    }

    /// Creates a ring that is a member of the group, to which no frame is directed yet.
    fn ring(&self, first: &PacketSocket) -> io::Result<(PacketSocket, RingLayout, Ring)> {
        let socket = PacketSocket::new()?;
        let layout = RingLayout::of(has_long_queue(socket.fd()), self.settings.slots);
        if layout.is_short() {
            sys::set_option(socket.fd(), libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1)?;
        }
        socket.accept(AcceptedFrames::None)?;
        let ring = Ring::new(socket.fd(), layout)?;
        sys::bind_packet(socket.fd(), self.settings.index)?;
        socket.join_group_of(first, 2 * self.count())?;
        Ok((socket, layout, ring))
    }

    /// Switches all queues to a receive mode.
    fn set_mode(&self, mode: RxMode) {
        self.queues.iter().for_each(|queue| queue.shared.switchover.set(mode));
    }

    /// Directs frames to the rings; on failure, the sockets stay in use.
    fn switch_to_rings(&self) -> io::Result<()> {
        self.set_mode(RxMode::ToRing);
        let directed = self.first()?.direct(self.count(), self.count());
        if directed.is_err() {
            self.set_mode(RxMode::Socket);
        } else {
            self.set_mode(RxMode::Ring);
        }
        directed
    }

    /// Directs the packets of all queues back from rings to plain sockets.
    fn switch_to_sockets(&self) -> io::Result<()> {
        self.set_mode(RxMode::ToSocket);
        let directed = self.first()?.direct(0, self.count());
        self.set_mode(if directed.is_ok() { RxMode::Socket } else { RxMode::Ring });
        directed
    }

    /// Closes the rings that the packet threads have returned.
    fn close_rings(&self) {
        // The last member of the group leaves first, so that other members keep their numbers.
        for queue in self.queues.iter().rev() {
            drop(queue.shared.switchover.take());
            if let Some(ring) = queue.ring.lock().take() {
                // A copy of the descriptor in the store would keep the ring in the epoll set.
                let _ = queue.shared.events.delete(ring.socket.fd());
                *queue.dropped.lock() += ring.socket.dropped();
            }
        }
    }

    /// Returns the number of frames that were dropped because a queue or ring was full.
    pub(super) fn dropped(&self) -> u64 {
        let dropped = self.queues.iter().map(|queue| {
            let ring = queue.ring.lock().as_ref().map_or(0, |ring| ring.socket.dropped());
            queue.socket.socket.dropped() + ring + *queue.dropped.lock()
        });
        dropped.sum()
    }

    /// Returns the copies that the receive queues made.
    pub(super) fn copies(&self) -> FrameCopies {
        self.queues.iter().map(|queue| queue.shared.copies.total()).sum()
    }

    /// Returns copies of all sockets and rings, for a later process.
    pub(super) fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        let mut stored = Vec::new();
        for (number, queue) in self.queues.iter().enumerate() {
            stored.extend(queue.socket.copy(&self.settings.device, number));
            let ring = queue.ring.lock();
            stored.extend(ring.as_ref().and_then(|ring| ring.copy(&self.settings.device, number)));
        }
        stored
    }
}

impl QueueSockets {
    /// Creates the events of a socket.
    fn new(socket: KeptSocket) -> io::Result<Self> {
        let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        events.add(socket.socket.fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let switchover = Arc::new(Switchover::new());
        let shared = Arc::new(SharedRx::new(switchover, events, Arc::default()));
        Ok(Self { socket, shared, ring: Mutex::new(None), dropped: Mutex::new(0) })
    }

    /// Returns whether the packet thread has no ring.
    fn is_returned(&self) -> bool {
        self.ring.lock().is_none() || self.shared.switchover.has_ring()
    }

    /// Adds a ring of a packet thread, and offers it to the thread.
    fn add(&self, socket: KeptSocket, ring: Ring) -> io::Result<()> {
        self.shared.events.add(socket.socket.fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let copies = Arc::clone(&self.shared.copies);
        self.shared.switchover.offer(RingQueue::new(Arc::clone(&socket.socket), ring, copies));
        *self.ring.lock() = Some(socket);
        Ok(())
    }
}

/// The last part of the name of a socket without a ring.
pub(super) const WITHOUT_RING: &str = "socket";

impl KeptSocket {
    /// Creates a socket that is not stored for a later process.
    fn new(socket: PacketSocket, layout: Option<RingLayout>) -> Self {
        Self { socket: Arc::new(socket), layout, stored_name: Mutex::new(None) }
    }

    /// Returns a socket that an earlier process has stored.
    fn inherited(stored: StoredDescriptor, layout: Option<RingLayout>) -> Self {
        let StoredDescriptor { name, fd, .. } = stored;
        let stored_name = Mutex::new(Some(name));
        Self { socket: Arc::new(PacketSocket::from(fd)), layout, stored_name }
    }

    /// Returns a copy to store.
    ///
    /// The store then has the copy under the name that is returned with it.
    fn copy(&self, device: &str, number: usize) -> Option<StoredDescriptor> {
        let kind = self.layout.map_or_else(|| WITHOUT_RING.to_owned(), |own| own.to_string());
        let name = format!("af_packet/{device}/{number:04}/{kind}");
        let mut stored_name = self.stored_name.lock();
        let stored = copy(name, &self.socket.fd(), stored_name.as_deref())?;
        *stored_name = Some(stored.name.clone());
        Some(stored)
    }
}
