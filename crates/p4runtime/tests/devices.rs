//! Tests of the client with devices that lack features or lose state.

#![expect(clippy::unwrap_used, reason = "a device that does not respond fails the test")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    offload::{LtmIndex, OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket},
    partition::StageId,
};
use shunt_p4runtime::{
    client::{ClientSettings, LivePorts, P4RuntimeDevice},
    error::batch_codes,
    server::{ClockReading, ServerSettings, Service},
    testing::MemoryDevice,
    wire::p4::v1::{
        CapabilitiesRequest, CapabilitiesResponse, GetForwardingPipelineConfigRequest,
        GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse,
        SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
        StreamMessageRequest, StreamMessageResponse, WriteRequest, WriteResponse,
        p4_runtime_server::{P4Runtime, P4RuntimeServer},
    },
};
use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::{Notify, mpsc, watch},
    time::timeout,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

/// A device with configurable behaviour.
#[derive(Clone)]
struct Device {
    memory: MemoryDevice,
    service: Arc<Mutex<Service>>,
    habits: Arc<Behavior>,
}

/// The configurable behaviour of a device.
#[derive(Default)]
struct Behavior {
    /// True if the device does not report which updates of a batch failed.
    is_terse: AtomicBool,
    /// True while the device is unreachable.
    is_away: watch::Sender<bool>,
    /// True if a read never ends.
    is_endless: AtomicBool,
    /// The number of the next read that fails; 0 for none.
    fails_at: AtomicU32,
}

impl Device {
    fn service(&self) -> Service {
        self.service.lock().clone()
    }

    fn check_there(&self) -> Result<(), Status> {
        let is_away = *self.habits.is_away.borrow();
        if is_away { Err(Status::unavailable("the device is unreachable")) } else { Ok(()) }
    }
}

#[tonic::async_trait]
impl P4Runtime for Device {
    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let result = self.service().write(request).await;
        if !self.habits.is_terse.load(Ordering::SeqCst) {
            return result;
        }
        result.map_err(|status| match &batch_codes(&status).unwrap()[..] {
            [one] => Status::new(one.code, "it failed"),
            _ => Status::unknown("some failed"),
        })
    }

    type ReadStream = ReceiverStream<Result<ReadResponse, Status>>;

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let at = &self.habits.fails_at;
        let left = at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left == Ok(1) {
            return Err(Status::unavailable("not now"));
        }
        let completed = self.service().read(request).await?;
        if !self.habits.is_endless.load(Ordering::SeqCst) {
            return Ok(completed);
        }
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut stream = completed.into_inner();
            let first = stream.next().await.unwrap().unwrap();
            while sender.send(Ok(first.clone())).await.is_ok() {}
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        self.service().set_forwarding_pipeline_config(request).await
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        self.service().get_forwarding_pipeline_config(request).await
    }

    type StreamChannelStream = ReceiverStream<Result<StreamMessageResponse, Status>>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        self.check_there()?;
        let mut stream = self.service().stream_channel(request).await?.into_inner();
        let (sender, receiver) = mpsc::channel(16);
        let mut is_away = self.habits.is_away.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(message) = stream.next() => drop(sender.send(message).await),
                    () = async { drop(is_away.wait_for(|is_away| *is_away).await) } => break,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn capabilities(
        &self,
        request: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        self.service().capabilities(request).await
    }
}

/// A served device, and a client that has connected to it.
struct DeviceFixture {
    device: Device,
    ports: LivePorts,
    target: P4RuntimeDevice,
    events: Vec<OffloadEvent>,
    /// Signals that the client has events.
    news: Arc<Notify>,
}

/// Limit for operations that take milliseconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

impl DeviceFixture {
    async fn new() -> Self {
        let memory = MemoryDevice::default();
        let service = Arc::new(Mutex::new(service(&memory)));
        let device = Device { memory, service, habits: Arc::default() };
        let address = serve(&device).await;
        let ports = LivePorts::default();
        ports.add(DatapathPort::new(7), 1);
        let settings = ClientSettings {
            ports: ports.clone(),
            retry: Duration::from_millis(5),
            ..ClientSettings::new(format!("http://{address}"))
        };
        let news = Arc::new(Notify::new());
        let notified = Arc::clone(&news);
        let target =
            P4RuntimeDevice::new(settings, &Handle::current(), move || notified.notify_one());
        let mut fixture = Self { device, ports, target, events: Vec::new(), news };
        fixture.poll_until(is_restored).await;
        fixture
    }

