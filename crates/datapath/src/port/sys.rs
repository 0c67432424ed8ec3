//! System calls for devices, TAPs and packet sockets that no safe wrapper covers.
//!
//! Every function here is safe to call: it owns the memory that the kernel writes to, and passes
//! the length of this memory.
//!
//! Source: netdevice(7), packet(7), Linux `Documentation/networking/tuntap.rst`.
#![expect(unsafe_code, reason = "system calls that neither std nor nix wraps")]

use std::{
    ffi::{c_char, c_int, c_short, c_uint, c_ushort},
    io,
    mem::{size_of, zeroed},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr,
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{PortError, link};
use crate::packet::{
    buffer::{BURST, Packet},
    virtio::VirtioHeader,
};

/// The name of a network device: 1 to 15 bytes.
#[derive(Clone, Debug)]
pub(super) struct DeviceName(String);

impl DeviceName {
    /// Checks the name of a device, and copies it.
    pub(super) fn new(name: &str) -> Result<Self, PortError> {
        let is_legal = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
        let fits = !name.is_empty() && name.len() < libc::IFNAMSIZ && name != "." && name != "..";
        // The kernel would replace a % by a number.
        if fits && name.bytes().all(|byte| is_legal(byte) && byte != b'%') {
            Ok(Self(name.to_owned()))
        } else {
            let is_long = name.len() >= libc::IFNAMSIZ;
            let (first, name) = (is_long.then(|| link::first_name(name)), name.to_owned());
            Err(match first.flatten() {
                Some(first) => PortError::LongName { name, first },
                None => PortError::BadName { name },
            })
        }
    }

    /// Returns the name as text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a request of `ioctl` for the device.
    pub(super) fn request(&self) -> libc::ifreq {
        // SAFETY: all fields are integers, or a pointer that is not followed: zero is a value of each.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (target, source) in request.ifr_name.iter_mut().zip(self.0.bytes()) {
            *target = c_char::from_ne_bytes([source]);
        }
        request
    }
}

/// Checks the name of a network device.
///
/// # Errors
///
/// If the name is no valid name of a device, or a second name that is too long for a port.
pub fn check_device_name(name: &str) -> Result<(), PortError> {
    DeviceName::new(name).map(drop)
}

