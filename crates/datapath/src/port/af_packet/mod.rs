//! A network device of the host, by packet sockets.
//!
//! It works on any device, needs no driver of ours, and shares the device with the host's own stack.
//! Frames are read from a ring in shared memory (no system call per packet) and sent by one system
//! call per burst. Both directions carry the descriptor of what is still to be done to a packet
//! (`PACKET_VNET_HDR`): on a veth that is most TCP packets.
//!
//! The kernel takes the outermost VLAN tag out of a frame and tells it beside; it is put back here.
//!
//! Each packet thread has a socket of its own, with a ring of its own. With several threads the
//! kernel deals the flows among the sockets (`PACKET_FANOUT_HASH`), both directions of a flow to the
//! same thread, each flow in order. A ring costs 16 MiB of kernel memory.
//!
//! The queue notices a device that was removed when it has found nothing for a while; a device that
//! is merely down is waited for.
//!
//! Source: packet(7); Linux `Documentation/networking/packet_mmap.rst`.

mod port;
mod ring;

pub use port::AfPacket;
