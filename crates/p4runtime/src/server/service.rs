//! The gRPC service, and the socket that it listens on.

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
    connection::admitted,
    device::{Device, Now},
    part::{ENTITIES_MAX, Part},
    queue::Queued,
    read::Question,
    state::{Settings, State},
    stream,
    write::{check_parts, write},
};
use crate::{
    error::{EntityError, RequestError, batch_status},
    wire::p4::v1::{
        CapabilitiesRequest, CapabilitiesResponse, Entity, GetForwardingPipelineConfigRequest,
        GetForwardingPipelineConfigResponse, PacketIn, ReadRequest, ReadResponse,
        SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
        StreamMessageRequest, WriteRequest, WriteResponse,
        p4_runtime_server::{P4Runtime, P4RuntimeServer},
    },
};

/// The version of the protocol that is served.
const API_VERSION: &str = "1.4.1";

/// Messages of an answer that wait for a client that does not read.
const READ_QUEUE: usize = 4;

/// A peer that is asked whether it is there, and does not answer for as long, is not.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Requests of one connection at a time.
const STREAMS_OF_A_CONNECTION: u32 = 16;

/// Packets of the device that wait to be told; more are dropped.
const PACKETS_MAX: usize = 4096;

/// Packets that are told under one lock.
const PACKETS_AT_ONCE: usize = 64;

/// Time that connections have to end, once the server stops.
const GRACE: Duration = Duration::from_secs(1);

/// Where a server gets the time from.
type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// A device as a P4Runtime service. Clones are one service.
#[derive(Clone)]
pub struct Service {
    state: Arc<Mutex<State>>,
    clock: Clock,
    packets: mpsc::Sender<PacketIn>,
    /// The other end, for the server that runs.
    arriving: Arc<AsyncMutex<mpsc::Receiver<PacketIn>>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Serves a device.
    pub fn new(
        settings: Settings,
        device: impl Device,
        clock: impl Fn() -> Now + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(State::new(settings, Box::new(device))));
        let (packets, arriving) = mpsc::channel(PACKETS_MAX);
        let arriving = Arc::new(AsyncMutex::new(arriving));
        Self { state, clock: Arc::new(clock), packets, arriving }
    }

    /// Gives a packet to the controllers that are primary, and never waits. `false`: too many packets
    /// wait, and this one is dropped.
    pub fn packet_in(&self, packet: PacketIn) -> bool {
        self.packets.try_send(packet).is_ok()
    }

    /// Tells the packets that the device hands over, for ever.
    async fn tell_packets(&self) {
        let mut arriving = self.arriving.lock().await;
        let mut packets = Vec::with_capacity(PACKETS_AT_ONCE);
        while arriving.recv_many(&mut packets, PACKETS_AT_ONCE).await > 0 {
            let state = self.state.lock();
            packets.drain(..).for_each(|packet| state.packet_in(&packet));
        }
    }

    /// Tells controllers of entries that were not hit for their time. To be called several times a
    /// second.
    pub fn tick(&self) {
        self.state.lock().tick((self.clock)());
    }
}

/// Where the parts of an answer go.
type Answers = mpsc::Sender<Result<ReadResponse, Status>>;

impl Service {
    /// Answers questions part by part, so that others get the lock in between, and no more waits than
    /// the controller takes.
    async fn answer(&self, questions: Vec<Result<Question, EntityError>>, answers: Answers) {
        let mut part = Part::default();
        for mut question in questions.into_iter().flatten() {
            while !question.is_answered() {
                let now = (self.clock)().steady;
                {
                    let state = &mut *self.state.lock();
                    let (store, device) = (&state.pipeline.store, &mut *state.device);
                    store.answer(device, &mut question, (now, ENTITIES_MAX), &mut part);
                }
                while part.is_full() {
                    if answers.send(Ok(part.take())).await.is_err() {
                        return;
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        // The last part says that there is no more: who does not hear it, is gone.
        let _ = answers.send(Ok(part.take())).await;
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
            (write(store, device, request, now.steady)?, state.settings.update_latency)
        };
        if !latency.is_zero() {
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
        let questions: Vec<_> = {
            let state = &*self.state.lock();
            state.check_device(request.device_id)?;
            if !state.pipeline.is_running() {
                return Err(RequestError::NoPipeline.into());
            }
            let check = |asked: Entity| state.pipeline.store.check(asked.entity);
            request.entities.into_iter().map(check).collect()
        };
        batch_status(&questions).map_err(|status| *status)?;
        let (sender, receiver) = mpsc::channel(READ_QUEUE);
        let service = self.clone();
        tokio::spawn(async move { service.answer(questions, sender).await });
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

    type StreamChannelStream = Queued;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (stream, queue, queued) = self.state.lock().open()?;
        let state = Arc::clone(&self.state);
        let task = tokio::spawn(async move {
            let ended = tokio::select! {
                ended = stream::serve(&state, stream, request.into_inner()) => ended,
                // Nobody reads any more: the connection is gone.
                () = queue.closed() => Ok(()),
            };
            state.lock().close(stream);
            debug!(stream = stream.0, "a controller's stream has ended");
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
        let Settings { request_bytes_max, connections_max, .. } = service.state.lock().settings;
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
        // Answers are small, and a peer waits for each: none is held back for more of them.
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let incoming = admitted(incoming, connections_max);
        let (ending, ended) = oneshot::channel();
        let serving = transport::Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(Some(STREAMS_OF_A_CONNECTION))
            .concurrency_limit_per_connection(STREAMS_OF_A_CONNECTION as usize)
            .add_service(grpc)
            .serve_with_incoming_shutdown(incoming, async {
                stop.await;
                // Controllers hear by the end of their streams, and cannot begin others.
                state.lock().close_all();
                let _ = ending.send(());
            });
        let late = async {
            match ended.await {
                Ok(()) => sleep(GRACE).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            result = serving => {
                result.map_err(|source| ServerError { address, source: source.into() })
            }
            () = ticking => Ok(()),
            () = own.tell_packets() => Ok(()),
            () = late => Ok(()),
        }
    }
}
