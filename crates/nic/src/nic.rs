//! A running NIC: its ports, its packet thread and its P4Runtime server.

use std::{future::Future, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::{
    PortError,
    port::{Port, PortSpec, open},
};
use shunt_p4runtime::{
    program::Program,
    server::{ClockReading, GrpcServer, ServerError, ServerSettings, Service},
};
use tracing::info;

use crate::{
    chain::NicChain,
    commands::CommandQueue,
    counters::NicCounters,
    device::NicDevice,
    error::NicError,
    limits::NicLimits,
    ports::open_port::{OpenPort, PortSide},
    ports::representor::NicPorts,
    thread::{NicThread, NicWorker, WorkerShared},
};

/// Number and device of one port of a NIC.
pub struct NicPort {
    /// The port number that rules match and send to.
    pub number: u16,
    /// The device of the port.
    pub port: Box<dyn Port>,
    /// The representor of the port.
    /// Packets that miss leave by the representor, and packets from the representor leave by the
    /// port.
    ///
    /// Without a representor, packets that miss go to the controller.
    pub representor: Option<Box<dyn Port>>,
}

impl std::fmt::Debug for NicPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NicPort").field("number", &self.number).finish_non_exhaustive()
    }
}

impl NicPort {
    /// Opens a port and its representor.
    ///
    /// # Errors
    ///
    /// Fails if the port or the representor cannot be opened.
    pub fn open(
        number: u16,
        spec: &PortSpec,
        representor: Option<&PortSpec>,
    ) -> Result<Self, PortError> {
        let open = |spec| open(spec, number.into());
        Ok(Self { number, port: open(spec)?, representor: representor.map(open).transpose()? })
    }

    /// Opens the port and its representor.
    fn split(self) -> Result<OpenPort, PortError> {
        let representor = self.representor.map(PortSide::open).transpose()?;
        let port = PortSide::open(self.port)?;
        Ok(OpenPort { port, representor, order: None, losses: Arc::default() })
    }
}

/// A running NIC.
/// The NIC stops when the `Nic` and the last of its [`NicPorts`] are dropped.
#[derive(Debug)]
pub struct Nic {
    server: GrpcServer,
    service: Service,
    traffic: Arc<NicCounters>,
    rules: RulesGuard,
    thread: Arc<NicThread>,
}

/// A guard that clears the rules of the NIC when its server has ended.
#[derive(Debug)]
struct RulesGuard(Arc<Mutex<NicChain>>);

impl RulesGuard {
    /// Removes all rules of the NIC.
    fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Drop for RulesGuard {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Nic {
    /// Opens the socket of the server, and starts to forward packets.
    /// `seed` is the seed of all hashes.
    ///
    /// # Errors
    ///
    /// Fails if a port, the thread or the socket cannot be opened.
    pub async fn start(
        program: Program,
        limits: NicLimits,
        ports: Vec<NicPort>,
        address: SocketAddr,
        clock: fn() -> ClockReading,
        seed: u64,
    ) -> Result<Self, NicError> {
        let rules = RulesGuard(Arc::new(Mutex::new(NicChain::new(program, limits, seed))));
        let commands = Arc::new(CommandQueue::new()?);
        for port in ports {
            let number = port.number;
            let opened = port.split().map_err(|source| NicError::Port { number, source })?;
            let added = commands.add(number, Box::new(opened));
            added.map_err(|_| NicError::NumberTaken(number))?;
        }
        let traffic = Arc::new(NicCounters::default());
        let device = NicDevice::new(Arc::clone(&rules.0), Arc::clone(&commands));
        let settings =
            ServerSettings { update_latency: limits.update_latency, ..ServerSettings::default() };
        let service = Service::new(settings, device, clock);
        let server = GrpcServer::bind(address).await?;
        let worker = NicWorker::new(WorkerShared {
            chain: Arc::clone(&rules.0),
            commands,
            traffic: Arc::clone(&traffic),
            service: service.clone(),
            clock,
        })?;
        let thread = Arc::new(worker.spawn()?);
        info!(address = %server.address(), "NIC ready");
        Ok(Self { server, service, traffic, rules, thread })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the packet counters of the NIC.
    #[must_use]
    pub fn traffic(&self) -> Arc<NicCounters> {
        Arc::clone(&self.traffic)
    }

    /// Returns a handle to add ports while the NIC runs.
    #[must_use]
    pub fn ports(&self) -> NicPorts {
        NicPorts { thread: Arc::clone(&self.thread) }
    }

    /// Runs the P4Runtime server until `stop` completes.
    ///
    /// # Errors
    ///
    /// Fails if the socket of the server fails.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        // Without a server no controller can update the rules. So the rules are cleared on a stop,
        // and whenever this future ends.
        let (rules, _thread) = (self.rules, self.thread);
        let stop = async {
            stop.await;
            rules.clear();
        };
        self.server.run(self.service, stop).await
    }
}
