//! The port [`AfXdp`].

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use nix::errno::Errno;
use tracing::{info, warn};

use super::{
    busy_poll::{NapiTrigger, set_busy_poll},
    frames::Receiver,
    handover::{AttachedSockets, StoredNames, XdpAttachment},
    holder::attached_program,
    layout::{FrameLayout, HEADER_MAX},
    mode::XdpMode,
    program::XdpProgram,
    queues::{XdpRx, XdpTx},
    socket::{DeviceQueue, XdpSocket, refuse_busy_poll, statistics},
};
use crate::port::{
    AssignedRxQueue, Capabilities, DeviceLosses, DeviceReading, DeviceWork, FirstThread,
    HostDevice, HostDeviceSetting, MtuRefusal, MtuRefusalReason, Port, PortCopies, PortCounters,
    PortError, QueueCopies, Queues, RxQueue, SplitQueues, StoredDescriptor, TxQueue,
    af_packet::PacketTx,
    claim::{DeviceClaim, refuse_member},
    device_loss::DeviceLoss,
    ethtool,
    host_device::{refuse_other_link, try_mtu},
    sys::{self, DeviceName},
};

/// The capabilities that an AF_XDP socket needs, for error messages.
const NEEDS: &str = "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";

/// The transmit queues of a port, by packet thread.
type ThreadTxQueues = Vec<Box<dyn TxQueue>>;

/// A network device of the host, by AF_XDP sockets.
pub struct AfXdp {
    /// The device; its socket keeps the device in promiscuous mode.
    device: HostDevice,
    /// The MAC address of the port.
    mac: [u8; 6],
    /// The XDP mode: by the driver or by the kernel.
    mode: XdpMode,
    /// Time of a busy poll in microseconds; 0: the device interrupts.
    busy_poll_us: u32,
    /// The chunks that hold a frame of the MTU.
    layout: FrameLayout,
    /// The last layout that the kernel supports.
    largest: FrameLayout,
    /// The claim that keeps other processes from using the device as a port.
    _claim: DeviceClaim,
    /// Longest frame that the device sends, updated with the MTU.
    frame_max: Arc<AtomicU32>,
    /// The sockets of an earlier process, until the queues are created.
    inherited: Option<AttachedSockets>,
    /// True if descriptors of an earlier process are refused, and may still be stored.
    has_refused: bool,
    /// The sockets of the queues, and the program that redirects to them.
    attached: Option<XdpAttachment>,
    /// The copies of the queues.
    copies: QueueCopies,
    /// The packets that the kernel counts as dropped at the device.
    loss: DeviceLoss,
}

impl AfXdp {
    /// The largest MTU of any kernel.
    pub const MTU_MAX: u32 = FrameLayout::Chain.mtu_max();
    /// The largest MTU of kernels and devices without frames of several chunks.
    pub const SINGLE_MTU_MAX: u32 = FrameLayout::Large.mtu_max();

    /// Returns the largest MTU that this kernel supports.
    #[must_use]
    pub fn mtu_max() -> u32 {
        FrameLayout::largest().mtu_max()
    }

