//! The task that sends the datagrams of a collector.
//!
//! It owns the socket, and sends as the socket has room. The system chooses the local address of a socket
//! when the socket is connected, and never again. So the task asks for the route each second, and opens
//! the socket again when the host has another address there.

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
    /// `None` while it cannot be opened.
    socket: Option<UdpSocket>,
}

/// Time between two refreshes of the socket.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Number of refreshes after which a closed collector gets no more datagrams.
const REFRESHES_AFTER_CLOSE: u32 = 5;

/// Datagrams that are sent at once, and the pause after them.
///
/// These are at most 12,800 datagrams a second. Without the pause, the receive buffer of the collector would overflow.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(5);

/// Bytes of the send buffer, which the system doubles.
///
/// They hold about 450 datagrams. More could overflow the queue of the device, where they are lost unseen.
const SEND_BUFFER: usize = 512 << 10;

impl CollectorSender {
    /// Creates a sender, and opens its socket.
    ///
    /// A runtime must be entered.
    pub(super) fn new(collector: Arc<Collector>) -> Self {
        let mut own = Self { collector, socket: None };
        own.refresh();
        own
    }

    /// Sends datagrams until the collector is closed.
    ///
    /// The last ones are sent for a bounded time.
    pub(super) async fn run(mut self) {
        let mut refresh = interval(REFRESH_INTERVAL);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = REFRESHES_AFTER_CLOSE;
        while left > 0 {
            tokio::select! {
                _ = refresh.tick() => {
                    self.refresh();
                    self.collector.log_overflow();
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

    /// Opens the socket if it is closed, or has another address than the route.
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

    /// Waits for datagrams and for the socket, and sends some.
    ///
    /// Returns false at the end.
    async fn send_some(&mut self) -> bool {
        if !self.collector.wait().await {
            return false;
        }
        // A refresh opens it.
        let Some(socket) = &self.socket else { return pending().await };
        if socket.writable().await.is_err() {
            // The runtime ends.
            return pending().await;
        }
        self.send_burst();
        sleep(PAUSE).await;
        true
    }

    /// Sends datagrams, as many as the socket takes.
    fn send_burst(&mut self) {
        for _ in 0..BURST {
            let Some(datagram) = self.collector.take() else { return };
            if !self.send(datagram) {
                return;
            }
        }
    }

    /// Sends a datagram; returns whether the socket takes more.
    fn send(&mut self, datagram: Arc<ExportDatagram>) -> bool {
        let Some(socket) = &self.socket else {
            self.collector.count_lost(&datagram);
            return false;
        };
        let mut sent = socket.try_send(&datagram.bytes);
        let is_refused = matches!(&sent, Err(error) if is_refusal(error));
        if is_refused {
            // It reports that nothing listened for an earlier datagram.
            sent = socket.try_send(&datagram.bytes);
        }
        match sent {
            Ok(_) => self.collector.note_sent(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.collector.put_back(datagram);
                return false;
            }
            // Another socket does not mend it.
            Err(error) if is_refusal(&error) => self.collector.count_lost(&datagram),
            Err(error) => {
                self.collector.count_lost(&datagram);
                let is_first = !self.collector.has_fault();
                self.socket = None;
                self.collector.note_closed(CollectorFault::NotSent(error));
                if is_first {
                    // The host may have another address since the last refresh.
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

/// Returns whether the host of a collector reports that nothing listens.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Opens a socket to a collector, which never blocks.
///
/// Returns it with its local address.
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

/// Registers a socket at the runtime, with a larger send buffer.
fn with_send_buffer(socket: StdUdpSocket) -> io::Result<UdpSocket> {
    let forced = setsockopt(&socket, SndBufForce, &SEND_BUFFER);
    // Without the privilege, the system limits the size to `net.core.wmem_max`.
    let _ = forced.or_else(|_| setsockopt(&socket, SndBuf, &SEND_BUFFER));
    UdpSocket::from_std(socket)
}

#[cfg(test)]
mod tests;
