//! A port that uses a network device of the host by packet sockets.
//!
//! The port works with every network device, needs no special driver, and shares the device with
//! the network stack of the host. Received and sent frames have virtio headers (`PACKET_VNET_HDR`),
//! which most TCP packets of a veth need. A burst is sent by one system call.
//!
//! Each packet thread has a socket, and reads several frames from it by one system call. While the
//! port is busy, each thread also has a ring in shared memory, from which it reads without system
//! calls. A ring takes 1 MiB: long frames have no slot, and wait in the receive queue of the
//! socket. An idle port has no ring. Without `CAP_NET_ADMIN` a port always has rings, of 16 MiB
//! each, because the receive queue of a socket would be too short for long frames.
//!
//! The sockets and rings of a port are one fan-out group. A program of the group spreads the flows over the
//! threads, and directs them to the sockets or to the rings (`program`). Both directions of a flow
//! reach the same thread. Each direction stays in order, also while the program is replaced
//! (`switchover`).
//!
//! The kernel removes the outermost VLAN tag from a frame and reports it separately. The port
//! inserts the tag again.
//!
//! After a number of receives without a frame, the queue checks if the device was removed. If a
//! device is only down, the queue keeps waiting for it.
//!
//! A process can inherit the sockets and rings of an earlier process
//! ([`StoredDescriptor`](super::StoredDescriptor)). The later process first reads the frames that
//! arrived meanwhile.
//!
//! Source: packet(7); Linux `Documentation/networking/packet_mmap.rst`.

mod load;
mod message;
mod port;
mod program;
mod queue;
mod ring;
mod rx;
mod socket;
mod sockets;
mod switchover;
mod tx;

pub use port::AfPacket;
pub(super) use tx::PacketTx;
