//! The gRPC service and its listening socket.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{self, server::TcpIncoming},
};
use tracing::{debug, info};

use super::{
    arbiter::election_id,
    device::{ClockReading, Device},
    limited_connection::limit_connections,
    read::ReadQuery,
    response_part::{ENTITIES_MAX, ResponsePart},
    state::{ServerSettings, ServiceState},
    stream,
    stream_queue::StreamReceiver,
    write::{check_parts, write},
};
use crate::{
    error::{EntityError, RpcError, batch_status},
    wire::p4::v1::{
        CapabilitiesRequest, CapabilitiesResponse, Entity, GetForwardingPipelineConfigRequest,
        GetForwardingPipelineConfigResponse, PacketIn, ReadRequest, ReadResponse,
        SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
        StreamMessageRequest, WriteRequest, WriteResponse,
        p4_runtime_server::{P4Runtime, P4RuntimeServer},
        set_forwarding_pipeline_config_request::Action,
    },
};

/// The P4Runtime version that is served.
const API_VERSION: &str = "1.4.1";

/// Maximum number of response messages that wait for a client.
const READ_QUEUE: usize = 4;

/// Interval and timeout of keep-alive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Maximum number of concurrent requests per connection.
const STREAMS_OF_A_CONNECTION: u32 = 16;

/// Maximum number of packets from the device that wait; further ones are dropped.
const PACKETS_MAX: usize = 4096;

/// Maximum number of packets that are forwarded under one lock.
const PACKETS_AT_ONCE: usize = 64;

/// Time in which connections may end after the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the current time.
type ServiceClock = Arc<dyn Fn() -> ClockReading + Send + Sync>;

/// A P4Runtime service for one device, which clones share.
#[derive(Clone)]
pub struct Service {
    state: Arc<Mutex<ServiceState>>,
    clock: ServiceClock,
    packets: mpsc::Sender<PacketIn>,
    /// The receiving end of the packet queue, for the running server.
    packet_receiver: Arc<AsyncMutex<mpsc::Receiver<PacketIn>>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Creates a service for a device.
    pub fn new(
        settings: ServerSettings,
        device: impl Device,
        clock: impl Fn() -> ClockReading + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(ServiceState::new(settings, Box::new(device))));
        let (packets, packet_receiver) = mpsc::channel(PACKETS_MAX);
        let packet_receiver = Arc::new(AsyncMutex::new(packet_receiver));
        Self { state, clock: Arc::new(clock), packets, packet_receiver }
    }

    /// Queues a packet for the primary controllers; never waits.
    ///
    /// Returns `false` if the queue is full and the packet is dropped.
    pub fn packet_in(&self, packet: PacketIn) -> bool {
        self.packets.try_send(packet).is_ok()
    }

    /// Forwards packets from the device to the controllers; never returns.
    async fn forward_packets(&self) {
        let mut packet_receiver = self.packet_receiver.lock().await;
        let mut packets = Vec::with_capacity(PACKETS_AT_ONCE);
        while packet_receiver.recv_many(&mut packets, PACKETS_AT_ONCE).await > 0 {
            let state = self.state.lock();
            packets.drain(..).for_each(|packet| state.packet_in(&packet));
        }
    }

    /// Notifies controllers of idle entries. Call this function several times a second.
    pub fn tick(&self) {
        self.state.lock().tick((self.clock)());
    }
}

/// Sends the parts of a response.
type ResponseSender = mpsc::Sender<Result<ReadResponse, Status>>;

