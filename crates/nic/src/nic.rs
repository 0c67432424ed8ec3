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
    error::NicError,
    front::Front,
    limits::Limits,
    orders::Orders,
    represent::NicPorts,
    side::{Opened, Side},
    thread::{Running, Shared, Worker},
};

/// A port of a NIC.
pub struct NicPort {
    /// Its number: what rules match and send to.
    pub number: u16,
    /// What it is.
    pub port: Box<dyn Port>,
    /// Where packets leave that came by it and for which there is no entry, and where those come from
    /// that it is to send; `None`: there is the controller alone.
    pub representor: Option<Box<dyn Port>>,
}

impl std::fmt::Debug for NicPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NicPort").field("number", &self.number).finish_non_exhaustive()
    }
}

impl NicPort {
    /// Opens a port, and its representor.
    ///
    /// # Errors
    ///
    /// One of them cannot be opened.
    pub fn open(
        number: u16,
        spec: &PortSpec,
        representor: Option<&PortSpec>,
    ) -> Result<Self, PortError> {
        let open = |spec| open(spec, number.into());
        Ok(Self { number, port: open(spec)?, representor: representor.map(open).transpose()? })
    }

    fn split(self) -> Result<Opened, PortError> {
        let representor = self.representor.map(Side::open).transpose()?;
        Ok(Opened { port: Side::open(self.port)?, representor })
    }
}

/// A NIC that forwards; it stops when it is dropped, and with it the last of its [`NicPorts`].
#[derive(Debug)]
pub struct Nic {
    server: Server,
    service: Service,
    traffic: Arc<Traffic>,
    rules: Rules,
    thread: Arc<Running>,
}

/// The rules of a NIC: without a server there are none.
#[derive(Debug)]
struct Rules(Arc<Mutex<Chain>>);

impl Rules {
    fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.clear();
    }
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
        let rules = Rules(Arc::new(Mutex::new(Chain::new(program, limits, seed))));
        let orders = Arc::new(Orders::new().map_err(std::io::Error::from)?);
        for port in ports {
            let number = port.number;
            let opened = port.split().map_err(|source| NicError::Port { number, source })?;
            let added = orders.add(number, Box::new(opened));
            added.map_err(|_| NicError::NumberTaken(number))?;
        }
        let traffic = Arc::new(Traffic::default());
        let front = Front::new(Arc::clone(&rules.0), Arc::clone(&orders));
        let settings = Settings { update_latency: limits.update_latency, ..Settings::default() };
        let service = Service::new(settings, front, clock);
        let server = Server::bind(address).await?;
        let worker = Worker::new(Shared {
            chain: Arc::clone(&rules.0),
            orders,
            traffic: Arc::clone(&traffic),
            service: service.clone(),
            clock,
        })?;
        let thread = Arc::new(worker.spawn()?);
        info!(address = %server.address(), "the NIC is ready");
        Ok(Self { server, service, traffic, rules, thread })
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

    /// Adds ports while it runs, and takes them out.
    #[must_use]
    pub fn ports(&self) -> NicPorts {
        NicPorts { thread: Arc::clone(&self.thread) }
    }

    /// Serves until `stop` is over.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        // Without a server nobody sees to its rules: they go when it is told to stop, and however this
        // ends.
        let (rules, _thread) = (self.rules, self.thread);
        let stop = async {
            stop.await;
            rules.clear();
        };
        self.server.run(self.service, stop).await
    }
}
