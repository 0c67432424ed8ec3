//! Raw frames on the far end of a virtual device: sent in batches, received without waiting.
//!
//! Each direction has a separate packet socket ([packet(7)]).
//!
//! [packet(7)]: https://man7.org/linux/man-pages/man7/packet.7.html

use std::{
    io::IoSlice,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, ControlMessage, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol,
        SockType, bind, recv, sendmmsg, setsockopt, socket, sockopt::RcvBufForce,
    },
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
