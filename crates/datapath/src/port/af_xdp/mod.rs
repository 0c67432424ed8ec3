//! Ports of network devices, by AF_XDP sockets.
//!
//! A small XDP program (`program`) redirects the frames of each receive queue of the device to a
//! socket, before the network stack of the host sees them. Kernel and port exchange frames by
//! descriptors in four rings (`ring`), and the frames lie in memory that both share
//! (`frames`). A jumbo frame takes several descriptors (`layout`). Sending a frame costs about two thirds of the time of a packet socket.
//!
//! The device uses the best mode that it offers ([`XdpMode`]). The kernel detaches the program when
//! the daemon ends, even if it is killed. If a service manager keeps program and sockets, the next
//! process continues with them instead (`handover`).
//!
//! AF_XDP does not suit TCP and UDP of hosts on the same machine. The kernel leaves the checksums
//! of their frames to the device, and an XDP program does not see which frames lack a checksum. So
//! these frames leave with wrong checksums.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`, bpf(2).

mod busy_poll;
mod frames;
mod handover;
mod holder;
mod layout;
mod mode;
mod port;
mod program;
mod queues;
mod ring;
mod socket;

pub use mode::XdpMode;
pub use port::AfXdp;
