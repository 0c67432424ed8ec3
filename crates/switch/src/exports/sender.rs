//! The task that sends the datagrams of a collector.
//!
//! The task owns the UDP socket, and sends as the socket has space. The kernel chooses the local
//! address of a socket only when the socket is connected. So the task looks up the route to the
//! collector each second. When the route has another local address, the task opens a new socket.

use std::{
    future::pending,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket},
    sync::Arc,
    time::Duration,
};

use nix::sys::socket::{
    setsockopt,
    sockopt::{SndBuf, SndBufForce},
};
use shunt_flow_export::ExportDatagram;
use tokio::{
    net::UdpSocket,
    time::{MissedTickBehavior, interval, sleep},
};

use super::collector::{Collector, CollectorFault};

/// Sends the datagrams of a collector.
#[derive(Debug)]
pub(super) struct CollectorSender {
    collector: Arc<Collector>,
    /// The socket; `None` while no socket can be opened.
    socket: Option<UdpSocket>,
}

/// Time between two refreshes of the socket.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Number of refreshes after which a closed collector gets no more datagrams.
const REFRESHES_AFTER_CLOSE: u32 = 5;

/// Number of datagrams that are sent without a pause, and the pause after them.
///
/// Together they allow at most 12,800 datagrams a second. Without the pause, the receive buffer of
/// the collector would overflow.
const BURST: usize = 64;
/// Pause after each burst.
const PAUSE: Duration = Duration::from_millis(5);

/// Bytes of the send buffer; the kernel doubles this value.
///
/// The buffer holds about 450 datagrams. A larger buffer could overflow the queue of the network
/// device, which drops datagrams without an error.
const SEND_BUFFER: usize = 512 << 10;

impl CollectorSender {
    /// Creates a sender, and opens its socket.
    ///
    /// The function must be called in a tokio runtime.
    pub(super) fn new(collector: Arc<Collector>) -> Self {
        let mut own = Self { collector, socket: None };
        own.refresh();
        own
    }

    /// Sends datagrams until the collector is closed.
    ///
    /// After that, the waiting datagrams are sent for a bounded time.
    pub(super) async fn run(mut self) {
        let mut refresh = interval(REFRESH_INTERVAL);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = REFRESHES_AFTER_CLOSE;
        while left > 0 {
            tokio::select! {
                _ = refresh.tick() => {
                    self.refresh();
                    self.collector.log_overflow();
                    self.collector.check_refusal();
                    left -= u32::from(self.collector.is_closed());
                }
                is_open = self.send_some() => {
                    if !is_open {
                        break;
                    }
                }
            }
        }
        self.collector.lose_waiting();
    }

    /// Opens a socket if there is none, or if the route has another local address.
    fn refresh(&mut self) {
        let opened = open(self.collector.address).and_then(|(socket, local)| {
            if self.socket.is_none() || self.collector.local() != Some(local) {
                self.socket = Some(with_send_buffer(socket)?);
                self.collector.note_opened(local);
            }
            Ok(())
        });
        match opened {
            Ok(()) => self.collector.end_open_fault(),
            Err(error) => {
                self.socket = None;
                self.collector.note_closed(CollectorFault::NotOpened(error));
                self.collector.lose_waiting();
            }
        }
    }

    /// Waits for datagrams and for space in the socket, and sends a burst.
    ///
    /// Returns false when the collector is closed and its queue is empty.
    async fn send_some(&mut self) -> bool {
        if !self.collector.wait().await {
            return false;
        }
        // The next refresh opens the socket.
        let Some(socket) = &self.socket else { return pending().await };
        if socket.writable().await.is_err() {
            // The error means that the runtime ends.
            return pending().await;
        }
        self.send_burst();
        sleep(PAUSE).await;
        true
    }

    /// Sends a burst of datagrams, as many as the socket takes.
    fn send_burst(&mut self) {
        for _ in 0..BURST {
            let Some(datagram) = self.collector.take() else { return };
            if !self.send(datagram) {
                return;
            }
        }
    }

    /// Sends a datagram; returns whether the socket takes more datagrams.
    fn send(&mut self, datagram: Arc<ExportDatagram>) -> bool {
        let Some(socket) = &self.socket else {
            self.collector.count_lost(&datagram);
            return false;
        };
        let mut sent = socket.try_send(&datagram.bytes);
        let is_refused = matches!(&sent, Err(error) if is_refusal(error));
        if is_refused {
            // The error means that no program listened for an earlier datagram; this datagram is
            // sent now.
            sent = socket.try_send(&datagram.bytes);
        }
        match sent {
            Ok(_) => self.collector.note_sent(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.collector.put_back(datagram);
                return false;
            }
            // The collector's host refused again; a new socket would not help.
            Err(error) if is_refusal(&error) => self.collector.count_lost(&datagram),
            Err(error) => {
                self.collector.count_lost(&datagram);
                let is_first = !self.collector.has_fault();
                self.socket = None;
                self.collector.note_closed(CollectorFault::NotSent(error));
                if is_first {
                    // The host may have got another address since the last refresh.
                    self.refresh();
                } else {
                    self.collector.lose_waiting();
                }
                return false;
            }
        }
        if is_refused {
            self.collector.note_refused();
        } else {
            self.collector.note_accepted();
        }
        true
    }
}

/// Returns whether an error means that no program listens at the collector's port.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Opens a non-blocking socket to a collector.
///
/// Returns the socket with its local address.
fn open(collector: SocketAddr) -> io::Result<(StdUdpSocket, IpAddr)> {
    let any: IpAddr = match collector {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = StdUdpSocket::bind((any, 0))?;
    socket.connect(collector)?;
    socket.set_nonblocking(true)?;
    let local = socket.local_addr()?.ip();
    Ok((socket, local))
}

/// Registers a socket with the runtime, and enlarges its send buffer.
fn with_send_buffer(socket: StdUdpSocket) -> io::Result<UdpSocket> {
    let forced = setsockopt(&socket, SndBufForce, &SEND_BUFFER);
    // Without the privilege `CAP_NET_ADMIN`, the kernel limits the size to `net.core.wmem_max`.
    let _ = forced.or_else(|_| setsockopt(&socket, SndBuf, &SEND_BUFFER));
    UdpSocket::from_std(socket)
}

#[cfg(test)]
mod tests;
