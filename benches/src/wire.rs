//! Raw frames on the far end of a cable: sent many in one call, and received without waiting.
//!
//! A packet socket of its own for each direction ([packet(7)]).
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

/// A frame of the shortest length.
pub type Frame = [u8; FRAME_BYTES];

/// Frames that one call takes at most.
const BURST: usize = 64;
/// Bytes of frames that wait to be received, with what the system adds to each.
const RECEIVE_BUFFER: usize = 64 << 20;

/// An end that sends.
#[derive(Debug)]
pub struct WireSender(OwnedFd);

/// An end that receives.
#[derive(Debug)]
pub struct WireReceiver(OwnedFd);

impl WireSender {
    /// Opens a device by its name.
    ///
    /// # Panics
    ///
    /// When there is no such device, or no right to send raw frames.
    #[must_use]
    pub fn open(device: &str) -> Self {
        Self(open(device, None))
    }

    /// Sends frames in their order; one that the device does not take is lost.
    pub fn send(&self, frames: &[Frame]) {
        for burst in frames.chunks(BURST) {
            let mut rest = burst;
            while !rest.is_empty() {
                let slices: Vec<[IoSlice<'_>; 1]> =
                    rest.iter().map(|frame| [IoSlice::new(frame)]).collect();
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
    /// Opens a device by its name; what comes from now on is kept until it is received.
    ///
    /// # Panics
    ///
    /// When there is no such device, or no right to receive raw frames.
    #[must_use]
    pub fn open(device: &str) -> Self {
        let fd = open(device, Some(SockProtocol::EthAll));
        setsockopt(&fd, RcvBufForce, &RECEIVE_BUFFER)
            .unwrap_or_else(|errno| panic!("no buffer to receive from {device}: {errno}"));
        Self(fd)
    }

    /// The next frame, as far as it fits; `None` where none waits.
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
