//! The hand-over of an open port to a later process.
//!
//! A service manager keeps the BPF link, the socket of each queue, and the memory of each socket
//! while the daemon restarts. So the program stays attached, and the kernel puts the frames that
//! arrive into the rings of the sockets. The next process maps memory and rings, and continues with
//! the first frame that was not read. Frames that wait to be sent leave with the next process. The
//! packet socket that makes the device promiscuous is kept too.
//!
//! A port uses all of these descriptors or none. Otherwise it detaches the program and opens new
//! sockets, which need the queues of the device. So the store must close its copies first
//! ([`Port::must_discard_stored`](crate::port::Port::must_discard_stored)).

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use tracing::{info, warn};

use super::{
    frames::Umem, layout::FrameLayout, mode::XdpMode, program::XdpLink, socket::XdpSocket,
};
use crate::port::{
    HostDevice,
    stored::{RefusedDescriptor, StoredDescriptor, copy},
    sys,
};

/// The parts of an attached port that a later process can use.
pub(super) struct XdpAttachment {
    /// The names of the descriptors.
    names: StoredNames,
    /// The link that attaches the XDP program to the device.
    link: XdpLink,
    /// The packet socket that keeps the device in promiscuous mode.
    promiscuous: OwnedFd,
    /// The socket and memory of each queue.
    queues: Vec<AttachedQueue>,
    /// True if an earlier process has stored the descriptors.
    is_inherited: bool,
}

/// The socket of a queue, and its memory.
struct AttachedQueue {
    /// The descriptor of the socket.
    socket: Arc<OwnedFd>,
    /// The memory that contains the frames.
    memory: Arc<Umem>,
}

/// The sockets of a port, and the parts of them that a later process can use.
pub(super) type AttachedSockets = (Vec<XdpSocket>, XdpAttachment);

impl XdpAttachment {
    /// Records the descriptors that the port has opened.
    pub(super) fn new(
        names: StoredNames,
        link: XdpLink,
        promiscuous: OwnedFd,
        sockets: &[XdpSocket],
    ) -> Self {
        let queues = sockets.iter().map(|socket| AttachedQueue {
            socket: Arc::clone(&socket.fd),
            memory: Arc::clone(&socket.memory),
        });
        Self { names, link, promiscuous, queues: queues.collect(), is_inherited: false }
    }

    /// Uses the descriptors of an earlier process.
    ///
    /// Returns `None` if one of them cannot be used. The program is then detached.
    pub(super) fn inherit(
        names: StoredNames,
        device: &HostDevice,
        mut stored: Vec<StoredDescriptor>,
    ) -> Option<AttachedSockets> {
        let Some(found) = remove(&mut stored, |name| name.starts_with(&names.links())) else {
            log_refusal(device, &RefusedDescriptor::Missing(names.link()));
            return None;
        };
        let has_mode = found.name == names.link();
        let link = XdpLink::inherit(found.fd);
        if link.device() != Some(device.index) {
            log_refusal(device, &RefusedDescriptor::Device);
            return None;
        }
        let inherited =
            if has_mode { names.sockets(device, stored) } else { Err(RefusedDescriptor::Layout) };
        match inherited {
            Ok((promiscuous, sockets)) => {
                let (device, queues) = (device.name.as_str(), sockets.len());
                info!(
                    queues,
                    "device {device}: the AF_XDP port continues with the sockets that \
                     the earlier process stored"
                );
                let new = Self::new(names, link, promiscuous, &sockets);
                Some((sockets, Self { is_inherited: true, ..new }))
            }
            Err(error) => {
                log_refusal(device, &error);
                if let Err(error) = link.detach() {
                    let device = device.name.as_str();
                    warn!(
                        %error,
                        "device {device}: the XDP program of the earlier process cannot be \
                         detached: remove it with `ip link set {device} xdp off`"
                    );
                }
                None
            }
        }
    }