/// Returns the error of a system call that returned -1.
pub(super) fn check_result(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes the `ioctl` system call of a request that reads and writes an `ifreq`.
pub(super) fn device_request(
    fd: BorrowedFd<'_>,
    code: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: every code passed here reads and writes one `ifreq`, which is borrowed for the call.
    check_result(unsafe { libc::ioctl(fd.as_raw_fd(), code, ptr::from_mut(request)) }).map(drop)
}

/// Returns the name that the kernel has written to a request.
fn name_in(request: &libc::ifreq) -> String {
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
    let name: Vec<u8> = name.flat_map(|byte| byte.to_ne_bytes()).collect();
    String::from_utf8_lossy(&name).into_owned()
}

/// Returns the index of a device.
///
/// Unlike `if_nametoindex`, the call needs no further descriptor.
pub(super) fn device_index(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<c_uint> {
    let mut request = device.request();
    device_request(fd, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the request answers in this field of the union, which was zero before.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex }.unsigned_abs())
}

/// Returns the name of the device with an index; `None` if there is no such device.
///
/// Unlike `if_indextoname`, the call needs no further descriptor. So a process without a free
/// descriptor does not take a device for removed.
pub(super) fn device_name(fd: BorrowedFd<'_>, index: c_uint) -> io::Result<Option<String>> {
    // SAFETY: all fields are integers, or a pointer that is not followed: zero is a value of each.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    request.ifr_ifru.ifru_ifindex = c_int::try_from(index).map_err(invalid)?;
    match device_request(fd, libc::SIOCGIFNAME, &mut request) {
        Ok(()) => Ok(Some(name_in(&request))),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the MAC address of a device.
pub(super) fn hardware_address(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<[u8; 6]> {
    let address = link_address(fd, device)?;
    let mut mac = [0; 6];
    for (target, source) in mac.iter_mut().zip(address.sa_data) {
        [*target] = source.to_ne_bytes();
    }
    Ok(mac)
}

/// Returns the type of the link layer of a device (`ARPHRD_ETHER` ..).
pub(super) fn link_type(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<u16> {
    Ok(link_address(fd, device)?.sa_family)
}

/// Returns the address of a device, with the type of its link layer as family.
fn link_address(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<libc::sockaddr> {
    let mut request = device.request();
    device_request(fd, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the request answers in this field of the union, which was zero before.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr })
}

/// Returns the flags of a device (`IFF_UP`, `IFF_RUNNING` ..).
pub(super) fn device_flags(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<c_int> {
    let mut request = device.request();
    device_request(fd, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the request answers in this field of the union, which was zero before.
    Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
}

/// Replaces the `IFF_*` flags of a network device.
pub(super) fn set_device_flags(
    fd: BorrowedFd<'_>,
    device: &DeviceName,
    flags: c_int,
) -> io::Result<()> {
    let mut request = device.request();
    request.ifr_ifru.ifru_flags = short(flags);
    device_request(fd, libc::SIOCSIFFLAGS, &mut request)
}

/// Sets the MAC address of a device.
pub(super) fn set_hardware_address(
    fd: BorrowedFd<'_>,
    device: &DeviceName,
    mac: [u8; 6],
) -> io::Result<()> {
    let mut request = device.request();
    let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    for (target, source) in address.sa_data.iter_mut().zip(mac) {
        *target = c_char::from_ne_bytes([source]);
    }
    request.ifr_ifru.ifru_hwaddr = address;
    device_request(fd, libc::SIOCSIFHWADDR, &mut request)
}

/// Sets the MTU of a device: the longest packet without its Ethernet header.
pub(super) fn set_mtu(fd: BorrowedFd<'_>, device: &DeviceName, mtu: u32) -> io::Result<()> {
    let mut request = device.request();
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    request.ifr_ifru.ifru_mtu = c_int::try_from(mtu).map_err(invalid)?;
    device_request(fd, libc::SIOCSIFMTU, &mut request)
}

/// Returns the MTU of a device.
pub(super) fn mtu(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<u32> {
    let mut request = device.request();
    device_request(fd, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the request answers in this field of the union, which was zero before.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
}

/// Sets whether a TAP device outlives its last queue.
pub(super) fn set_tun_persistent(fd: BorrowedFd<'_>, stays: bool) -> io::Result<()> {
    let stays = libc::c_ulong::from(stays);
    // SAFETY: the request takes its argument by value.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, stays) };
    check_result(result).map(drop)
}

/// Converts flags to the type `short` of the kernel.
fn short(flags: c_int) -> c_short {
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is never set")]
    {
        flags as c_short
    }
}

/// Turns an open `/dev/net/tun` into a queue of `device`; creates a missing device.
pub(super) fn attach_tun(fd: BorrowedFd<'_>, device: &DeviceName, flags: c_int) -> io::Result<()> {
    let mut request = device.request();
    request.ifr_ifru.ifru_flags = short(flags);
    device_request(fd, libc::TUNSETIFF, &mut request)
}

/// Returns the device name and the flags (`IFF_TAP` ..) of a queue of a TUN or TAP.
pub(super) fn tun_of_queue(fd: BorrowedFd<'_>) -> io::Result<(String, c_int)> {
    // SAFETY: all fields are integers, or a pointer that is not followed: zero is a value of each.
    let mut request: libc::ifreq = unsafe { zeroed() };
    device_request(fd, libc::TUNGETIFF, &mut request)?;
    // SAFETY: the request answers in this field of the union, which was zero before.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok((name_in(&request), c_int::from(flags) & 0xffff))
}

/// Returns the network namespace of the TUN or TAP device that a queue belongs to.
///
/// Needs `CAP_NET_ADMIN` in that namespace.
pub(super) fn namespace_of_tun(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the request passes no memory.
    let namespace = check_result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETDEVNETNS) })?;
    // SAFETY: the kernel created this descriptor for the request, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(namespace) })
}

/// Returns the number that identifies the network namespace of a socket.
///
/// # Errors
///
/// If the descriptor is no socket, or the kernel is older than Linux 5.14.
pub fn namespace_of_socket(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let (mut value, mut length): (u64, _) = (0, length_of::<u64>());
    let target = ptr::from_mut(&mut value).cast();
    let (level, option) = (libc::SOL_SOCKET, SO_NETNS_COOKIE);
    // SAFETY: the kernel writes at most `length` bytes to `value`, which is as long.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, target, &raw mut length) };
    check_result(result).map(|_| value)
}

/// The socket option for the network namespace (Linux `asm-generic/socket.h`).
const SO_NETNS_COOKIE: c_int = 71;

/// Returns an option of `SOL_SOCKET` with an integer value.
pub(super) fn socket_option(fd: BorrowedFd<'_>, option: c_int) -> io::Result<c_int> {
    integer_option(fd, libc::SOL_SOCKET, option)
}

/// Sets the length of the virtio header that precedes each frame of a TAP.
pub(super) fn set_tun_header(fd: BorrowedFd<'_>, length: c_int) -> io::Result<()> {
    // SAFETY: the request reads one int, which is borrowed for the call.
    let result =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, ptr::from_ref(&length)) };
    check_result(result).map(drop)
}

/// Sets the offloads (`TUN_F_*`) that the reader of a TAP understands.
pub(super) fn set_tun_offload(fd: BorrowedFd<'_>, offloads: c_uint) -> io::Result<()> {
    // SAFETY: the request takes its argument by value.
    let result =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
    check_result(result).map(drop)
}

/// Sets a socket option; `T` must be the type that the kernel expects.
pub(super) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    let length = length_of::<T>();
    // SAFETY: the kernel reads at most `length` bytes from `value`, which is as long.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, ptr::from_ref(value).cast(), length)
    };
    check_result(result).map(drop)
}

/// Sets a socket option that takes a classic BPF program.
pub(super) fn set_program(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let too_long = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let len = c_ushort::try_from(program.len()).map_err(too_long)?;
    // The kernel only reads the program, and copies it.
    set_option(fd, level, option, &libc::sock_fprog { len, filter: program.as_ptr().cast_mut() })
}

/// Reads an integer option of packet sockets.
pub(super) fn packet_option(fd: BorrowedFd<'_>, option: c_int) -> io::Result<c_int> {
    integer_option(fd, libc::SOL_PACKET, option)
}

/// Reads an integer option of a socket.
fn integer_option(fd: BorrowedFd<'_>, level: c_int, option: c_int) -> io::Result<c_int> {
    let (mut value, mut length): (c_int, _) = (0, length_of::<c_int>());
    let target = ptr::from_mut(&mut value).cast();
    // SAFETY: the kernel writes at most `length` bytes to `value`, which is as long.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, target, &raw mut length) };
    check_result(result).map(|_| value)
}

/// Returns the number of packets that a packet socket dropped since the last call.
pub(super) fn take_packet_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // The fields of `struct tpacket_stats`: received packets and dropped packets.
    let (mut counts, mut length) = ([0u32; 2], length_of::<[u32; 2]>());
    let target = ptr::from_mut(&mut counts).cast();
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: the kernel writes at most `length` bytes to `counts`, which is as long.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, target, &raw mut length) };
    check_result(result).map(|_| counts[1])
}

