//! The client and devices that are not like ours: what they do not say, and what they do not keep.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a device that does not answer fails the test"
)]

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
    client::{LivePorts, P4RuntimeDevice, Settings},
    error::batch_codes,
    server::{Now, Service, Settings as ServerSettings},
    testing::MemoryDevice,
    wire::p4::v1::{
        CapabilitiesRequest, CapabilitiesResponse, GetForwardingPipelineConfigRequest,
        GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse,
        SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
        StreamMessageRequest, StreamMessageResponse, WriteRequest, WriteResponse,
        p4_runtime_server::{P4Runtime, P4RuntimeServer},
    },
};
use shunt_pipeline::{DatapathAction, DatapathPort};
use tokio::{net::TcpListener, runtime::Handle, sync::mpsc};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

/// A device with habits of its own.
#[derive(Clone)]
struct Device {
    memory: MemoryDevice,
    service: Arc<Mutex<Service>>,
    habits: Arc<Habits>,
}

#[derive(Default)]
struct Habits {
    /// It does not say which parts of a batch failed.
    is_terse: AtomicBool,
    /// Nobody reaches it.
    is_away: AtomicBool,
    /// It never ends a reading.
    is_endless: AtomicBool,
    /// The reading that fails, counted from one that comes; 0: none.
    fails_at: AtomicU32,
}

impl Device {
    fn service(&self) -> Service {
        self.service.lock().clone()
    }

