//! The collectors of a bridge: the sockets that datagrams are sent by, and their faults.
//!
//! The system chooses the local address of a socket when the socket is connected, and never again. So a
//! refresh asks for the route to each collector, and opens the socket again when the host has another
//! address there.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use tracing::{info, warn};

/// The collectors that get each datagram of a protocol.
#[derive(Debug)]
pub(crate) struct ExportCollectors {
    /// The bridge and the protocol, with which log lines begin.
    owner: String,
    list: Vec<ExportCollector>,
    /// Datagrams that the system took, counted once for each collector.
    sent: u64,
    /// Datagrams that could not be sent.
    lost: u64,
}

/// A collector and the socket to it.
#[derive(Debug)]
struct ExportCollector {
    address: SocketAddr,
    /// `None` while it cannot be opened.
    socket: Option<UdpSocket>,
    fault: Option<CollectorFault>,
}

/// The reason why a collector gets no datagrams.
#[derive(Debug)]
enum CollectorFault {
    /// There is no socket. The fault ends when one can be opened.
    NotOpened(io::Error),
    /// The socket refused a datagram. The fault ends when a later one is sent.
    NotSent(io::Error),
}

impl ExportCollectors {
    /// Creates collectors without sockets, which [`Self::refresh`] opens.
    ///
    /// `owner` begins the log lines: the bridge and the protocol.
    pub(crate) fn new(owner: String, addresses: Vec<SocketAddr>) -> Self {
        let collector = |address| ExportCollector { address, socket: None, fault: None };
        Self { owner, list: addresses.into_iter().map(collector).collect(), sent: 0, lost: 0 }
    }

    /// Replaces the collectors, and keeps the counters.
    pub(crate) fn replace(&mut self, addresses: Vec<SocketAddr>) {
        self.list = Self::new(String::new(), addresses).list;
    }

    /// Opens the sockets that are closed, or that have another address than the route.
    pub(crate) fn refresh(&mut self) {
        for collector in &mut self.list {
            collector.refresh(&self.owner);
        }
    }

    /// Returns the local address of the route to the first collector that has one.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        self.list.iter().find_map(ExportCollector::local_address)
    }

    /// Sends a datagram to all collectors.
    pub(crate) fn send(&mut self, datagram: &[u8]) {
        for collector in &mut self.list {
            let is_sent = collector.send(datagram, &self.owner);
            let count = if is_sent { &mut self.sent } else { &mut self.lost };
            *count += 1;
        }
    }

    /// Returns the number of datagrams that were sent, counted once for each collector.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of datagrams that could not be sent.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns why some collectors get no datagrams, a reason for each of them.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.list.iter().filter_map(ExportCollector::fault_text).collect()
    }
}

impl ExportCollector {
    fn local_address(&self) -> Option<IpAddr> {
        let local = self.socket.as_ref()?.local_addr().ok()?;
        Some(local.ip())
    }

    fn refresh(&mut self, owner: &str) {
        match open(self.address) {
            Ok(fresh) => {
                let of_route = fresh.local_addr().ok().map(|own| own.ip());
                if self.socket.is_none() || of_route != self.local_address() {
                    self.socket = Some(fresh);
                }
                if let Some(CollectorFault::NotOpened(_)) = self.fault {
                    self.end_fault(owner);
                }
            }
            Err(error) => self.fail(CollectorFault::NotOpened(error), owner),
        }
    }