    /// Returns the sockets, for their counters.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.queues.iter().map(|queue| &queue.socket)
    }

    /// Detaches the program, although copies of its descriptor are stored.
    pub(super) fn detach(&self) {
        // The device may have been removed, and its program with it.
        let _ = self.link.detach();
    }

    /// Returns copies of all descriptors.
    pub(super) fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        let mut stored = Vec::with_capacity(2 + 2 * self.queues.len());
        stored.extend(self.copy(self.names.link(), self.link.fd()));
        stored.extend(self.copy(self.names.promiscuous(), &self.promiscuous));
        for (number, AttachedQueue { socket, memory }) in (0..).zip(&self.queues) {
            stored.extend(self.copy(self.names.socket(number), &**socket));
            stored.extend(self.copy(self.names.memory(number), memory.file()));
        }
        stored
    }

    /// Copies a descriptor for the store under this name.
    fn copy(&self, name: String, fd: &impl AsFd) -> Option<StoredDescriptor> {
        let stored_name = self.is_inherited.then(|| name.clone());
        copy(name, fd, stored_name.as_deref())
    }
}

/// Logs that an inherited descriptor was refused.
fn log_refusal(device: &HostDevice, error: &RefusedDescriptor) {
    let device = device.name.as_str();
    warn!("device {device}: a stored descriptor of AF_XDP is refused: {error}; all are replaced");
}

/// Removes the first descriptor with a name that passes a check from a list.
fn remove(
    stored: &mut Vec<StoredDescriptor>,
    check: impl Fn(&str) -> bool,
) -> Option<StoredDescriptor> {
    let position = stored.iter().position(|own| check(&own.name))?;
    Some(stored.swap_remove(position))
}

/// The names of a port's descriptors in the store.
pub(super) struct StoredNames {
    /// The name of the network device.
    device: String,
    /// The configured mode: a link of another mode is not used.
    mode: XdpMode,
    /// The chunks of a frame.
    layout: FrameLayout,
    /// Number of queues of the device.
    queues: u32,
}

impl StoredNames {
    /// Creates the names for a device with `queues` queues.
    pub(super) fn new(
        device: &HostDevice,
        mode: XdpMode,
        layout: FrameLayout,
        queues: u32,
    ) -> Self {
        Self { device: device.name.as_str().to_owned(), mode, layout, queues }
    }

    /// Returns the common start of the names of links.
    fn links(&self) -> String {
        format!("af_xdp/{}/link/", self.device)
    }

    /// Returns the stored name of the BPF link.
    fn link(&self) -> String {
        format!("{}{}", self.links(), self.mode)
    }

    /// Returns the stored name of the socket that keeps promiscuous mode.
    fn promiscuous(&self) -> String {
        format!("af_xdp/{}/promiscuous", self.device)
    }

    /// Returns the stored name of the socket of a queue.
    fn socket(&self, queue: u32) -> String {
        format!("af_xdp/{}/{queue:04}/socket", self.device)
    }

    /// Returns the stored name of the packet memory of a queue.
    fn memory(&self, queue: u32) -> String {
        format!("af_xdp/{}/{queue:04}/{}", self.device, XdpSocket::memory_name(self.layout))
    }

    /// Continues with the packet socket, and the socket and memory of each queue.
    fn sockets(
        &self,
        device: &HostDevice,
        mut stored: Vec<StoredDescriptor>,
    ) -> Result<(OwnedFd, Vec<XdpSocket>), RefusedDescriptor> {
        let mut take = |name: String| {
            let found = remove(&mut stored, |own| own == name);
            found.map(|found| found.fd).ok_or(RefusedDescriptor::Missing(name))
        };
        let promiscuous = take(self.promiscuous())?;
        let domain = sys::socket_option(promiscuous.as_fd(), libc::SO_DOMAIN);
        if !domain.is_ok_and(|domain| domain == libc::AF_PACKET) {
            return Err(RefusedDescriptor::Kind("a packet socket"));
        }
        let mut sockets = Vec::new();
        for queue in 0..self.queues {
            let (socket, memory) = (take(self.socket(queue))?, take(self.memory(queue))?);
            let socket = XdpSocket::inherit(socket, memory, self.layout)?;
            // Devices of two network namespaces may have the same number.
            let namespace = |fd| sys::namespace_of_socket(fd).ok();
            if namespace(socket.fd.as_fd()) != namespace(device.control.as_fd()) {
                return Err(RefusedDescriptor::Device);
            }
            sockets.push(socket);
        }
        if stored.is_empty() {
            Ok((promiscuous, sockets))
        } else {
            // The device has fewer queues than before.
            Err(RefusedDescriptor::Surplus)
        }
    }
}
