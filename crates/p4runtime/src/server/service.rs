//! The gRPC service, and the socket that it listens on.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport};
use tracing::{debug, info};

use super::{
    arbiter::election_id,
    device::Device,
    state::{Outgoing, Settings, State},
    stream,
    write::write,
};
use crate::{
    error::{RequestError, batch_status},
    wire::p4::v1::{
        CapabilitiesRequest, CapabilitiesResponse, GetForwardingPipelineConfigRequest,
        GetForwardingPipelineConfigResponse, PacketIn, ReadRequest, ReadResponse,
        SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
        StreamMessageRequest, WriteRequest, WriteResponse,
        p4_runtime_server::{P4Runtime, P4RuntimeServer},
    },
};

/// The version of the protocol that is served.
const API_VERSION: &str = "1.4.1";

/// Entities of one message of an answer: below the 4 MiB that clients take by default.
const READ_ENTITIES_MAX: usize = 2048;

/// Messages of an answer that wait for a client that does not read.
const READ_QUEUE: usize = 4;

/// Where a server gets the time of day from, since the Epoch.
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A device as a P4Runtime service. Clones are one service.
#[derive(Clone)]
pub struct Service {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Serves a device; `clock` tells the time of day since the Epoch.
    pub fn new(
        settings: Settings,
        device: impl Device,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(State::new(settings, Box::new(device))));
        Self { state, clock: Arc::new(clock) }
    }

    /// Gives a packet to the controllers that are primary.
    pub fn packet_in(&self, packet: &PacketIn) {
        self.state.lock().packet_in(packet);
    }

    /// Tells controllers of entries that were not hit for their time. To be called several times a
    /// second.
    pub fn tick(&self) {
        self.state.lock().tick((self.clock)());
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let request = request.into_inner();
        let now = (self.clock)();
        let (results, latency) = {
            let state = &mut *self.state.lock();
            let election = election_id(request.election_id);
            state.check_writer(request.device_id, &request.role, election)?;
            if !state.pipeline.is_running() {
                return Err(RequestError::NoPipeline.into());
            }
            let (store, device) = (&mut state.pipeline.store, &mut *state.device);
            (write(store, device, request, now)?, state.settings.update_latency)
        };
        if !latency.is_zero() {
            let count = u32::try_from(results.len()).unwrap_or(u32::MAX);
            tokio::time::sleep(latency.saturating_mul(count)).await;
        }
        batch_status(&results).map_err(|status| *status)?;
        Ok(Response::new(WriteResponse {}))
    }

    type ReadStream = ReceiverStream<Result<ReadResponse, Status>>;

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let now = (self.clock)();
        let results: Vec<_> = {
            let state = &mut *self.state.lock();
            state.check_device(request.device_id)?;
            if !state.pipeline.is_running() {
                return Err(RequestError::NoPipeline.into());
            }
            let (store, device) = (&state.pipeline.store, &mut *state.device);
            let entities = request.entities.into_iter();
            entities.map(|question| store.read(device, question.entity, now)).collect()
        };
        batch_status(&results).map_err(|status| *status)?;
        let mut entities = results.into_iter().flatten().flatten().peekable();
        let (sender, receiver) = mpsc::channel(READ_QUEUE);
        tokio::spawn(async move {
            loop {
                let entities: Vec<_> = entities.by_ref().take(READ_ENTITIES_MAX).collect();
                let is_last = entities.len() < READ_ENTITIES_MAX;
                if sender.send(Ok(ReadResponse { entities })).await.is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let state = &mut *self.state.lock();
        let election = election_id(request.election_id);
        state.check_writer(request.device_id, &request.role, election)?;
        state.pipeline.set(&mut *state.device, request.action, request.config)?;
        info!(device = request.device_id, action = request.action, "a pipeline was set");
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let state = self.state.lock();
        state.check_device(request.device_id)?;
        let config = state.pipeline.get(request.response_type)?;
        Ok(Response::new(GetForwardingPipelineConfigResponse { config }))
    }

    type StreamChannelStream = ReceiverStream<Outgoing>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (sender, receiver) = {
            let mut state = self.state.lock();
            let (sender, receiver) = mpsc::channel(state.settings.stream_queue);
            let stream = state.open(sender.clone())?;
            ((sender, stream), receiver)
        };
        let (sender, stream) = sender;
        let state = Arc::clone(&self.state);
        let task = tokio::spawn(async move {
            let ended = tokio::select! {
                ended = stream::serve(&state, stream, request.into_inner()) => ended,
                // Nobody reads any more: the connection is gone.
                () = sender.closed() => Ok(()),
            };
            state.lock().close(stream);
            debug!(stream = stream.0, "a controller's stream has ended");
            if let Err(status) = ended {
                // A controller that does not read does not learn why.
                let _ = sender.try_send(Err(status));
            }
        });
        self.state.lock().attach(stream, task.abort_handle());
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        Ok(Response::new(CapabilitiesResponse { p4runtime_api_version: API_VERSION.to_owned() }))
    }
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve P4Runtime on {address}")]
pub struct ServerError {
    /// Where.
    address: SocketAddr,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// A socket that serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// How often a server looks for entries that were not hit.
const TICK: Duration = Duration::from_millis(20);

impl Server {
    /// Listens; a port of zero is one that is free.
    ///
    /// # Errors
    ///
    /// The address cannot be had.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let failed = |source: std::io::Error| ServerError { address, source: source.into() };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is over.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub async fn run(
        self,
        service: Service,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let (address, state) = (self.address, Arc::clone(&service.state));
        let bytes_max = service.state.lock().settings.request_bytes_max;
        let ticked = service.clone();
        let ticking = async move {
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
                ticked.tick();
            }
        };
        let grpc = P4RuntimeServer::new(service)
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(usize::MAX);
        let serving = transport::Server::builder()
            .tcp_nodelay(true)
            .add_service(grpc)
            .serve_with_incoming(TcpListenerStream::new(self.listener));
        let served = tokio::select! {
            result = serving => {
                result.map_err(|source| ServerError { address, source: source.into() })
            }
            () = ticking => Ok(()),
            () = stop => Ok(()),
        };
        // Connections outlive the socket: controllers hear by the end of their streams.
        state.lock().close_all();
        served
    }
}
