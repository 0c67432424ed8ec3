//! Events of network devices: the kernel reports a changed link, name, master or address
//! immediately.
//!
//! Source: rtnetlink(7), groups `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR`.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use tokio::io::unix::AsyncFd;

/// The multicast groups of device events, as bits of the netlink address.
///
/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 1 | 0x10 | 0x100;

/// Length of the receive buffer.
///
/// Only the beginning of a message is parsed, so longer messages may be truncated.
const BUFFER: usize = 4096;

/// Length of the header of a message (`nlmsghdr`).
const HEADER: usize = 16;

/// Offset of the device index after the message header,
/// in `ifinfomsg` and `ifaddrmsg`.
const INDEX: usize = 4;

/// The devices that have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangedDevices {
    /// Only the listed devices have changed, by index.
    Named(BTreeSet<u32>),
    /// Any device may have changed: events were lost, or the kernel sends none.
    Any,
}

impl ChangedDevices {
    /// Returns whether a device may have changed.
    pub(crate) fn contains(&self, index: u32) -> bool {
        match self {
            Self::Named(indices) => indices.contains(&index),
            Self::Any => true,
        }
    }

    /// Adds the devices that the messages in `events` name.
    fn add(&mut self, mut events: &[u8]) {
        let Self::Named(indices) = self else { return };
        while let Some((length, index)) = message(events) {
            indices.insert(index);
            events = events.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Returns the length of the first message, and the index of the device in it.
fn message(events: &[u8]) -> Option<(usize, u32)> {
    let length = usize::try_from(u32::from_ne_bytes(*events.first_chunk()?)).ok()?;
    let index = u32::from_ne_bytes(*events.get(HEADER + INDEX..)?.first_chunk()?);
    (length >= HEADER).then_some((length, index))
}

/// A subscription to the events of all devices in one network namespace.
pub(crate) struct LinkEvents {
    /// The netlink socket that receives the events.
    socket: AsyncFd<OwnedFd>,
}

impl LinkEvents {
    /// Subscribes to the events of the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// If the kernel has no netlink sockets.
    pub(crate) fn subscribe() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let route = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        // The safe variant of this call needs `unsafe`. An `OwnedFd` keeps one descriptor for its
        // whole life, as both variants demand.
        #[expect(deprecated, reason = "an OwnedFd keeps its descriptor")]
        let socket = AsyncFd::new(socket)?;
        Ok(Self { socket })
    }

    /// Waits until a device has changed, and takes all events up to now.
    pub(crate) async fn changed(&self) -> io::Result<ChangedDevices> {
        let mut ready = self.socket.readable().await?;
        let mut buffer = [0; BUFFER];
        let mut changed = ChangedDevices::Named(BTreeSet::new());
        loop {
            let taken = ready
                .try_io(|socket| Ok(recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?));
            match taken {
                Ok(Ok(length)) => changed.add(buffer.get(..length).unwrap_or_default()),
                // The receive queue of events has overflowed (ENOBUFS).
                Ok(Err(error)) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    changed = ChangedDevices::Any;
                }
                Ok(Err(error)) => return Err(error),
                // All events have been read.
                Err(_) => return Ok(changed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::{
        net::if_::if_nametoindex,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    /// Runs a command of `ip`.
    fn ip(arguments: &str) {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
    }

    #[test]
    fn netlink_messages_name_the_changed_devices() {
        let message = |length: u32, index: u32| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.resize(HEADER + INDEX, 0);
            bytes.extend(index.to_ne_bytes());
            bytes
        };
        let devices = |events: &[u8]| {
            let mut changed = ChangedDevices::Named(BTreeSet::new());
            changed.add(events);
            changed
        };
        let named = |indices: &[u32]| ChangedDevices::Named(indices.iter().copied().collect());
        assert_eq!(devices(&[message(24, 3), message(24, 5)].concat()), named(&[3, 5]));
        // The first message is truncated, or too short for a header.
        assert_eq!(devices(&message(9000, 3)), named(&[3]));
        assert_eq!(devices(&message(15, 3)), named(&[]));
        let whole = message(24, 3);
        for length in 0..whole.len() {
            assert_eq!(devices(&whole[..length]), named(&[]), "cut at {length}");
        }
        let mut any = ChangedDevices::Any;
        any.add(&whole);
        assert!(any.contains(7) && !named(&[3]).contains(7));
    }

    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    #[test]
    fn a_change_of_a_device_is_an_event() {
        // The new thread enters a network namespace, which is removed when the thread ends.
        let test = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let events = LinkEvents::subscribe().unwrap();
                for change in ["link set lo up", "link set lo down"] {
                    ip(change);
                    let changed =
                        tokio::time::timeout(std::time::Duration::from_secs(20), events.changed());
                    let lo = if_nametoindex("lo").unwrap();
                    let changed = changed.await.expect("an event").unwrap();
                    assert_eq!(changed, ChangedDevices::Named([lo].into()));
                }
                let quiet = std::time::Duration::from_millis(50);
                assert!(tokio::time::timeout(quiet, events.changed()).await.is_err());
            });
        });
        test.join().unwrap();
    }
}
