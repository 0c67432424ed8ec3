//! Representors: ports of the switch that represent ports of the NIC, added while the NIC runs.
//!
//! The thread of the NIC owns the queues of the port. The switch owns the representor of the port, which
//! carries the packets that miss in the NIC and the packets that the switch sends. The link state, the
//! address and the counters of the representor belong to the port. If the port fails or the thread
//! ends, the representor fails as well. Closing the representor removes the port from the NIC.

use std::{io, sync::Arc};

use shunt_datapath::{
    Packet, Pool, PortError, RxQueue,
    port::{
        Capabilities, DeviceLosses, DeviceReader, DeviceReading, DeviceWork, DriverInfo,
        HostDeviceSetting, HostDeviceState, LinkMode, Port, PortCopies, PortCounters, PortWork,
        Queues, RxReport,
        pair::{Pair, pair},
    },
};
use shunt_pipeline::Time;

use crate::{
    commands::CommandQueue,
    counters::NicPortLosses,
    ports::{
        doorbell::{Connected, add_doorbells},
        flow_order::FlowOrder,
        open_port::{OpenPort, PortSide},
    },
    thread::NicThread,
};

/// A handle that adds ports to a running NIC.
///
/// The NIC forwards while one of these handles or one of the added ports exists. After its server
/// has stopped, the NIC has no rules.
#[derive(Clone, Debug)]
pub struct NicPorts {
    pub(crate) thread: Arc<NicThread>,
}

/// The representor of a port, which the switch uses as a port.
struct Representor {
    nic: NicPorts,
    number: u16,
    device: Box<dyn Port>,
    seed: u64,
    losses: Arc<NicPortLosses>,
    is_added: bool,
    /// The ends of NIC and switch, which count copies; `None` before the split.
    ends: Option<(Pair, Pair)>,
}

impl NicPorts {
    /// Returns the representor of a port that is added to the NIC with this number.
    ///
    /// The port is added when the representor is split into queues. `seed` is the seed of the hash
    /// that selects the queue of a packet between port and representor. The NIC counts the packets
    /// that it loses at the port in `losses`.
    #[must_use]
    pub fn represent(
        &self,
        number: u16,
        port: Box<dyn Port>,
        seed: u64,
        losses: Arc<NicPortLosses>,
    ) -> Box<dyn Port> {
        let nic = self.clone();
        let (device, is_added, ends) = (port, false, None);
        Box::new(Representor { nic, number, device, seed, losses, is_added, ends })
    }

    /// Returns the commands for the thread of the NIC.
    fn commands(&self) -> &CommandQueue {
        self.thread.commands()
    }
}

impl Representor {
    /// Returns the name of the port in messages: its number on the NIC.
    fn name(&self) -> String {
        format!("port {} of the NIC", self.number)
    }

    /// Returns the error of a representor that cannot be used.
    fn failed(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PortError {
        PortError::System { doing: "add", name: self.name(), source: io::Error::other(source) }
    }
}

impl Port for Representor {
    fn capabilities(&self) -> Capabilities {
        Capabilities { can_wait: true, ..self.device.capabilities() }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let port = PortSide::of(self.device.split(1)?, self.device.capabilities());
        let (mut nic_end, mut switch_end) = pair(threads, self.seed);
        let inside = nic_end.capabilities();
        let connected = add_doorbells(nic_end.split(threads)?, switch_end.split(threads)?);
        self.ends = Some((nic_end, switch_end));
        let Connected { near, far, progress } = connected.map_err(|error| self.failed(error))?;
        let representor = Some(PortSide::of(near, inside));
        let order = Some(FlowOrder::new(progress));
        let opened = OpenPort { port, representor, order, losses: Arc::clone(&self.losses) };
        let added = self.nic.commands().add(self.number, Box::new(opened));
        added.map_err(|error| self.failed(error))?;
        self.is_added = true;
        let representor_rx = |queues: Queues| {
            let wrap = |inner| -> Box<dyn RxQueue> {
                Box::new(RepresentorRx { inner, name: self.name() })
            };
            Queues { rx: queues.rx.map(wrap), ..queues }
        };
        Ok(far.into_iter().map(representor_rx).collect())
    }

    fn link_up(&self) -> bool {
        self.device.link_up()
    }

    fn lost(&self) -> Option<String> {
        self.device.lost()
    }

    fn lost_by(&self, reading: &DeviceReading) -> Option<String> {
        self.device.lost_by(reading)
    }

    fn device_reader(&self) -> Option<DeviceReader> {
        self.device.device_reader()
    }

    fn remove_device(&self) -> Result<(), PortError> {
        self.device.remove_device()
    }

    fn change_device(&self, setting: HostDeviceSetting) -> Option<DeviceWork> {
        self.device.change_device(setting)
    }

    fn device_state(&self) -> Option<HostDeviceState> {
        self.device.device_state()
    }

    fn link_mode(&self) -> LinkMode {
        self.device.link_mode()
    }

    fn driver(&self) -> Option<&Arc<DriverInfo>> {
        self.device.driver()
    }

    fn mac(&self) -> [u8; 6] {
        self.device.mac()
    }

    fn counters(&self) -> PortCounters {
        self.device.counters()
    }

    /// Returns the copies of the port, and those between the NIC and the switch.
    fn copies(&self) -> PortCopies {
        let mut copies = self.device.copies();
        if let Some((nic_end, switch_end)) = &self.ends {
            copies += PortCopies { rx: nic_end.copies().tx, tx: switch_end.copies().tx };
        }
        copies
    }

    fn note_losses(&self, losses: &DeviceLosses) {
        self.device.note_losses(losses);
    }

    fn driver_counters(&self) -> Vec<(String, u64)> {
        self.device.driver_counters()
    }

    fn maintenance(&mut self, now: Time) -> Option<PortWork> {
        self.device.maintenance(now)
    }
}

impl Drop for Representor {
    fn drop(&mut self) {
        if self.is_added {
            // The reply comes after the current iteration of the packet thread of the NIC, or at
            // once if the thread has ended.
            let _ = self.nic.commands().remove(self.number).recv();
        }
    }
}

/// The receive queue of a representor.
/// The queue fails after the NIC has closed its end.
struct RepresentorRx {
    inner: Box<dyn RxQueue>,
    name: String,
}

impl RxQueue for RepresentorRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let report = self.inner.rx(pool, burst)?;
        if report.exhausted {
            return Err(PortError::DeviceGone { name: self.name.clone() });
        }
        Ok(report)
    }

    fn finished(&mut self, count: u64) {
        self.inner.finished(count);
    }

    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}
