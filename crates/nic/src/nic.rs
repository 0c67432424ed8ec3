//! A NIC that runs: ports, thread, server.

use std::{future::Future, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::{
    PortError,
    port::{Port, PortSpec, open},
};
use shunt_p4runtime::{
    program::Program,
    server::{Now, Server, ServerError, Service, Settings},
};
use tracing::info;

use crate::{
    chain::Chain,
    drops::Traffic,
    front::Front,
    limits::Limits,
    outbox::Outbox,
    thread::{Running, Shared, Worker},
};

/// A port of a NIC.
pub struct NicPort {
    /// Its number: what rules match and send to.
    pub number: u16,
    /// What it is.
    pub port: Box<dyn Port>,
}

impl std::fmt::Debug for NicPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NicPort").field("number", &self.number).finish_non_exhaustive()
    }
}

impl NicPort {
    /// Opens a port.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn open(number: u16, spec: &PortSpec) -> Result<Self, PortError> {
        Ok(Self { number, port: open(spec, number.into())? })
    }
}

/// Why a NIC does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// A port cannot be used.
    #[error("port {number} cannot be used")]
    Port {
        /// Which.
        number: u16,
        /// Why.
        source: PortError,
    },
    /// The system has no thread or descriptor left.
    #[error("the NIC's thread cannot run")]
    System(#[from] std::io::Error),
    /// The server cannot listen.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// A NIC that forwards; it stops when it is dropped.
#[derive(Debug)]
pub struct Nic {
    server: Server,
    service: Service,
    traffic: Arc<Traffic>,
    thread: Running,
}

impl Nic {
    /// Opens the socket and begins to forward. Hashes are made with `seed`.
    ///
    /// # Errors
    ///
    /// A port, the system or the socket refuses.
    pub async fn start(
        (program, limits): (Program, Limits),
        ports: Vec<NicPort>,
        address: SocketAddr,
        (clock, seed): (fn() -> Now, u64),
    ) -> Result<Self, NicError> {
        let chain = Arc::new(Mutex::new(Chain::new(program, limits, seed)));
        let numbers = ports.iter().map(|port| port.number).collect();
        let outbox = Arc::new(Outbox::new(numbers).map_err(std::io::Error::from)?);
        let traffic = Arc::new(Traffic::default());
        let front = Front::new(Arc::clone(&chain), Arc::clone(&outbox));
        let settings = Settings { update_latency: limits.update_latency, ..Settings::default() };
        let service = Service::new(settings, front, clock);
        let mut worker = Worker::new(Shared {
            chain,
            outbox,
            traffic: Arc::clone(&traffic),
            service: service.clone(),
            clock,
        });
        for NicPort { number, port } in ports {
            worker.add(number, port).map_err(|source| NicError::Port { number, source })?;
        }
        let server = Server::bind(address).await?;
        let thread = worker.spawn()?;
        info!(address = %server.address(), "the NIC is ready");
        Ok(Self { server, service, traffic, thread })
    }

    /// Where the server listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// What became of its packets.
    #[must_use]
    pub fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// Serves until `stop` is over.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let served = self.server.run(self.service, stop).await;
        drop(self.thread);
        served
    }
}
