//! Frames from the receive queue of a packet socket, several with one system call (`recvmmsg`).
//!
//! The length of a frame is known only after the read. So each read has room for a small buffer,
//! followed by the remaining room of a large buffer. A frame is preceded by its virtio header. The
//! VLAN tag that the kernel removed is in a control message (`PACKET_AUXDATA`).
//!
//! Source: packet(7), recvmmsg(2), cmsg(3).
#![expect(unsafe_code, reason = "a system call that fills many buffers")]

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use crate::packet::virtio::VirtioHeader;

/// The memory for a frame: first `front` is filled, then `rest`.
pub(super) struct MessageRoom<'a> {
    /// The memory for the first bytes.
    pub(super) front: &'a mut [u8],
    /// The memory for the bytes after `front`.
    pub(super) rest: &'a mut [u8],
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadMessage {
    /// The virtio header that the kernel wrote before the frame.
    pub(super) virtio_header: [u8; VirtioHeader::ENCODED],
    /// Length of the frame without the removed tag.
    pub(super) length: usize,
    /// The removed tag: its TPID and its TCI.
    pub(super) tag: Option<[u8; 4]>,
    /// True if the frame was longer than its room, or had no virtio header.
    pub(super) is_truncated: bool,
}

/// Number of words for a control message with [`libc::tpacket_auxdata`].
const CONTROL_WORDS: usize = 8;
/// Length of the control data.
#[expect(clippy::cast_possible_truncation, reason = "20")]
const AUXILIARY: libc::c_uint = size_of::<libc::tpacket_auxdata>() as libc::c_uint;
// SAFETY: this only computes a number.
const CONTROL_NEEDED: usize = unsafe { libc::CMSG_SPACE(AUXILIARY) } as usize;
const _: () = assert!(CONTROL_NEEDED <= CONTROL_WORDS * size_of::<u64>());

/// Reads at most `N` frames from a packet socket.
///
/// The socket has `PACKET_VNET_HDR` and `PACKET_AUXDATA` set. The call never blocks. Returns the
/// frames in the order of `rooms`.
///
/// # Errors
///
/// `EAGAIN` if no frame waits, and the error of the socket.
pub(super) fn read_messages<const N: usize>(
    fd: BorrowedFd<'_>,
    rooms: &mut [MessageRoom<'_>],
) -> io::Result<impl Iterator<Item = ReadMessage> + use<N>> {
    let mut headers = [[0u8; VirtioHeader::ENCODED]; N];
    let mut controls = [[0u64; CONTROL_WORDS]; N];
    let mut vectors = [[libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 3]; N];
    // SAFETY: all fields are integers, or pointers that are not followed while their lengths are zero.
    let mut messages: [libc::mmsghdr; N] = unsafe { zeroed() };
    let count = rooms.len().min(N);
    let part =
        |part: &mut [u8]| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
    let parts = headers.iter_mut().zip(&mut controls).zip(&mut vectors).zip(&mut messages);
    for (room, (((header, control), vector), message)) in rooms.iter_mut().zip(parts) {
        *vector = [part(header), part(room.front), part(room.rest)];
        message.msg_hdr.msg_iov = vector.as_mut_ptr();
        message.msg_hdr.msg_iovlen = vector.len();
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = size_of_val(control) as _;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the count is at most N, which is BURST")]
    let length = count as libc::c_uint;
    let target = messages.as_mut_ptr();
    // SAFETY: the first `length` messages each point to three vectors and a control buffer, and the vectors
    // to memory that is borrowed for the call. All vectors have their true lengths.
    let read = unsafe {
        libc::recvmmsg(fd.as_raw_fd(), target, length, libc::MSG_DONTWAIT, ptr::null_mut())
    };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let mut frames = [ReadMessage::default(); N];
    for ((frame, message), header) in frames.iter_mut().zip(&messages).zip(headers).take(read) {
        let length = (message.msg_len as usize).checked_sub(VirtioHeader::ENCODED);
        let is_cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        *frame = ReadMessage {
            virtio_header: header,
            length: length.unwrap_or(0),
            tag: auxiliary(&message.msg_hdr).and_then(|own| removed_tag(&own)),
            is_truncated: is_cut || length.is_none(),
        };
    }
    Ok(frames.into_iter().take(read))
}

/// Returns the auxiliary data of a message.
fn auxiliary(message: &libc::msghdr) -> Option<libc::tpacket_auxdata> {
    // SAFETY: the kernel has set the filled length of the control buffer.
    let control = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null or points to a header in the control buffer, which is aligned and lives as long as
    // the message.
    let control = unsafe { control.as_ref() }?;
    // SAFETY: this only computes a number.
    let length = unsafe { libc::CMSG_LEN(AUXILIARY) };
    let is_auxiliary = control.cmsg_level == libc::SOL_PACKET
        && control.cmsg_type == libc::PACKET_AUXDATA
        && control.cmsg_len as usize >= length as usize;
    if !is_auxiliary {
        return None;
    }
    // SAFETY: the message has a header, so its data follows in the control buffer.
    let data = unsafe { libc::CMSG_DATA(control) };
    // SAFETY: the data has the length of this type, as checked, and any bytes are a value of it.
    Some(unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() })
}

/// Returns the VLAN tag that the kernel has removed from the frame.
fn removed_tag(auxiliary: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    let libc::tpacket_auxdata { tp_status, tp_vlan_tpid, tp_vlan_tci, .. } = *auxiliary;
    tag(tp_status, tp_vlan_tpid, tp_vlan_tci)
}

/// Returns the VLAN tag that the kernel removed from a frame: its TPID and its TCI.
pub(super) fn tag(status: u32, tpid: u16, tci: u16) -> Option<[u8; 4]> {
    /// The tag type of a customer VLAN.
    const TPID_CUSTOMER: u16 = 0x8100;
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_tpid = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tpid = if has_tpid { tpid } else { TPID_CUSTOMER };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    Some([a, b, c, d])
}
