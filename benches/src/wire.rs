//! Raw frames on the far end of a virtual device: sent in batches, received without waiting.
//!
//! Each direction has a separate packet socket ([packet(7)]).
//!
//! [packet(7)]: https://man7.org/linux/man-pages/man7/packet.7.html

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, ControlMessage, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders,
        RecvMsg, SockFlag, SockProtocol, SockType, bind, recv, recvmsg, sendmmsg, setsockopt,
        socket,
        sockopt::{RcvBufForce, ReceiveTimestampns},
    },
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};

use crate::capture::FRAME_BYTES;

/// A frame of minimum length.
pub type Frame = [u8; FRAME_BYTES];

/// Maximum number of frames per system call.
const BURST: usize = 64;
/// Receive buffer in bytes, including the overhead of the kernel for each frame.
const RECEIVE_BUFFER: usize = 64 << 20;

/// The sending side of a packet socket on a virtual device.
#[derive(Debug)]
pub struct WireSender(OwnedFd);

/// The receiving side of a packet socket on a virtual device.
#[derive(Debug)]
pub struct WireReceiver(OwnedFd);

impl WireSender {
    /// Opens a device by name.
    ///
    /// # Panics
    ///
    /// If there is no such device, or no permission to send raw frames.
    #[must_use]
    pub fn open(device: &str) -> Self {
        Self(open(device, None))
    }

    /// Sends frames in order; the device may drop some.
    pub fn send<F: AsRef<[u8]>>(&self, frames: &[F]) {
        for burst in frames.chunks(BURST) {
            let mut rest = burst;
            while !rest.is_empty() {
                let slices: Vec<[IoSlice<'_>; 1]> =
                    rest.iter().map(|frame| [IoSlice::new(frame.as_ref())]).collect();
                let addresses: Vec<Option<LinkAddr>> = vec![None; slices.len()];
                let control: [ControlMessage<'_>; 0] = [];
                let mut headers = MultiHeaders::preallocate(slices.len(), None);
                let fd = self.0.as_raw_fd();
                let flags = MsgFlags::empty();
                let sent = sendmmsg(fd, &mut headers, &slices, &addresses, control, flags);
                let taken = sent.map_or(1, |results| results.count().max(1));
                rest = &rest[taken.min(rest.len())..];
            }
        }
    }
}

impl WireReceiver {
    /// Opens a device by name, and buffers frames from now on.
    ///
    /// # Panics
    ///
    /// If there is no such device, or no permission to receive raw frames.
    #[must_use]
    pub fn open(device: &str) -> Self {
        let fd = open(device, Some(SockProtocol::EthAll));
        setsockopt(&fd, RcvBufForce, &RECEIVE_BUFFER)
            .unwrap_or_else(|errno| panic!("no buffer to receive from {device}: {errno}"));
        Self(fd)
    }

    /// Returns the next frame, truncated to the size of [`Frame`];
    /// `None` if no frame waits.
    pub fn receive(&self) -> Option<Frame> {
        let mut frame = [0; FRAME_BYTES];
        loop {
            match recv(self.0.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => return Some(frame),
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// The receiving side of a packet socket, with the arrival time of each frame.
///
/// The kernel stamps the frames, so the time does not depend on the CPU time of the reader.
#[derive(Debug)]
pub struct TimedReceiver(OwnedFd);

impl TimedReceiver {
    /// Opens a device by name, and buffers frames from now on.
    ///
    /// # Panics
    ///
    /// If there is no such device, or no permission to receive raw frames.
    #[must_use]
    pub fn open(device: &str) -> Self {
        let WireReceiver(fd) = WireReceiver::open(device);
        setsockopt(&fd, ReceiveTimestampns, &true)
            .unwrap_or_else(|errno| panic!("no times of frames from {device}: {errno}"));
        Self(fd)
    }

    /// Returns the next frame, truncated to a [`Frame`], and its arrival time.
    ///
    /// The time is of the same clock as [`clock_time`]; `None` if no frame waits.
    #[must_use]
    pub fn receive(&self) -> Option<(Frame, Duration)> {
        let mut frame = [0; FRAME_BYTES];
        loop {
            let mut space = nix::cmsg_space!(TimeSpec);
            let mut slices = [IoSliceMut::new(&mut frame)];
            let (fd, flags) = (self.0.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
            let time = match recvmsg::<()>(fd, &mut slices, Some(space.as_mut_slice()), flags) {
                Ok(message) => kernel_time(&message),
                Err(Errno::EINTR) => continue,
                Err(_) => return None,
            };
            return time.map(|time| (frame, time));
        }
    }
}

/// Returns the time at which the kernel got a frame.
fn kernel_time(message: &RecvMsg<'_, '_, ()>) -> Option<Duration> {
    let mut controls = message.cmsgs().ok()?;
    controls.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    })
}

/// Returns the time of the clock by which the kernel stamps frames.
///
/// # Panics
///
/// If the system has no such clock.
#[must_use]
pub fn clock_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_REALTIME);
    time.unwrap_or_else(|errno| panic!("no time of day: {errno}")).into()
}

fn open(device: &str, protocol: Option<SockProtocol>) -> OwnedFd {
    let interfaces = getifaddrs().unwrap_or_else(|errno| panic!("no devices: {errno}"));
    let address = interfaces
        .filter(|interface| interface.interface_name == device)
        .find_map(|interface| interface.address.and_then(|own| own.as_link_addr().copied()));
    let address = address.unwrap_or_else(|| panic!("there is no device {device}"));
    let flags = SockFlag::SOCK_CLOEXEC;
    let opened = socket(AddressFamily::Packet, SockType::Raw, flags, protocol).and_then(|fd| {
        bind(fd.as_raw_fd(), &address)?;
        Ok(fd)
    });
    opened.unwrap_or_else(|errno| panic!("{device}: {errno}"))
}