/// Takes the next frame of the receive queue of a packet socket.
///
/// A frame longer than the buffers is cut off. Returns the number of bytes read; never blocks.
pub(super) fn receive_queued(
    fd: BorrowedFd<'_>,
    virtio_header: &mut [u8; VirtioHeader::ENCODED],
    frame: &mut [u8],
) -> io::Result<usize> {
    let part =
        |part: &mut [u8]| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
    let mut parts = [part(virtio_header), part(frame)];
    // SAFETY: all fields are integers, or pointers that are not followed while their lengths are zero.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    // SAFETY: the kernel writes only to the two buffers, which are borrowed for the call, and not
    // beyond their lengths.
    let read =
        unsafe { libc::recvmsg(fd.as_raw_fd(), ptr::from_mut(&mut message), libc::MSG_DONTWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Binds a packet socket to a device: the socket then receives all protocols.
pub(super) fn bind_packet(fd: BorrowedFd<'_>, device: c_uint) -> io::Result<()> {
    bind_protocol(fd, device, ETH_P_ALL.to_be())
}

/// Binds a packet socket to a device for sending only.
pub(super) fn bind_packet_sender(fd: BorrowedFd<'_>, device: c_uint) -> io::Result<()> {
    bind_protocol(fd, device, 0)
}

/// Binds a packet socket to a device and an `EtherType`.
fn bind_protocol(fd: BorrowedFd<'_>, device: c_uint, protocol: u16) -> io::Result<()> {
    let mut address = no_address();
    address.sll_protocol = protocol;
    address.sll_ifindex = device.cast_signed();
    let length = length_of::<libc::sockaddr_ll>();
    // SAFETY: the kernel reads `length` bytes from `address`, which is as long.
    let result = unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&address).cast(), length) };
    check_result(result).map(drop)
}