    async fn poll_until(&mut self, condition: impl Fn(&[OffloadEvent]) -> bool) {
        let wait = async {
            self.target.poll(&mut self.events);
            while !condition(&self.events) {
                self.news.notified().await;
                self.target.poll(&mut self.events);
            }
        };
        let with_timeout = timeout(TEST_TIMEOUT, wait).await;
        assert!(with_timeout.is_ok(), "the condition did not hold in time: {:?}", self.events);
    }

    /// Executes operations and returns their results by ticket.
    async fn submit(
        &mut self,
        mut batch: Vec<(Ticket, Operation)>,
    ) -> Vec<Result<(), OffloadError>> {
        let count = batch.len();
        self.target.submit(&mut batch).unwrap();
        self.events.clear();
        self.poll_until(|events| results(events).len() == count).await;
        results(&self.events)
    }

    async fn disconnect(&mut self) {
        self.device.habits.is_away.send_replace(true);
        self.poll_until(|events| events.iter().any(|event| matches!(event, OffloadEvent::Lost(_))))
            .await;
        self.events.clear();
    }

    /// Reconnects the device with its entries, but without program or controllers.
    async fn reconnect(&mut self) {
        *self.device.service.lock() = service(&self.device.memory);
        self.device.habits.is_away.send_replace(false);
        self.poll_until(is_restored).await;
    }

    fn entry_names(&self) -> Vec<u64> {
        let memory = self.device.memory.0.lock();
        let mut names: Vec<u64> =
            memory.entries.values().map(|entry| entry.controller_metadata).collect();
        names.sort_unstable();
        names
    }
}

fn service(memory: &MemoryDevice) -> Service {
    Service::new(ServerSettings::default(), memory.clone(), ClockReading::default)
}

/// Serves a device until the test ends.
async fn serve(device: &Device) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Server::builder().add_service(P4RuntimeServer::new(device.clone()));
    let serving = serving.serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(async { serving.await.unwrap() });
    address
}

fn is_restored(events: &[OffloadEvent]) -> bool {
    events.contains(&OffloadEvent::Restored)
}

fn results(events: &[OffloadEvent]) -> Vec<Result<(), OffloadError>> {
    let result = |event: &OffloadEvent| match event {
        OffloadEvent::Completed { ticket, result } => Some((*ticket, result.clone())),
        _ => None,
    };
    let mut results: Vec<_> = events.iter().filter_map(result).collect();
    results.sort_by_key(|(ticket, _)| *ticket);
    results.into_iter().map(|(_, result)| result).collect()
}

fn rule(address: u64, actions: Vec<DatapathAction>) -> Arc<LtmRule> {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::Ipv4Dst, address.into());
    mask.add_field(FieldId::Ipv4Dst);
    Arc::new(LtmRule {
        tag: Tag::new(0),
        matching: Match::new(&key, &mask),
        length: 2,
        next: if actions.is_empty() { Next::Tag(Tag::new(1)) } else { Next::End },
        actions: actions.into(),
        rewrite: Match::any(),
    })
}

fn insert(number: u64, actions: Vec<DatapathAction>) -> (Ticket, Operation) {
    let (entry, stage) = (LtmIndex(number), StageId::new(0).unwrap());
    let rule = rule(number + 1, actions);
    (Ticket(number), Operation::Insert { entry, stage, rule })
}

fn inserts(numbers: impl IntoIterator<Item = u64>) -> Vec<(Ticket, Operation)> {
    numbers.into_iter().map(|number| insert(number, Vec::new())).collect()
}

fn remove(number: u64) -> (Ticket, Operation) {
    (Ticket(number + 1000), Operation::Remove { entry: LtmIndex(number) })
}

#[tokio::test]
async fn inserts_before_failure_are_found() {
    let mut fixture = DeviceFixture::new().await;
    fixture.device.habits.is_terse.store(true, Ordering::SeqCst);
    fixture.device.memory.0.lock().capacity_left = Some(2);
    let results = fixture.submit(inserts(0..3)).await;
    assert_eq!(results, [Ok(()), Ok(()), Err(OffloadError::NoRoom)]);
    // An entry under another name is not the requested one.
    fixture.device.memory.0.lock().capacity_left = None;
    let mut again = insert(1, Vec::new());
    again.1 = match again.1 {
        Operation::Insert { stage, rule, .. } => {
            Operation::Insert { entry: LtmIndex(9), stage, rule }
        }
        other => other,
    };
    let results = fixture.submit(vec![insert(0, Vec::new()), again, insert(4, Vec::new())]).await;
    assert_eq!(results, [Ok(()), Err(OffloadError::Exists), Ok(())]);
    let results = fixture.submit(vec![remove(0), remove(1), remove(2), remove(4)]).await;
    assert_eq!(results, [Ok(()), Ok(()), Err(OffloadError::NoSuchEntry), Ok(())]);
    assert!(fixture.entry_names().is_empty());
}

