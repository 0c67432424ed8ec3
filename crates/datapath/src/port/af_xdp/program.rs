//! The XDP program that redirects received frames to the sockets of a port.
//!
//! The program has five instructions, which are constants in this module, so no compiler and no
//! library for eBPF is needed. The program is attached by a BPF link, which the kernel removes with
//! its last descriptor. So the program is detached even if the daemon is killed, unless a service
//! manager keeps a copy of the descriptor for the next process.
//!
//! Source: bpf(2), Linux `include/uapi/linux/bpf.h`.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper in libc or nix")]

use std::{
    ffi::{c_int, c_long, c_uint},
    io,
    os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::layout::FrameLayout;

/// The place at which the program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment {
    /// In the driver of the device, before the kernel allocates a packet.
    Driver,
    /// The program runs in the network stack, for any device.
    Generic,
}

impl Attachment {
    /// Returns `XDP_FLAGS_SKB_MODE` or `XDP_FLAGS_DRV_MODE`.
    const fn flag(self) -> u32 {
        match self {
            Self::Generic => 1 << 1,
            Self::Driver => 1 << 2,
        }
    }
}

/// An attached program, and its map from receive queues to sockets.
pub(super) struct XdpProgram {
    /// The map from receive queues to sockets.
    map: OwnedFd,
    /// The link that keeps the program attached.
    link: XdpLink,
    /// The place at which the program is attached.
    kind: Attachment,
}

/// The BPF link of a program, which keeps the program attached.
///
/// The program keeps its map, with the sockets in it.
pub(super) struct XdpLink(OwnedFd);

// Commands of bpf(2).
const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const PROG_GET_FD_BY_ID: c_int = 13;
const OBJ_GET_INFO_BY_FD: c_int = 15;
const LINK_CREATE: c_int = 28;
const LINK_DETACH: c_int = 34;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// Attach type of XDP programs.
const BPF_XDP: u32 = 37;
/// Flag of programs that take frames of several buffers (`BPF_F_XDP_HAS_FRAGS`).
const HAS_FRAGMENTS: u32 = 1 << 5;
/// Type of the links of XDP programs.
const LINK_TYPE_XDP: u32 = 6;
/// The name of the program in the kernel (`bpftool prog`), at most 15 bytes.
const NAME: [u8; 16] = *b"shunt_redirect\0\0";

/// The first attributes of `BPF_PROG_LOAD`, up to the last one that is used.
#[repr(C)]
struct ProgLoad {
    /// The type of the program.
    prog_type: u32,
    /// Number of instructions of the program.
    insn_cnt: u32,
    /// Address of the instructions.
    insns: u64,
    /// Address of the licence text.
    license: u64,
    /// Detail of the verifier log.
    log_level: u32,
    /// Size of the log buffer in bytes.
    log_size: u32,
    /// Address of the log buffer.
    log_buf: u64,
    /// The kernel version, which the kernel ignores today.
    kern_version: u32,
    /// The flags of the program.
    prog_flags: u32,
    /// The name of the program.
    prog_name: [u8; 16],
    /// Interface index for hardware offload; zero for none.
    prog_ifindex: u32,
    /// The hook to which the program will be attached.
    expected_attach_type: u32,
}

/// The attributes of `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapUpdate {
    /// The descriptor of the map.
    map_fd: u32,
    /// Padding of the kernel structure.
    padding: u32,
    /// Address of the key.
    key: u64,
    /// Address of the value.
    value: u64,
    /// The flags of the update.
    flags: u64,
}

/// The attributes of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct ObjectInfo {
    /// The descriptor of the object.
    fd: u32,
    /// Length of the output buffer in bytes.
    length: u32,
    /// Address of the output buffer.
    info: u64,
}

/// Calls bpf(2).
///
/// # Safety
///
/// `T` must be the attributes of the command, and each address in them must be valid for the call.
unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> io::Result<c_int> {
    // SAFETY: the kernel reads and writes at most the size of the attributes; the caller guarantees
    // the addresses in them.
    let result: c_long = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    c_int::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(io::Error::last_os_error)
}