impl Service {
    /// Executes queries part by part.
    ///
    /// Other requests can take the lock between two parts, and the number of waiting parts is
    /// limited.
    async fn send_responses(
        &self,
        queries: Vec<Result<ReadQuery, EntityError>>,
        responses: ResponseSender,
    ) {
        let mut part = ResponsePart::default();
        for mut query in queries.into_iter().flatten() {
            while !query.is_done() {
                let now = (self.clock)().steady;
                {
                    let state = &mut *self.state.lock();
                    let (store, device) = (&state.pipeline.store, &mut *state.device);
                    store.read_next(device, &mut query, now, ENTITIES_MAX, &mut part);
                }
                while part.is_full() {
                    if responses.send(Ok(part.take())).await.is_err() {
                        return;
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        // The last part ends the response. If sending fails, the client has disconnected.
        let _ = responses.send(Ok(part.take())).await;
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
                return Err(RpcError::NoPipeline.into());
            }
            let (store, device) = (&mut state.pipeline.store, &mut *state.device);
            (write(store, device, request, now.steady)?, state.settings.update_latency)
        };
        if !latency.is_zero() {
            debug_assert!(
                u32::try_from(results.len()).is_ok(),
                "a request has fewer than 2^32 updates"
            );
            let count = u32::try_from(results.len()).unwrap_or(u32::MAX);
            sleep(latency.saturating_mul(count)).await;
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
        check_parts(request.entities.len())?;
        let queries: Vec<_> = {
            let state = &*self.state.lock();
            state.check_device(request.device_id)?;
            if !state.pipeline.is_running() {
                return Err(RpcError::NoPipeline.into());
            }
            let check = |entity: Entity| state.pipeline.store.check(entity.entity);
            request.entities.into_iter().map(check).collect()
        };
        batch_status(&queries).map_err(|status| *status)?;
        let (sender, receiver) = mpsc::channel(READ_QUEUE);
        let service = self.clone();
        tokio::spawn(async move { service.send_responses(queries, sender).await });
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
        let action = Action::try_from(request.action).map_or("unknown", |own| own.as_str_name());
        info!(device = request.device_id, action, "P4Runtime: a controller has set the P4 program");
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

    type StreamChannelStream = StreamReceiver;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (stream, queue, queued) = self.state.lock().open()?;
        let state = Arc::clone(&self.state);
        let task = tokio::spawn(async move {
            let ended = tokio::select! {
                ended = stream::serve(&state, stream, request.into_inner()) => ended,
                // The receiver is dropped: the connection has ended.
                () = queue.closed() => Ok(()),
            };
            state.lock().close(stream);
            debug!(stream = stream.0, "P4Runtime: the stream of a controller ended");
            if let Err(status) = ended {
                queue.end(status);
            }
        });
        self.state.lock().attach(stream, task.abort_handle());
        Ok(Response::new(queued))
    }

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        Ok(Response::new(CapabilitiesResponse { p4runtime_api_version: API_VERSION.to_owned() }))
    }
}

/// The reason why a server cannot run.
#[derive(Debug, thiserror::Error)]
#[error("the P4Runtime server cannot listen on {address}")]
pub struct ServerError {
    /// The address of the server.
    address: SocketAddr,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// A listening gRPC server.
#[derive(Debug)]
pub struct GrpcServer {
    listener: TcpListener,
    address: SocketAddr,
}

/// Interval at which the server looks for idle entries.
const TICK: Duration = Duration::from_millis(20);

impl GrpcServer {
    /// Binds to an address; port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let failed = |source: std::io::Error| ServerError { address, source: source.into() };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Returns the bound address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` completes.
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
        let ServerSettings { request_bytes_max, connections_max, .. } =
            service.state.lock().settings;
        let own = service.clone();
        let ticking = async {
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
                own.tick();
            }
        };
        let grpc = P4RuntimeServer::new(service)
            .max_decoding_message_size(request_bytes_max)
            .max_encoding_message_size(usize::MAX);
        // Responses are small and clients wait for them, so they must not be delayed.
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let incoming = limit_connections(incoming, connections_max);
        let (ending, ended) = oneshot::channel();
        let serving = transport::Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(Some(STREAMS_OF_A_CONNECTION))
            .concurrency_limit_per_connection(STREAMS_OF_A_CONNECTION as usize)
            .add_service(grpc)
            .serve_with_incoming_shutdown(incoming, async {
                stop.await;
                // The end of its stream notifies each controller, which cannot open a new stream.
                state.lock().close_all();
                let _ = ending.send(());
            });
        let late = async {
            match ended.await {
                Ok(()) => sleep(SHUTDOWN_TIMEOUT).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            result = serving => {
                result.map_err(|source| ServerError { address, source: source.into() })
            }
            () = ticking => Ok(()),
            () = own.forward_packets() => Ok(()),
            () = late => Ok(()),
        }
    }
}