    fn check_there(&self) -> Result<(), Status> {
        let is_away = self.habits.is_away.load(Ordering::SeqCst);
        if is_away { Err(Status::unavailable("nobody is there")) } else { Ok(()) }
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
        let answered = self.service().read(request).await?;
        if !self.habits.is_endless.load(Ordering::SeqCst) {
            return Ok(answered);
        }
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut stream = answered.into_inner();
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
        let habits = Arc::clone(&self.habits);
        tokio::spawn(async move {
            while !habits.is_away.load(Ordering::SeqCst) {
                tokio::select! {
                    Some(message) = stream.next() => drop(sender.send(message).await),
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
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

/// A device that is served, and a target that it has been restored for.
struct World {
    device: Device,
    ports: LivePorts,
    target: P4RuntimeDevice,
    events: Vec<OffloadEvent>,
}

impl World {
    async fn new() -> Self {
        let memory = MemoryDevice::default();
        let service = Arc::new(Mutex::new(service(&memory)));
        let device = Device { memory, service, habits: Arc::default() };
        let address = serve(&device).await;
        let ports = LivePorts::default();
        ports.add(DatapathPort::new(7), 1);
        let settings = Settings {
            ports: ports.clone(),
            retry: Duration::from_millis(5),
            ..Settings::new(format!("http://{address}"))
        };
        let target = P4RuntimeDevice::new(settings, &Handle::current(), || ());
        let mut world = Self { device, ports, target, events: Vec::new() };
        world.until(is_restored).await;
        world
    }

    async fn until(&mut self, is_so: impl Fn(&[OffloadEvent]) -> bool) {
        for _ in 0..4000 {
            self.target.poll(&mut self.events);
            if is_so(&self.events) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it did not come to that: {:?}", self.events);
    }

    /// The answers to operations, by ticket.
    async fn ask(&mut self, mut batch: Vec<(Ticket, Operation)>) -> Vec<Result<(), OffloadError>> {
        let count = batch.len();
        self.target.submit(&mut batch).unwrap();
        self.events.clear();
        self.until(|events| answers(events).len() == count).await;
        answers(&self.events)
    }

    async fn goes_away(&mut self) {
        self.device.habits.is_away.store(true, Ordering::SeqCst);
        self.until(|events| events.iter().any(|event| matches!(event, OffloadEvent::Lost(_))))
            .await;
        self.events.clear();
    }

    /// It comes back with what its memory holds, and knows of no program and of nobody.
    async fn comes_back(&mut self) {
        *self.device.service.lock() = service(&self.device.memory);
        self.device.habits.is_away.store(false, Ordering::SeqCst);
        self.until(is_restored).await;
    }

    fn held(&self) -> Vec<u64> {
        let memory = self.device.memory.0.lock();
        let mut names: Vec<u64> =
            memory.entries.values().map(|entry| entry.controller_metadata).collect();
        names.sort_unstable();
        names
    }
}

fn service(memory: &MemoryDevice) -> Service {
    Service::new(ServerSettings::default(), memory.clone(), Now::default)
}

/// Serves a device for as long as the test runs.
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

fn answers(events: &[OffloadEvent]) -> Vec<Result<(), OffloadError>> {
    let answer = |event: &OffloadEvent| match event {
        OffloadEvent::Completed { ticket, result } => Some((*ticket, result.clone())),
        _ => None,
    };
    let mut answers: Vec<_> = events.iter().filter_map(answer).collect();
    answers.sort_by_key(|(ticket, _)| *ticket);
    answers.into_iter().map(|(_, result)| result).collect()
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
async fn what_was_inserted_before_its_batch_failed_is_known_though_the_device_says_nothing() {
    let mut world = World::new().await;
    world.device.habits.is_terse.store(true, Ordering::SeqCst);
    world.device.memory.0.lock().room = Some(2);
    let answers = world.ask(inserts(0..3)).await;
    assert_eq!(answers, [Ok(()), Ok(()), Err(OffloadError::NoRoom)]);
    // One that is there under another name is not the one that is asked for.
    world.device.memory.0.lock().room = None;
    let mut again = insert(1, Vec::new());
    again.1 = match again.1 {
        Operation::Insert { stage, rule, .. } => {
            Operation::Insert { entry: LtmIndex(9), stage, rule }
        }
        other => other,
    };
    let answers = world.ask(vec![insert(0, Vec::new()), again, insert(4, Vec::new())]).await;
    assert_eq!(answers, [Ok(()), Err(OffloadError::Exists), Ok(())]);
    let answers = world.ask(vec![remove(0), remove(1), remove(2), remove(4)]).await;
    assert_eq!(answers, [Ok(()), Ok(()), Err(OffloadError::NoSuchEntry), Ok(())]);
    assert!(world.held().is_empty());
}

#[tokio::test]
async fn what_a_device_did_not_take_again_is_told_though_it_was_lost_once_more() {
    let mut world = World::new().await;
    world.ask(inserts(0..30)).await;
    world.goes_away().await;
    {
        let memory = &mut *world.device.memory.0.lock();
        memory.entries.clear();
        memory.room = Some(10);
    }
    // It is read when it is repaired.
    world.device.habits.fails_at.store(1, Ordering::SeqCst);
    world.comes_back().await;
    let idle =
        world.events.iter().filter(|event| matches!(event, OffloadEvent::Idle { .. })).count();
    assert_eq!((idle, world.held().len()), (20, 10));
}

#[tokio::test]
async fn a_device_that_never_ends_a_reading_is_lost() {
    let mut world = World::new().await;
    world.ask(inserts(0..3)).await;
    world.device.habits.is_endless.store(true, Ordering::SeqCst);
    let entries = (0..3).map(LtmIndex).collect();
    let mut batch = vec![(Ticket(5), Operation::Count { entries })];
    world.target.submit(&mut batch).unwrap();
    world.until(|events| events.iter().any(|event| matches!(event, OffloadEvent::Lost(_)))).await;
}

#[tokio::test]
async fn what_is_to_go_while_a_device_is_away_is_not_put_back() {
    let mut world = World::new().await;
    world.ask(inserts(0..4)).await;
    let room = world.target.room(StageId::new(0).unwrap());
    world.goes_away().await;
    world.device.memory.0.lock().entries.clear();
    world.target.forget(LtmIndex(2));
    world.comes_back().await;
    assert_eq!(world.held(), [0, 1, 3]);
    assert_eq!(world.ask(vec![remove(2)]).await, [Err(OffloadError::NoSuchEntry)]);
    assert_eq!(world.target.room(StageId::new(0).unwrap()), room + 1);
}

#[tokio::test]
async fn who_counts_what_is_not_there_hears_that_it_is_idle() {
    let mut world = World::new().await;
    world.ask(inserts(0..2)).await;
    let entries = vec![LtmIndex(0), LtmIndex(8)];
    let answers = world.ask(vec![(Ticket(5), Operation::Count { entries })]).await;
    assert_eq!(answers, [Err(OffloadError::NoSuchEntry)]);
    assert!(world.events.contains(&OffloadEvent::Idle { entry: LtmIndex(8) }));
}

#[tokio::test]
async fn a_port_that_is_gone_takes_no_rule_with_it_and_gets_no_other() {
    let mut world = World::new().await;
    let output = |port| {
        let port = DatapathPort::new(port);
        vec![DatapathAction::Output { port, unless_ingress: true, max_len: None }]
    };
    assert_eq!(world.ask(vec![insert(0, output(7)), insert(1, output(7))]).await, [Ok(()), Ok(())]);
    world.ports.remove(DatapathPort::new(7));
    world.target.poll(&mut Vec::new());
    assert!(world.target.capabilities().outputs.as_ref().unwrap().is_empty());
    let refused = world.ask(vec![insert(2, output(7))]).await;
    assert!(matches!(refused[..], [Err(OffloadError::Refused(_))]), "{refused:?}");
    assert_eq!(world.ask(vec![remove(0)]).await, [Ok(())]);
    assert_eq!(world.held(), [1]);
    // What nobody can say any more is not put back, and its owner hears of it.
    world.goes_away().await;
    world.comes_back().await;
    assert!(world.held().is_empty());
    assert!(world.events.contains(&OffloadEvent::Idle { entry: LtmIndex(1) }));
}