/// Calls a command of bpf(2) that returns a new descriptor.
///
/// # Safety
///
/// See [`bpf`].
unsafe fn bpf_fd<T>(command: c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees what `bpf` requires.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the command returned a new descriptor, which has no other owner. It is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a descriptor as the kernel's BPF interface takes it.
fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Returns the flags of the program: a large MTU requires fragments.
const fn program_flags(layout: FrameLayout) -> u32 {
    match layout {
        FrameLayout::Small | FrameLayout::Large => 0,
        FrameLayout::Chain => HAS_FRAGMENTS,
    }
}

/// Returns an instruction of eBPF.
const fn instruction(
    operation: u8,
    destination: u8,
    source: u8,
    offset: u8,
    immediate: i32,
) -> u64 {
    let [a, b, c, d] = immediate.to_le_bytes();
    u64::from_le_bytes([operation, destination | source << 4, offset, 0, a, b, c, d])
}

impl XdpProgram {
    /// Loads the program and attaches it to a device with `queues` receive queues.
    ///
    /// Frames of receive queues without a socket go to the network stack of the host.
    ///
    /// # Errors
    ///
    /// `EBUSY` or `EEXIST` if the device has another program, `EOPNOTSUPP` if its driver does not
    /// support this attachment. Drivers also return `EINVAL` and `ERANGE` if the MTU is too large.
    pub(super) fn attach(
        device: c_uint,
        queues: u32,
        kind: Attachment,
        layout: FrameLayout,
    ) -> io::Result<Self> {
        let (key_size, value_size) = (4u32, 4u32);
        let mut attributes = [MAP_TYPE_XSKMAP, key_size, value_size, queues, 0];
        // SAFETY: these are the attributes of the command, and no field is an address.
        let map = unsafe { bpf_fd(MAP_CREATE, &mut attributes) }?;
        let rx_queue_index = 16;
        let xdp_pass = 2;
        let redirect_map = 51;
        let program = [
            // r2 = context.rx_queue_index
            instruction(0x61, 2, 1, rx_queue_index, 0),
            // r1 = map, in two instructions
            instruction(0x18, 1, 1, 0, map.as_raw_fd()),
            0,
            // r3 = the result without a socket
            instruction(0xb7, 3, 0, 0, xdp_pass),
            // return bpf_redirect_map(r1, r2, r3)
            instruction(0x85, 0, 0, 0, redirect_map),
            instruction(0x95, 0, 0, 0, 0),
        ];
        let mut attributes = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            #[expect(clippy::cast_possible_truncation, reason = "6")]
            insn_cnt: program.len() as u32,
            insns: program.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log_buf: 0,
            kern_version: 0,
            prog_flags: program_flags(layout),
            prog_name: NAME,
            prog_ifindex: 0,
            expected_attach_type: BPF_XDP,
        };
        // SAFETY: these are the attributes of the command; the program and the license live until
        // it returns.
        let loaded = unsafe { bpf_fd(PROG_LOAD, &mut attributes) }?;
        let mut attributes = [number(loaded.as_fd()), device, BPF_XDP, kind.flag()];
        // SAFETY: these are the attributes of the command, and no field is an address.
        let link = unsafe { bpf_fd(LINK_CREATE, &mut attributes) }?;
        Ok(Self { map, link: XdpLink(link), kind })
    }

    /// Detaches the program although copies of its descriptor are open.
    ///
    /// A child process has copies until it executes its program.
    pub(super) fn detach(&self) {
        // The device may have been removed, and its program with it.
        let _ = self.link.detach();
    }

    /// Returns the place at which the program is attached.
    pub(super) const fn kind(&self) -> Attachment {
        self.kind
    }

    /// Redirects the frames of a receive queue to a bound socket.
    pub(super) fn redirect(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = number(socket);
        let mut attributes = MapUpdate {
            map_fd: number(self.map.as_fd()),
            padding: 0,
            key: &raw const queue as u64,
            value: &raw const socket as u64,
            flags: 0,
        };
        // SAFETY: these are the attributes of the command; key and value live until it returns, and
        // have the sizes of the map.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }

    /// Returns the number of the link in the kernel.
    #[cfg(test)]
    pub(super) fn link_id(&self) -> Option<u32> {
        let info = object_info(self.link.0.as_fd()).ok()?;
        // Offset of `id` in `struct bpf_link_info`.
        info.get(4..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// Returns the link, when all sockets are in the map.
    pub(super) fn into_link(self) -> XdpLink {
        self.link
    }
}

impl XdpLink {
    /// Takes the link that an earlier process stored.
    pub(super) const fn inherit(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Returns the device to which the program is attached.
    ///
    /// `None` for a device that was removed, and for a descriptor that is no link of an XDP program.
    pub(super) fn device(&self) -> Option<c_uint> {
        let info = object_info(self.0.as_fd()).ok()?;
        // Offsets of `type` and `xdp.ifindex` in `struct bpf_link_info`.
        let word = |offset: usize| {
            info.get(offset..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
        };
        let device = word(16)?;
        (word(0)? == LINK_TYPE_XDP && device != 0).then_some(device)
    }

    /// Detaches the program although copies of the descriptor are open.
    pub(super) fn detach(&self) -> io::Result<()> {
        let mut attributes = [number(self.0.as_fd())];
        // SAFETY: these are the attributes of the command, and no field is an address.
        unsafe { bpf(LINK_DETACH, &mut attributes) }.map(drop)
    }

    /// Returns the file descriptor of the attachment.
    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// Returns the name of a loaded program, if the kernel shows it.
pub(super) fn program_name(id: u32) -> Option<String> {
    let mut attributes = [id, 0, 0];
    // SAFETY: these are the attributes of the command, and no field is an address.
    let program = unsafe { bpf_fd(PROG_GET_FD_BY_ID, &mut attributes) }.ok()?;
    let info = object_info(program.as_fd()).ok()?;
    // Offset of `name` in `struct bpf_prog_info`.
    let name = info.get(64..80)?;
    let name: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// Returns the first bytes of the kernel's description of a program or link.
fn object_info(object: BorrowedFd<'_>) -> io::Result<[u8; 128]> {
    let mut info = [0u8; 128];
    let mut attributes =
        ObjectInfo { fd: number(object), length: 128, info: info.as_mut_ptr() as u64 };
    // SAFETY: these are the attributes of the command; the kernel writes at most `length` bytes to
    // `info`.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }.map(|_| info)
}
