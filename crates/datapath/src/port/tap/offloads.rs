//! The virtio header and the offloads of a TAP device.

use std::{
    ffi::{c_int, c_uint},
    io,
    os::fd::BorrowedFd,
};

use crate::{packet::virtio::VirtioHeader, port::sys};

/// Length of the virtio header before each frame.
///
/// The header is the longest one on every kernel: before Linux 6.17, the kernel ignores its end.
pub(super) const HEADER: usize = VirtioHeader::ENCODED_WITH_TUNNEL;

/// Sets the virtio header and the offloads of a device; returns the offloads.
///
/// The settings belong to the device, so one queue sets them for all queues. The kernel writes the
/// header when a frame is read, so frames may wait in the queues meanwhile.
pub(super) fn configure(queue: BorrowedFd<'_>) -> io::Result<c_uint> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "24")]
    sys::set_tun_header(queue, HEADER as c_int)?;
    accept_offloads(queue)
}

/// Sets of offloads that the host may use, the largest first.
/// A kernel that does not know one offload refuses the whole set.
const OFFLOADS: [c_uint; 5] = [
    TRANSPORT_OFFLOADS | TUNNEL_OFFLOADS,
    TRANSPORT_OFFLOADS,
    TCP_OFFLOADS | libc::TUN_F_TSO_ECN,
    TCP_OFFLOADS,
    libc::TUN_F_CSUM,
];
/// The offloads of TCP: checksums, and segmentation over IPv4 and IPv6.
const TCP_OFFLOADS: c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
/// The offloads of TCP and UDP without a tunnel.
const TRANSPORT_OFFLOADS: c_uint =
    TCP_OFFLOADS | libc::TUN_F_TSO_ECN | libc::TUN_F_USO4 | libc::TUN_F_USO6;
/// The offloads of packets in a UDP tunnel.
///
/// Linux has the virtio header of such packets in little-endian byte order on every machine.
const TUNNEL_OFFLOADS: c_uint = if cfg!(target_endian = "little") {
    TUN_F_UDP_TUNNEL_GSO | TUN_F_UDP_TUNNEL_GSO_CSUM
} else {
    0
};
/// Segmentation of packets in a UDP tunnel (Linux 6.17, `linux/if_tun.h`).
pub(super) const TUN_F_UDP_TUNNEL_GSO: c_uint = 0x080;
/// The same, in a tunnel that uses UDP checksums.
const TUN_F_UDP_TUNNEL_GSO_CSUM: c_uint = 0x100;

/// Enables the most offloads that the kernel supports; returns these offloads.
fn accept_offloads(queue: BorrowedFd<'_>) -> io::Result<c_uint> {
    for offloads in OFFLOADS {
        match sys::set_tun_offload(queue, offloads) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            done => return done.map(|()| offloads),
        }
    }
    sys::set_tun_offload(queue, 0).map(|()| 0)
}