    /// Returns the reason why the buffers are too small for an MTU; `None` if they fit.
    fn exceeded_by(&self, mtu: u32) -> Option<String> {
        match layout_of(&self.device.name, mtu, self.largest) {
            Ok(layout) if layout <= self.layout => None,
            Ok(_) => Some(format!("the MTU of {} was raised to {mtu}", self.device.name.as_str())),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Opens the device of this name, and sets its MTU if one is given.
    ///
    /// If the device refuses the MTU, or the MTU exceeds [`Self::mtu_max`], the device keeps its
    /// own MTU. If `busy_poll_us` is not 0, the packet threads run the receive queues of the device.
    /// The port uses the sockets that an earlier process stored.
    ///
    /// # Errors
    ///
    /// If there is no such Ethernet device, if another port uses it, if its own MTU is too large
    /// for AF_XDP, or if the daemon lacks a capability. The error is also returned if the kernel
    /// has no busy polling.
    pub fn open(
        device: &str,
        mtu: Option<u32>,
        mode: XdpMode,
        busy_poll_us: u32,
        inherited: Vec<StoredDescriptor>,
    ) -> Result<Self, PortError> {
        let name = DeviceName::new(device)?;
        let failed = |source| PortError::device("open", name.as_str(), NEEDS, source);
        let control = sys::packet_socket().map_err(failed)?;
        refuse_busy_poll(busy_poll_us).map_err(|refusal| refusal.of_port(name.as_str(), NEEDS))?;
        let index = sys::device_index(control.as_fd(), &name).map_err(failed)?;
        let mac = sys::hardware_address(control.as_fd(), &name).map_err(failed)?;
        refuse_other_link(control.as_fd(), &name)?;
        refuse_member(&name, index)?;
        // Packet sockets and AF_XDP would both receive the frames.
        let claim = DeviceClaim::take("af_packet", &name, index)?;
        let largest = FrameLayout::largest();
        let mtu_refusal = mtu
            .and_then(|mtu| excess(&name, mtu, largest.mtu_max()))
            .or_else(|| try_mtu(control.as_fd(), &name, mtu));
        sys::make_promiscuous(control.as_fd(), index).map_err(failed)?;
        let mtu = sys::mtu(control.as_fd(), &name).map_err(failed)?;
        let layout = layout_of(&name, mtu, largest)?;
        let frame_max = Arc::new(AtomicU32::new(mtu + HEADER_MAX));
        let device = HostDevice::new(control, name, index).with_mtu_refusal(mtu_refusal);
        let mut port = Self {
            device,
            mac,
            mode,
            busy_poll_us,
            layout,
            largest,
            _claim: claim,
            frame_max,
            inherited: None,
            has_refused: false,
            attached: None,
            copies: QueueCopies::default(),
            loss: DeviceLoss::of_received(index),
        };
        if !inherited.is_empty() {
            let names = port.stored_names(port.queue_count());
            port.inherited = XdpAttachment::inherit(names, &port.device, inherited);
            port.has_refused = port.inherited.is_none();
        }
        Ok(port)
    }

    /// Returns the number of receive queues of the device.
    fn queue_count(&self) -> u32 {
        ethtool::rx_queues(self.device.control.as_fd(), &self.device.name).unwrap_or(1).max(1)
    }

    /// Returns the names under which the descriptors are stored.
    fn stored_names(&self, queues: u32) -> StoredNames {
        StoredNames::new(&self.device, self.mode, self.layout, queues)
    }

    /// Attaches the program and opens the sockets.
    fn attach_new(&self) -> Result<AttachedSockets, PortError> {
        let queues = self.queue_count();
        let (sockets, program, mode) = self.attach_best(queues)?;
        let device = self.device.name.as_str();
        info!(%mode, queues, "device {device}: AF_XDP port attached");
        let promiscuous = self.device.control.try_clone().map_err(|error| self.refused(error))?;
        let (names, link) = (self.stored_names(queues), program.into_link());
        let attachment = XdpAttachment::new(names, link, promiscuous, &sockets);
        Ok((sockets, attachment))
    }

    /// Attaches the XDP program to the device, and opens its queues.
    ///
    /// Returns its receivers by queue, and its transmit queues by thread.
    fn open_queues(&mut self, threads: u16) -> Result<(Vec<Receiver>, ThreadTxQueues), PortError> {
        if self.attached.is_some() {
            return Err(PortError::AlreadySplit { name: self.device.name.as_str().to_owned() });
        }
        let (sockets, attachment) = match self.inherited.take() {
            Some(inherited) => inherited,
            None => self.attach_new()?,
        };
        for socket in &sockets {
            set_busy_poll(socket.fd.as_fd(), self.busy_poll_us)
                .map_err(|refusal| refusal.of_port(self.device.name.as_str(), NEEDS))?;
        }
        self.warn_of_veth();
        let (mut receivers, mut tx) = (Vec::with_capacity(sockets.len()), Vec::new());
        for XdpSocket { receiver, sender, .. } in sockets {
            receivers.push(receiver);
            // Thread `n` sends by queue `n`.
            if tx.len() < usize::from(threads) {
                let frame_max = Arc::clone(&self.frame_max);
                let copies = self.copies.add_tx();
                let queue: Box<dyn TxQueue> = Box::new(XdpTx::new(sender, frame_max, copies));
                tx.push(queue);
            }
        }
        // If there are more threads than queues, the other threads send by packet sockets.
        while tx.len() < usize::from(threads) {
            let queue = PacketTx::open(self.device.index).map_err(|error| self.failed(error))?;
            tx.push(Box::new(queue));
        }
        self.attached = Some(attachment);
        Ok((receivers, tx))
    }

    /// Creates a receive queue of several receivers.
    fn rx_queue(&mut self, receivers: Vec<Receiver>) -> Result<Box<dyn RxQueue>, PortError> {
        let name = self.device.name.as_str().to_owned();
        let trigger = NapiTrigger::of(self.busy_poll_us);
        let queue = XdpRx::new(receivers, trigger, name, self.copies.add_rx());
        let queue = queue.map_err(|error| self.failed(error))?;
        Ok(Box::new(queue))
    }

    /// Returns the error of a device from which no frames can be received.
    fn failed(&self, source: io::Error) -> PortError {
        PortError::device("receive from", self.device.name.as_str(), NEEDS, source)
    }

    /// Warns of a veth device, on which checksums are wrong.
    fn warn_of_veth(&self) {
        let name = self.device.name.as_str();
        let is_veth = ethtool::driver(self.device.control.as_fd(), &self.device.name)
            .is_ok_and(|driver| driver.name == "veth");
        if is_veth {
            warn!(
                "device {name}: AF_XDP does not see the checksum state of a veth device: TCP and UDP \
                 of hosts on this machine need `ethtool -K PEER tx off` at the other end, or type \
                 af_packet"
            );
        }
    }

    /// Attaches the program and opens a socket for each receive queue, in one mode.
    ///
    /// `attached` is the program of an earlier attempt. The program stays attached if the mode
    /// attaches it to the same place, since each attachment stops a veth device for 10 to 15 ms.
    /// After an error, `attached` has the program that is attached.
    fn attach(
        &self,
        queues: u32,
        mode: XdpMode,
        attached: &mut Option<XdpProgram>,
    ) -> io::Result<(Vec<XdpSocket>, XdpProgram)> {
        let same = attached.take_if(|own| own.kind() == mode.attachment());
        attached.take().iter().for_each(XdpProgram::detach);
        let attach =
            || XdpProgram::attach(self.device.index, queues, mode.attachment(), self.layout);
        let program = same.map_or_else(attach, Ok)?;
        match self.open_sockets(queues, mode, &program) {
            Ok(sockets) => Ok((sockets, program)),
            Err(error) => {
                *attached = Some(program);
                Err(error)
            }
        }
    }

    /// Opens a socket for each receive queue, and adds the sockets to the program.
    fn open_sockets(
        &self,
        queues: u32,
        mode: XdpMode,
        program: &XdpProgram,
    ) -> io::Result<Vec<XdpSocket>> {
        let mut sockets = Vec::new();
        for queue in 0..queues {
            let socket = XdpSocket::open(
                DeviceQueue { device: self.device.index, queue },
                self.layout,
                mode.transfer(),
            )?;
            program.redirect(queue, socket.fd.as_fd())?;
            sockets.push(socket);
        }
        Ok(sockets)
    }

    /// Attaches in the best mode that the device supports; also returns the mode.
    fn attach_best(&self, queues: u32) -> Result<(Vec<XdpSocket>, XdpProgram, XdpMode), PortError> {
        let (candidates, mut attached) = (self.mode.candidates(), None);
        for (position, mode) in candidates.iter().enumerate() {
            match self.attach(queues, *mode, &mut attached) {
                Ok((sockets, program)) => return Ok((sockets, program, *mode)),
                Err(error) if is_unsupported(&error) && position + 1 < candidates.len() => {}
                Err(error) => {
                    // The causes of an error are read without the program of this port.
                    drop(attached);
                    return Err(if is_unsupported(&error) && candidates.len() == 1 {
                        self.unsupported(queues, *mode)
                    } else if is_unsupported(&error) && self.layout == FrameLayout::Chain {
                        self.refused_chains()
                    } else {
                        self.refused(error)
                    });
                }
            }
        }
        Err(self.refused(io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
    }

    /// Returns the error of an unsupported mode, with the supported modes.
    fn unsupported(&self, queues: u32, mode: XdpMode) -> PortError {
        let others = XdpMode::BestEffort.candidates().iter().filter(|other| **other != mode);
        let working = others.filter(|other| self.attach(queues, **other, &mut None).is_ok());
        let mut works: Vec<_> = working.map(|other| other.name()).collect();
        works.push(XdpMode::BestEffort.name());
        PortError::XdpMode {
            name: self.device.name.as_str().to_owned(),
            driver: ethtool::driver(self.device.control.as_fd(), &self.device.name)
                .map_or_else(|_| "unknown".to_owned(), |driver| driver.name),
            mode: mode.name(),
            works: works.join(" or "),
        }
    }

    /// Returns the error of a device that supports no frames of several chunks.
    fn refused_chains(&self) -> PortError {
        PortError::MtuTooLarge {
            name: self.device.name.as_str().to_owned(),
            mtu: self.device.mtu().unwrap_or(Self::MTU_MAX),
            max: Self::SINGLE_MTU_MAX,
        }
    }

    /// Converts an error of attaching into a [`PortError`] that says how to mend it.
    fn refused(&self, error: io::Error) -> PortError {
        let name = self.device.name.as_str();
        let is_held = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        match attached_program(self.device.index).filter(|_| is_held) {
            Some(program) => PortError::XdpAttached { name: name.to_owned(), program },
            None if error.raw_os_error() == Some(libc::ENOBUFS) => {
                PortError::LockedMemory { name: name.to_owned() }
            }
            None => PortError::device("attach an XDP program to", name, NEEDS, error),
        }
    }
}

/// Returns the layout for the frames of a device.
///
/// # Errors
///
/// If even the largest layout is too small.
fn layout_of(
    device: &DeviceName,
    mtu: u32,
    largest: FrameLayout,
) -> Result<FrameLayout, PortError> {
    FrameLayout::of_mtu(mtu, largest).ok_or_else(|| PortError::MtuTooLarge {
        name: device.as_str().to_owned(),
        mtu,
        max: largest.mtu_max(),
    })
}

/// Refuses an MTU above `max`; `None` if a port can have it.
///
/// The configuration is refused if no kernel supports the MTU. But an earlier version saved such an
/// MTU in its state file, and the kernel may support less.
fn excess(device: &DeviceName, mtu: u32, max: u32) -> Option<MtuRefusal> {
    if mtu <= max {
        return None;
    }
    let name = device.as_str();
    warn!(
        "device {name}: mtu {mtu} has no effect: an af_xdp port takes at most {max}: lower it, or use \
         type af_packet"
    );
    Some(MtuRefusal { mtu, reason: MtuRefusalReason::PortType { max } })
}

/// Returns whether the error means an unsupported mode, so that another may work.
fn is_unsupported(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS | Errno::ERANGE))
}

impl Port for AfXdp {
    fn capabilities(&self) -> Capabilities {
        let frame_max = self.layout.frame_max() as usize;
        let can_wait = NapiTrigger::of(self.busy_poll_us) == NapiTrigger::Interrupt;
        Capabilities { frame_max, can_wait, ..Capabilities::WIRE }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let (receivers, tx) = self.open_queues(threads)?;
        let mut parts: Vec<Vec<Receiver>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, receiver) in receivers.into_iter().enumerate() {
            // Thread `n` has the queues `n`, `n + threads` ..
            if let Some(part) = parts.get_mut(number % usize::from(threads)) {
                part.push(receiver);
            }
        }
        let mut queues = Vec::with_capacity(parts.len());
        for (receivers, tx) in parts.into_iter().zip(tx) {
            let rx = if receivers.is_empty() { None } else { Some(self.rx_queue(receivers)?) };
            queues.push(Queues { rx, tx });
        }
        Ok(queues)
    }

    fn split_by_queue(&mut self, threads: u16) -> Result<SplitQueues, PortError> {
        let (receivers, tx) = self.open_queues(threads)?;
        let mut rx = Vec::with_capacity(receivers.len());
        for receiver in receivers {
            let queue = self.rx_queue(vec![receiver])?;
            rx.push(AssignedRxQueue { first: FirstThread::LeastLoaded, queue });
        }
        Ok(SplitQueues { rx, tx })
    }

    fn link_up(&self) -> bool {
        self.device.link_up()
    }

    fn host_device(&self) -> Option<&HostDevice> {
        Some(&self.device)
    }

    fn lost(&self) -> Option<String> {
        self.device.lost().or_else(|| self.exceeded_by(self.device.mtu()?))
    }

    fn lost_by(&self, reading: &DeviceReading) -> Option<String> {
        reading.lost.clone().or_else(|| self.exceeded_by(reading.state?.mtu))
    }

    fn mtu(&self) -> Option<u32> {
        let mtu = self.device.mtu()?;
        self.frame_max.store(mtu.saturating_add(HEADER_MAX), Relaxed);
        Some(mtu)
    }

    fn change_device(&self, setting: HostDeviceSetting) -> Option<DeviceWork> {
        // The buffers fit the MTU, so the MTU cannot change while the port is open.
        let is_possible = !matches!(setting, HostDeviceSetting::Mtu(_));
        is_possible.then(|| self.device.change_work(setting))?
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        let mut counters = PortCounters::default();
        for socket in self.attached.iter().flat_map(XdpAttachment::sockets) {
            let Ok(statistics) = statistics(socket.as_fd()) else { continue };
            counters.rx_dropped += statistics.rx_dropped + statistics.rx_ring_full;
            counters.tx_dropped += statistics.tx_invalid_descs;
        }
        counters
    }

    fn copies(&self) -> PortCopies {
        self.copies.total()
    }

    fn driver_counters(&self) -> Vec<(String, u64)> {
        // Some drivers, such as veth, also count frames that a socket refused. `counters` has these,
        // too. So the two counts must not be added.
        self.loss.driver_counters()
    }

    fn note_losses(&self, losses: &DeviceLosses) {
        self.loss.note(losses.find(self.device.index));
    }

    fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        self.attached.as_ref().map_or_else(Vec::new, XdpAttachment::stored_descriptors)
    }

    fn must_discard_stored(&self) -> bool {
        self.has_refused
    }

    fn release_device(&self) {
        self.attached.iter().for_each(XdpAttachment::detach);
    }
}

#[cfg(test)]
mod tests;