/// Returns the device that a packet socket is bound to; `None` if removed.
pub(super) fn bound_device(fd: BorrowedFd<'_>) -> io::Result<Option<c_uint>> {
    let (mut address, mut length) = (no_address(), length_of::<libc::sockaddr_ll>());
    let target = ptr::from_mut(&mut address).cast();
    // SAFETY: the kernel writes at most `length` bytes to `address`, which is as long.
    let result = unsafe { libc::getsockname(fd.as_raw_fd(), target, &raw mut length) };
    check_result(result)
        .map(|_| c_uint::try_from(address.sll_ifindex).ok().filter(|index| *index > 0))
}

/// Creates a socket for requests about devices.
///
/// When a packet socket is closed, the kernel waits for all CPUs. The temporary socket is closed at
/// once.
pub(super) fn request_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Creates a packet socket that receives nothing until it is bound.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Makes a device receive frames for any MAC address while the socket is open.
pub(super) fn make_promiscuous(socket: BorrowedFd<'_>, device: c_uint) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: device.cast_signed(),
        #[expect(clippy::cast_possible_truncation, reason = "1")]
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)
}

const ETH_P_ALL: u16 = 3;

/// Returns a packet socket address without device and protocol.
fn no_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        #[expect(clippy::cast_possible_truncation, reason = "17")]
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Returns the size of a type as a socket length.
pub(super) fn length_of<T>() -> libc::socklen_t {
    const { assert!(size_of::<T>() <= 1024) };
    #[expect(clippy::cast_possible_truncation, reason = "an assertion above bounds the value")]
    {
        size_of::<T>() as libc::socklen_t
    }
}

/// Sends at most [`BURST`] packets with their virtio headers on a packet socket.
///
/// Returns the number of packets sent, at least one.
///
/// # Errors
///
/// If the first packet was not sent.
pub(super) fn send_packets(fd: BorrowedFd<'_>, packets: &[Packet]) -> io::Result<usize> {
    let mut headers = [[0u8; VirtioHeader::ENCODED]; BURST];
    let mut vectors = [[libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2]; BURST];
    // SAFETY: all fields are integers, or pointers that are not followed while their lengths are zero.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { zeroed() };
    let count = packets.len().min(BURST);
    let parts = headers.iter_mut().zip(&mut vectors).zip(&mut messages);
    for (packet, ((header, vector), message)) in packets.iter().zip(parts) {
        *header = packet.virtio.encode();
        let frame = packet.frame();
        // `sendmmsg` only reads the memory of its messages.
        vector[0] =
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VirtioHeader::ENCODED };
        vector[1] =
            libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        message.msg_hdr.msg_iov = vector.as_mut_ptr();
        message.msg_hdr.msg_iovlen = vector.len();
    }
    #[expect(clippy::cast_possible_truncation, reason = "the count is at most BURST")]
    let length = count as c_uint;
    // SAFETY: the first `length` messages point to two vectors each, and the vectors to a header
    // and a frame. All of them live until this function returns.
    let sent = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), length, libc::MSG_DONTWAIT)
    };
    check_result(sent).map(|sent| usize::try_from(sent).unwrap_or(0))
}
