//! A network device of the host, by packet sockets.
//!
//! It works on any device, needs no driver of ours, and shares the device with the host's own
//! stack. Frames are read from a ring in shared memory (no system call per packet) and sent by one
//! system call per burst. Both directions carry virtio headers (`PACKET_VNET_HDR`): on a veth, most
//! TCP packets need them.
//!
//! The kernel removes the outermost VLAN tag from a frame and reports it separately. The port
//! inserts the tag again.
//!
//! Each packet thread has a socket with its own ring. With several threads the kernel spreads the
//! flows over the sockets (`PACKET_FANOUT_HASH`). Both directions of a flow reach the same thread,
//! each in order. A ring takes 1 MiB: long
//! frames have no slot, and take memory only while they wait. Without `CAP_NET_ADMIN` it takes 16 MiB.
//!
//! After a number of empty receives, the queue checks whether the device was removed. It waits for
//! a device that is only down.
//!
//! A process can inherit the sockets of an earlier one with their rings
//! ([`StoredDescriptor`](super::StoredDescriptor)). It first reads the frames that arrived meanwhile.
//!
//! Source: packet(7); Linux `Documentation/networking/packet_mmap.rst`.

mod port;
mod ring;

pub use port::AfPacket;
pub(super) use port::PacketTx;
