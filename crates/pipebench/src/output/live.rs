//! Sends packets on a network device at their times.
//!
//! A packet socket sends whole frames ([packet(7)]); it is bound to a device and receives nothing.
//! The sender waits for the time of each packet: first it sleeps, and shortly before the time it
//! spins. The sender never skips a packet: a late packet is sent at once, and counted.
//!
//! [packet(7)]: https://man7.org/linux/man-pages/man7/packet.7.html

#![expect(clippy::disallowed_methods, reason = "packets are sent by wall-clock time")]

use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, bind, send, socket},
};

use crate::{
    LiveError,
    traffic::{Flow, ScheduledPacket},
};

/// A network device on which packets are sent.
#[derive(Debug)]
pub struct LivePort {
    socket: OwnedFd,
    device: String,
}

/// The counts of a workload that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Number of packets sent.
    pub packets: u64,
    /// Number of bytes sent, including check sequences.
    pub bytes: u64,
    /// Number of packets sent more than a tenth of a millisecond late.
    pub late: u64,
    /// Number of times that the device was busy.
    pub full: u64,
    /// Time from the first packet to the last.
    pub duration: Duration,
}

/// Delay beyond which a packet counts as late.
const LATE: Duration = Duration::from_micros(100);
/// Time before a packet at which the sender stops to sleep, and spins.
const NEAR: Duration = Duration::from_micros(500);
/// Maximum time for which a device may refuse a packet.
const TIMEOUT: Duration = Duration::from_secs(5);

impl LivePort {
    /// Opens a device by name.
    ///
    /// # Errors
    ///
    /// If there is no such device, or no permission to send raw frames.
    pub fn open(device: &str) -> Result<Self, LiveError> {
        let failed = |doing| {
            move |errno: Errno| LiveError::System { doing, device: device.to_owned(), errno }
        };
        let mut names = Vec::new();
        let mut address: Option<LinkAddr> = None;
        for interface in getifaddrs().map_err(failed("look for"))? {
            let link = interface.address.and_then(|address| address.as_link_addr().copied());
            let Some(link) = link else { continue };
            if interface.interface_name == device {
                address = Some(link);
            }
            names.push(interface.interface_name);
        }
        let Some(address) = address else {
            return Err(LiveError::NoDevice { device: device.to_owned(), known: names.join(", ") });
        };
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None);
        let socket = socket.map_err(|errno| match errno {
            Errno::EPERM | Errno::EACCES => LiveError::NotPermitted { device: device.to_owned() },
            errno => failed("open")(errno),
        })?;
        bind(socket.as_raw_fd(), &address).map_err(failed("open"))?;
        Ok(Self { socket, device: device.to_owned() })
    }

    /// Sends the packets of a schedule at their times, which count from now on.
    ///
    /// Calls `watch` for each packet.
    ///
    /// # Errors
    ///
    /// If the device goes down or refuses packets for seconds, or a flow has no frame.
    pub fn play(
        &self,
        flows: &[Flow],
        packets: impl IntoIterator<Item = ScheduledPacket>,
        mut watch: impl FnMut(),
    ) -> Result<SendCounts, LiveError> {
        let mut played = SendCounts::default();
        let mut frame = Vec::new();
        let start = Instant::now();
        for packet in packets {
            packet.write_frame(flows, &mut frame)?;
            let due = Duration::from_nanos(packet.time_ns);
            if wait(start, due) > LATE {
                played.late += 1;
            }
            played.full += self.send(&frame)?;
            played.packets += 1;
            played.bytes += u64::from(packet.bytes);
            watch();
        }
        played.duration = start.elapsed();
        Ok(played)
    }

    /// Sends one frame; returns the number of retries.
    fn send(&self, frame: &[u8]) -> Result<u64, LiveError> {
        let mut refused = 0;
        let mut since = None;
        loop {
            let Err(errno) = send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) else {
                return Ok(refused);
            };
            let is_full = matches!(errno, Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR);
            let since = *since.get_or_insert_with(Instant::now);
            if !is_full || since.elapsed() > TIMEOUT {
                let device = self.device.clone();
                return Err(match errno {
                    Errno::ENETDOWN => LiveError::Down { device },
                    Errno::EMSGSIZE => LiveError::TooLong { device, length: frame.len() },
                    errno => LiveError::System { doing: "send on", device, errno },
                });
            }
            refused += 1;
            std::thread::yield_now();
        }
    }
}

/// Waits until `due` after `start`; returns the delay beyond it.
fn wait(start: Instant, due: Duration) -> Duration {
    loop {
        let now = start.elapsed();
        let Some(left) = due.checked_sub(now).filter(|left| !left.is_zero()) else {
            return now.saturating_sub(due);
        };
        match left.checked_sub(NEAR) {
            Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep),
            _ => std::hint::spin_loop(),
        }
    }
}
