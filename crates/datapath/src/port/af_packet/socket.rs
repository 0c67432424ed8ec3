//! Packet sockets: their options, and their fan-out group.
//!
//! The sockets and the rings of a port are members of one fan-out group, and the program of the group
//! chooses a member for each frame. Members have numbers in the order in which they joined: first the
//! sockets, then the rings. When a ring leaves, the last member takes its number; sockets never leave.
//!
//! A bound socket outside of the group would receive every frame. So a socket accepts no frames
//! until it has joined the group (see [`PacketSocket::accept`]), and no frame is received twice.

use std::{
    ffi::{c_int, c_uint},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use nix::sys::socket::{getsockopt, sockopt::RcvBuf};

use super::program;
use crate::port::sys;

/// Bytes of frames that one socket may queue for receiving.
/// The kernel doubles this number, for its own structures.
const RECEIVE_BUFFER: c_int = 8 << 20;
/// Bytes that one socket may queue for sending.
/// The buffer suffices for a few bursts of packets that are still to be segmented.
const SEND_BUFFER: c_int = 8 << 20;

/// A packet socket (`AF_PACKET`), and its count of dropped frames.
pub(super) struct PacketSocket {
    /// The descriptor of the packet socket.
    fd: OwnedFd,
    /// Number of frames dropped because the queue was full, as of the last request.
    rx_dropped: AtomicU64,
}

impl From<OwnedFd> for PacketSocket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, rx_dropped: AtomicU64::new(0) }
    }
}

impl PacketSocket {
    /// Creates an unbound socket with the options of every packet socket.
    pub(super) fn new() -> io::Result<Self> {
        let fd = sys::packet_socket()?;
        let socket = fd.as_fd();
        let enable = |option| sys::set_option(socket, libc::SOL_PACKET, option, &1);
        // Set the virtio header option before a ring is created, and create the ring before the
        // socket is bound: every frame must be received through the ring.
        enable(libc::PACKET_VNET_HDR)?;
        enable(libc::PACKET_IGNORE_OUTGOING)?;
        enable(libc::PACKET_AUXDATA)?;
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let resize = |option| sys::set_option(socket, libc::SOL_SOCKET, option, &RECEIVE_BUFFER);
        if resize(libc::SO_RCVBUFFORCE).is_err() {
            // The limit is `net.core.rmem_max`.
            let _ = resize(libc::SO_RCVBUF);
        }
        // Without CAP_NET_ADMIN the system's limit applies, and more bursts are sent only in part.
        let _ = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        Ok(Self::from(fd))
    }

    /// Returns the descriptor of the socket.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the frames that were dropped because the queue was full.
    pub(super) fn dropped(&self) -> u64 {
        // The kernel resets its counter when it is read.
        let more = sys::take_packet_drops(self.fd()).unwrap_or(0);
        self.rx_dropped.fetch_add(more.into(), Relaxed) + u64::from(more)
    }

    /// Sets the frames that the socket accepts: all or none.
    pub(super) fn accept(&self, frames: AcceptedFrames) -> io::Result<()> {
        match frames {
            AcceptedFrames::None => sys::set_program(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                &program::ACCEPT_NONE,
            ),
            AcceptedFrames::All => {
                sys::set_option(self.fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
            }
        }
    }

    /// Returns the fan-out group of the socket; `None` if it has none.
    fn group(&self) -> io::Result<Option<c_uint>> {
        let joined = sys::packet_option(self.fd(), libc::PACKET_FANOUT)?.cast_unsigned();
        Ok(Some(joined & 0xffff).filter(|_| joined != 0))
    }

    /// Creates a fan-out group with this socket as its first member.
    ///
    /// The group may have at most `members` sockets and rings.
    ///
    /// # Errors
    ///
    /// Linux before 6.13 refuses a socket of a device that is down.
    pub(super) fn create_group(&self, members: u16) -> io::Result<()> {
        // The kernel chooses an unused number.
        self.join(0, libc::PACKET_FANOUT_FLAG_UNIQUEID, members)
    }

    /// Joins the fan-out group of another socket.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the group has its maximum number of members.
    pub(super) fn join_group_of(&self, first: &Self, members: u16) -> io::Result<()> {
        let group = first.group()?.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        self.join(group, 0, members)
    }

    /// Joins a fan-out group, or creates it.
    fn join(&self, group: c_uint, flags: c_uint, members: u16) -> io::Result<()> {
        let mode = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING | flags;
        let arguments = FanoutArguments { mode: mode << 16 | group, members: members.into() };
        sys::set_option(self.fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &arguments)
    }

    /// Returns whether the socket is in a fan-out group.
    pub(super) fn is_grouped(&self) -> bool {
        self.group().is_ok_and(|group| group.is_some())
    }

    /// Directs frames to `count` members of the group, from number `first` on.
    ///
    /// Returns when the kernel has finished all frames of the former program, after some milliseconds.
    pub(super) fn direct(&self, first: u16, count: u16) -> io::Result<()> {
        let program = program::spread(first, count);
        sys::set_program(self.fd(), libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &program)
    }
}

/// Returns whether long frames fit the receive queue of a socket.
///
/// Without `CAP_NET_ADMIN`, `net.core.rmem_max` limits the size of the queue. With the usual limit
/// only a few long frames would fit.
pub(super) fn has_long_queue(socket: BorrowedFd<'_>) -> bool {
    // The kernel returns the doubled number.
    getsockopt(&socket, RcvBuf).is_ok_and(|bytes| bytes / 2 >= RECEIVE_BUFFER as usize)
}

/// The frames that a socket accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedFrames {
    None,
    All,
}

/// `struct fanout_args` of Linux `include/uapi/linux/if_packet.h`.
///
/// The first two fields of the C structure are one number here, with the same bytes on every
/// machine.
#[repr(C)]
#[derive(Clone, Copy)]
struct FanoutArguments {
    /// The fanout mode and its flags.
    mode: c_uint,
    /// Maximum number of members of the group.
    members: u32,
}
