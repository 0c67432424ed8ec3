//! Events of network devices: the system reports a new link state, name, master or address at once.
//!
//! Source: rtnetlink(7), groups `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR`.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use tokio::io::unix::AsyncFd;

/// The multicast groups of device events, as bits of the address.
///
/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 1 | 0x10 | 0x100;

/// Length of the receive buffer.
///
/// The content of messages is not used, so they may be truncated.
const BUFFER: usize = 4096;

/// A subscription to the events of all devices in one network namespace.
pub(crate) struct LinkEvents {
    socket: AsyncFd<OwnedFd>,
}

impl LinkEvents {
    /// Subscribes to the events of the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// If the system has no netlink sockets.
    pub(crate) fn subscribe() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let route = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        // Its safe replacement is unsafe to call. An `OwnedFd` has one descriptor for its whole life,
        // which is what both demand.
        #[expect(deprecated, reason = "an OwnedFd keeps its descriptor")]
        let socket = AsyncFd::new(socket)?;
        Ok(Self { socket })
    }

    /// Waits until a device has changed, and takes all events up to now.
    ///
    /// Returns also if events were lost, since then some device has changed.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut ready = self.socket.readable().await?;
        let mut buffer = [0; BUFFER];
        loop {
            let taken = ready
                .try_io(|socket| Ok(recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?));
            match taken {
                Ok(Ok(_)) => {}
                // The queue of events has overflowed (ENOBUFS).
                Ok(Err(error)) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
                Ok(Err(error)) => return Err(error),
                // No event is left.
                Err(_) => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    fn ip(arguments: &str) {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
    }

    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    #[test]
    fn a_change_of_a_device_is_an_event() {
        // The thread alone enters a network namespace, which is removed with it.
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
                    changed.await.expect("an event").unwrap();
                }
                let quiet = std::time::Duration::from_millis(50);
                assert!(tokio::time::timeout(quiet, events.changed()).await.is_err());
            });
        });
        test.join().unwrap();
    }
}