    /// Sends a datagram; returns whether the system took it.
    fn send(&mut self, datagram: &[u8], owner: &str) -> bool {
        let Some(socket) = &self.socket else { return false };
        let sent = match socket.send(datagram) {
            // It reports that nobody listened for an earlier datagram.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.send(datagram),
            sent => sent,
        };
        match sent {
            Ok(_) => {
                if self.fault.is_some() {
                    self.end_fault(owner);
                }
                true
            }
            // The buffer of the socket is full, or nobody listens: neither is mended by another socket.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused
                ) =>
            {
                false
            }
            Err(error) => {
                self.fail(CollectorFault::NotSent(error), owner);
                false
            }
        }
    }

    /// Closes the socket for a fault, and logs the first fault.
    fn fail(&mut self, fault: CollectorFault, owner: &str) {
        self.socket = None;
        let is_new = self.fault.replace(fault).is_none();
        if let Some(text) = self.fault_text().filter(|_| is_new) {
            warn!("{owner}: {text}; trying again each second");
        }
    }

    fn end_fault(&mut self, owner: &str) {
        self.fault = None;
        info!("{owner}: collector {} is reachable again", self.address);
    }

    fn fault_text(&self) -> Option<String> {
        let (CollectorFault::NotOpened(error) | CollectorFault::NotSent(error)) =
            self.fault.as_ref()?;
        let address = self.address;
        let ip = address.ip();
        Some(format!(
            "collector {address} cannot be reached: {error}; check the addresses of the host and \
             `ip route get {ip}`"
        ))
    }
}

/// Opens a socket to a collector, which never blocks.
fn open(collector: SocketAddr) -> io::Result<UdpSocket> {
    let local: IpAddr = match collector {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(collector)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// Runs a test in a network namespace of its own, with the device `d0`.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn in_namespace(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            ip("link add d0 type veth peer name d1");
            ip("link set d1 up");
            ip("link set d0 up");
            test();
        });
        thread.join().unwrap();
    }

    fn ip(line: &str) {
        assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
    }

    fn collectors() -> ExportCollectors {
        let collectors = vec!["10.9.0.2:6343".parse().unwrap()];
        ExportCollectors::new("bridge br0: sFlow".to_owned(), collectors)
    }

    fn counts(own: &ExportCollectors) -> (u64, u64, bool) {
        (own.sent(), own.lost(), !own.faults().is_empty())
    }

    #[test]
    fn a_socket_follows_the_address_of_the_host() {
        in_namespace(|| {
            let local = |own: &ExportCollectors| own.local_address().unwrap().to_string();
            ip("addr add 10.9.0.1/24 dev d0");
            let mut own = collectors();
            own.refresh();
            own.send(&[0]);
            assert_eq!((local(&own).as_str(), counts(&own)), ("10.9.0.1", (1, 0, false)));
            // A refresh finds the new address before a datagram is lost.
            ip("addr del 10.9.0.1/24 dev d0");
            ip("addr add 10.9.0.11/24 dev d0");
            own.refresh();
            own.send(&[0]);
            assert_eq!((local(&own).as_str(), counts(&own)), ("10.9.0.11", (2, 0, false)));
            // An unchanged address keeps the socket and its port.
            let port = |own: &ExportCollectors| {
                own.list[0].socket.as_ref().unwrap().local_addr().unwrap().port()
            };
            let before = port(&own);
            own.refresh();
            assert_eq!(port(&own), before);
        });
    }

    #[test]
    fn a_refused_datagram_opens_the_socket_again() {
        in_namespace(|| {
            ip("addr add 10.9.0.1/24 dev d0");
            let mut own = collectors();
            own.refresh();
            ip("addr del 10.9.0.1/24 dev d0");
            ip("addr add 10.9.0.11/24 dev d0");
            own.send(&[0]);
            assert_eq!(counts(&own), (0, 1, true));
            let fault = own.faults().remove(0);
            assert!(fault.starts_with("collector 10.9.0.2:6343 cannot be reached: "), "{fault}");
            own.refresh();
            // Only a datagram shows that the fault has ended.
            assert_eq!(counts(&own), (0, 1, true));
            own.send(&[0]);
            assert_eq!(counts(&own), (1, 1, false));
        });
    }

    #[test]
    fn a_collector_without_a_route_is_tried_again() {
        in_namespace(|| {
            let mut own = collectors();
            for lost in 1..3 {
                own.refresh();
                own.send(&[0]);
                assert_eq!(counts(&own), (0, lost, true));
                assert_eq!(own.local_address(), None);
            }
            assert!(own.faults()[0].contains("Network is unreachable"), "{:?}", own.faults());
            ip("addr add 10.9.0.1/24 dev d0");
            own.refresh();
            assert_eq!(counts(&own), (0, 2, false));
        });
    }
}