#[tokio::test]
async fn second_loss_reports_lost_rule() {
    let mut fixture = DeviceFixture::new().await;
    fixture.submit(inserts(0..30)).await;
    fixture.disconnect().await;
    {
        let memory = &mut *fixture.device.memory.0.lock();
        memory.entries.clear();
        memory.capacity_left = Some(10);
    }
    // The repair reads all entries.
    fixture.device.habits.fails_at.store(1, Ordering::SeqCst);
    fixture.reconnect().await;
    let idle =
        fixture.events.iter().filter(|event| matches!(event, OffloadEvent::Idle { .. })).count();
    assert_eq!((idle, fixture.entry_names().len()), (20, 10));
}

#[tokio::test]
async fn an_endless_read_loses_the_device() {
    let mut fixture = DeviceFixture::new().await;
    fixture.submit(inserts(0..3)).await;
    fixture.device.habits.is_endless.store(true, Ordering::SeqCst);
    let entries = (0..3).map(LtmIndex).collect();
    let mut batch = vec![(Ticket(5), Operation::Count { entries })];
    fixture.target.submit(&mut batch).unwrap();
    fixture
        .poll_until(|events| events.iter().any(|event| matches!(event, OffloadEvent::Lost(_))))
        .await;
}

#[tokio::test]
async fn entries_removed_during_a_disconnect_stay_removed() {
    let mut fixture = DeviceFixture::new().await;
    fixture.submit(inserts(0..4)).await;
    let room = fixture.target.room(StageId::new(0).unwrap());
    fixture.disconnect().await;
    fixture.device.memory.0.lock().entries.clear();
    fixture.target.forget(LtmIndex(2));
    fixture.reconnect().await;
    assert_eq!(fixture.entry_names(), [0, 1, 3]);
    assert_eq!(fixture.submit(vec![remove(2)]).await, [Err(OffloadError::NoSuchEntry)]);
    assert_eq!(fixture.target.room(StageId::new(0).unwrap()), room + 1);
}

#[tokio::test]
async fn counting_a_missing_entry_reports_it_idle() {
    let mut fixture = DeviceFixture::new().await;
    fixture.submit(inserts(0..2)).await;
    let entries = vec![LtmIndex(0), LtmIndex(8)];
    let results = fixture.submit(vec![(Ticket(5), Operation::Count { entries })]).await;
    assert_eq!(results, [Err(OffloadError::NoSuchEntry)]);
    assert!(fixture.events.contains(&OffloadEvent::Idle { entry: LtmIndex(8) }));
}

#[tokio::test]
async fn removed_port_refuses_new_rules_only() {
    let mut fixture = DeviceFixture::new().await;
    let output = |port| {
        let port = DatapathPort::new(port);
        vec![DatapathAction::Output {
            port,
            queue: QueueId::DEFAULT,
            unless_ingress: true,
            max_len: None,
        }]
    };
    assert_eq!(
        fixture.submit(vec![insert(0, output(7)), insert(1, output(7))]).await,
        [Ok(()), Ok(())]
    );
    fixture.ports.remove(DatapathPort::new(7));
    fixture.target.poll(&mut Vec::new());
    assert!(fixture.target.capabilities().outputs.as_ref().unwrap().is_empty());
    let refused = fixture.submit(vec![insert(2, output(7))]).await;
    assert!(matches!(refused[..], [Err(OffloadError::Refused(_))]), "{refused:?}");
    assert_eq!(fixture.submit(vec![remove(0)]).await, [Ok(())]);
    assert_eq!(fixture.entry_names(), [1]);
    // A rule that can no longer be encoded is not restored, and its owner is notified.
    fixture.disconnect().await;
    fixture.reconnect().await;
    assert!(fixture.entry_names().is_empty());
    assert!(fixture.events.contains(&OffloadEvent::Idle { entry: LtmIndex(1) }));
}
