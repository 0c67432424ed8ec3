//! Ports that come and go while the NIC runs, and what stands for them in the switch.
//!
//! The NIC's thread has the queues of the port itself; the switch has a port that stands for it, its
//! representor, and forwards by that what the NIC knows no end for. In all else, link, address and
//! counters, the representor is the port. If the port breaks, or the thread ends, the representor is
//! broken as well; when it is closed, the NIC has given up the port.

use std::{io, sync::Arc};

use shunt_datapath::{
    Packet, Pool, PortError, RxQueue,
    port::{Capabilities, Port, PortCounters, Queues, RxReport, pair::pair},
};

use crate::{
    bell::hang,
    orders::Orders,
    side::{Opened, Side},
    thread::Running,
};

/// Puts a NIC that runs in front of ports. The NIC goes on forwarding as long as one of these or a
/// port of theirs is there, without rules once its server has stopped.
#[derive(Clone, Debug)]
pub struct NicPorts {
    pub(crate) thread: Arc<Running>,
}

/// A port of a NIC, as the switch has it.
struct Represented {
    nic: NicPorts,
    number: u16,
    device: Box<dyn Port>,
    seed: u64,
    is_there: bool,
}

impl NicPorts {
    /// The port that stands for one of this number which the NIC has from the moment when it is split.
    /// Where packets go between the two is chosen by `seed`.
    #[must_use]
    pub fn represent(&self, number: u16, port: Box<dyn Port>, seed: u64) -> Box<dyn Port> {
        let nic = self.clone();
        Box::new(Represented { nic, number, device: port, seed, is_there: false })
    }

    fn orders(&self) -> &Orders {
        self.thread.orders()
    }
}

impl Represented {
    fn name(&self) -> String {
        format!("port {} of the NIC", self.number)
    }

    fn failed(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PortError {
        PortError::System { doing: "add", name: self.name(), source: io::Error::other(source) }
    }
}

impl Port for Represented {
    fn capabilities(&self) -> Capabilities {
        Capabilities { can_wait: true, ..self.device.capabilities() }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let port = Side::of(self.device.split(1)?, self.device.capabilities());
        let (mut near, mut far) = pair(threads, self.seed);
        let inside = near.capabilities();
        let hung = hang(near.split(threads)?, far.split(threads)?);
        let [near, far] = hung.map_err(|error| self.failed(error))?;
        let opened = Opened { port, representor: Some(Side::of(near, inside)) };
        let added = self.nic.orders().add(self.number, Box::new(opened));
        added.map_err(|error| self.failed(error))?;
        self.is_there = true;
        let watched = |queues: Queues| {
            let watch =
                |inner| -> Box<dyn RxQueue> { Box::new(Watched { inner, name: self.name() }) };
            Queues { rx: queues.rx.map(watch), ..queues }
        };
        Ok(far.into_iter().map(watched).collect())
    }

    fn link_up(&self) -> bool {
        self.device.link_up()
    }

    fn mac(&self) -> [u8; 6] {
        self.device.mac()
    }

    fn counters(&self) -> PortCounters {
        self.device.counters()
    }
}

impl Drop for Represented {
    fn drop(&mut self) {
        if self.is_there {
            // It is answered after the turn of the NIC's thread, or at once where that has ended.
            let _ = self.nic.orders().remove(self.number).recv();
        }
    }
}

/// The receive queue of a representor, which is broken when the NIC has given it up.
struct Watched {
    inner: Box<dyn RxQueue>,
    name: String,
}

impl RxQueue for Watched {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let report = self.inner.rx(pool, burst)?;
        if report.exhausted {
            return Err(PortError::DeviceGone { name: self.name.clone() });
        }
        Ok(report)
    }

    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}
