//! Tests of the client: confirmed entries stay in the device, whatever happens to the connection.

#![expect(clippy::unwrap_used, reason = "a device that does not respond fails the test")]

mod device_config;
mod probe;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    offload::{LtmIndex, OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket},
    partition::StageId,
};
use shunt_p4runtime::{
    client::{ClientSettings, P4RuntimeDevice, PacketToSend},
    codec::Ports,
    server::{ClockReading, EntryHits, GrpcServer, ServerSettings, Service},
    testing::MemoryDevice,
    wire::p4::v1::{PacketIn, PacketMetadata, TableEntry, update::Type},
};
use shunt_pipeline::DatapathPort;
use shunt_testkit::offload::{Chaos, ChaosSettings};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tonic::Code;

/// A device with a server that can be stopped and restarted.
struct RestartableServer {
    device: MemoryDevice,
    address: SocketAddr,
    service: Service,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    /// Signals that the client has events.
    news: Arc<Notify>,
}

impl RestartableServer {
    async fn new() -> Self {
        let device = MemoryDevice::default();
        let service = service(&device);
        let (address, news) = ("127.0.0.1:0".parse().unwrap(), Arc::new(Notify::new()));
        let mut server = Self { device, address, service, running: None, news };
        server.start().await;
        server
    }

    async fn start(&mut self) {
        let server = GrpcServer::bind(self.address).await.unwrap();
        self.address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let service = self.service.clone();
        let run = async move {
            server.run(service, async { drop(stopped.await) }).await.unwrap();
        };
        self.running = Some((stop, tokio::spawn(run)));
    }

    async fn stop(&mut self) {
        let (stop, running) = self.running.take().unwrap();
        drop(stop);
        running.await.unwrap();
    }

    fn settings(&self) -> ClientSettings {
        ClientSettings {
            ports: Ports(BTreeMap::from([(DatapathPort::new(1), 1)])).into(),
            idle: Some(Duration::from_secs(1)),
            retry: Duration::from_millis(5),
            ..ClientSettings::new(format!("http://{}", self.address))
        }
    }

    fn entry_names(&self) -> Vec<u64> {
        let memory = self.device.0.lock();
        let mut names: Vec<u64> =
            memory.entries.values().map(|entry| entry.controller_metadata).collect();
        names.sort_unstable();
        names
    }
}

fn service(device: &MemoryDevice) -> Service {
    Service::new(ServerSettings::default(), device.clone(), ClockReading::default)
}

/// Limit for operations that take milliseconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Polls the client on each wake-up until a condition holds.
async fn poll_until(
    server: &RestartableServer,
    target: &mut impl OffloadDevice,
    events: &mut Vec<OffloadEvent>,
    condition: impl Fn(&[OffloadEvent]) -> bool,
) {
    let wait = async {
        target.poll(events);
        while !condition(events) {
            server.news.notified().await;
            target.poll(events);
        }
    };
    let with_timeout = timeout(TEST_TIMEOUT, wait).await;
    assert!(with_timeout.is_ok(), "the condition did not hold in time: {events:?}");
}

async fn connect(server: &RestartableServer) -> P4RuntimeDevice {
    connect_with(server, server.settings()).await
}

async fn connect_with(server: &RestartableServer, settings: ClientSettings) -> P4RuntimeDevice {
    let news = Arc::clone(&server.news);
    let mut target = P4RuntimeDevice::new(settings, &Handle::current(), move || news.notify_one());
    poll_until(server, &mut target, &mut Vec::new(), is_restored).await;
    target
}

fn is_restored(events: &[OffloadEvent]) -> bool {
    events.contains(&OffloadEvent::Restored)
}

fn rule(address: u32) -> Arc<LtmRule> {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::Ipv4Dst, address.into());
    mask.add_field(FieldId::Ipv4Dst);
    Arc::new(LtmRule {
        tag: Tag::new(0),
        matching: Match::new(&key, &mask),
        length: 2,
        actions: [].into(),
        rewrite: Match::any(),
        next: Next::Tag(Tag::new(1)),
    })
}

fn insert(number: u64) -> (Ticket, Operation) {
    let stage = StageId::new(0).unwrap();
    let address = u32::try_from(number).unwrap() + 1;
    (Ticket(number), Operation::Insert { entry: LtmIndex(number), stage, rule: rule(address) })
}

async fn run_operations(
    server: &RestartableServer,
    target: &mut impl OffloadDevice,
    mut batch: Vec<(Ticket, Operation)>,
) -> Vec<OffloadEvent> {
    let count = batch.len();
    let mut events = Vec::new();
    while !batch.is_empty() {
        target.submit(&mut batch).unwrap();
        tokio::task::yield_now().await;
    }
    let count_completed = |events: &[OffloadEvent]| {
        events.iter().filter(|event| matches!(event, OffloadEvent::Completed { .. })).count()
    };
    poll_until(server, target, &mut events, |events| count_completed(events) == count).await;
    events
}

fn completed_event(ticket: u64, result: Result<(), OffloadError>) -> OffloadEvent {
    OffloadEvent::Completed { ticket: Ticket(ticket), result }
}

#[tokio::test]
async fn an_inserted_entry_has_its_name() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    let stage = StageId::new(0).unwrap();
    let room = target.room(stage);
    let events = run_operations(&server, &mut target, (0..1000).map(insert).collect()).await;
    assert_eq!(events, (0..1000).map(|ticket| completed_event(ticket, Ok(()))).collect::<Vec<_>>());
    assert_eq!(server.entry_names(), (0..1000).collect::<Vec<_>>());
    assert_eq!(target.room(stage), room - 1000);
}

#[tokio::test]
async fn each_operation_has_its_own_result() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, vec![insert(1)]).await;
    let remove = |entry| Operation::Remove { entry: LtmIndex(entry) };
    let mut again = insert(1);
    again.0 = Ticket(2);
    let wide = LtmRule { tag: Tag::new(1 << 20), ..(*rule(1)).clone() };
    let stage = StageId::new(0).unwrap();
    let refused = Operation::Insert { entry: LtmIndex(9), stage, rule: Arc::new(wide) };
    let nowhere =
        Operation::Insert { entry: LtmIndex(9), stage: StageId::new(9).unwrap(), rule: rule(1) };
    let mut events = run_operations(
        &server,
        &mut target,
        vec![
            again,
            (Ticket(3), remove(7)),
            (Ticket(4), refused),
            (Ticket(5), nowhere),
            (Ticket(6), remove(1)),
        ],
    )
    .await;
    events.retain(|event| matches!(event, OffloadEvent::Completed { .. }));
    events.sort_by_key(|event| match event {
        OffloadEvent::Completed { ticket, .. } => *ticket,
        _ => Ticket(0),
    });
    assert_eq!(events[0], completed_event(2, Err(OffloadError::Exists)));
    assert_eq!(events[1], completed_event(3, Err(OffloadError::NoSuchEntry)));
    assert!(matches!(
        &events[2],
        OffloadEvent::Completed { result: Err(OffloadError::Refused(_)), .. }
    ));
    assert_eq!(events[3], completed_event(5, Err(OffloadError::NoSuchStage(9))));
    assert_eq!(events[4], completed_event(6, Ok(())));
    assert!(server.entry_names().is_empty());
}

#[tokio::test]
async fn a_modify_replaces_the_actions_of_an_entry() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, vec![insert(1)]).await;
    let before = server.device.0.lock().entries.values().next().unwrap().clone();
    let rule = Arc::new(LtmRule { next: Next::Tag(Tag::new(5)), ..(*rule(2)).clone() });
    let modify = Operation::Modify { entry: LtmIndex(1), rule };
    assert_eq!(
        run_operations(&server, &mut target, vec![(Ticket(2), modify)]).await,
        [completed_event(2, Ok(()))]
    );
    let after = server.device.0.lock().entries.values().next().unwrap().clone();
    assert_ne!(after.action, before.action);
    assert_eq!((after.r#match, after.controller_metadata), (before.r#match, 1));
}

#[tokio::test]
async fn a_removal_returns_the_hits() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, (0..3).map(insert).collect()).await;
    let numbers: Vec<_> = server.device.0.lock().entries.keys().copied().collect();
    for (no, packets) in numbers.into_iter().zip([5, 6, 7]) {
        let hits = EntryHits { packets, bytes: packets * 100, last: None };
        server.device.0.lock().hits.insert(no, hits);
    }
    let entries = vec![LtmIndex(0), LtmIndex(2)];
    let events =
        run_operations(&server, &mut target, vec![(Ticket(9), Operation::Count { entries })]).await;
    let counted = |events: &[OffloadEvent]| {
        let mut list: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                OffloadEvent::Counted { entry, counters } => Some((entry.0, counters.packets)),
                _ => None,
            })
            .collect();
        list.sort_unstable();
        list
    };
    assert_eq!(counted(&events), [(0, 5), (2, 7)]);
    let remove = Operation::Remove { entry: LtmIndex(1) };
    let events = run_operations(&server, &mut target, vec![(Ticket(10), remove)]).await;
    assert_eq!(counted(&events), [(1, 6)]);
}

#[tokio::test]
async fn a_full_stage_refuses_inserts() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    server.device.0.lock().capacity_left = Some(1);
    let events = run_operations(&server, &mut target, vec![insert(1), insert(2)]).await;
    assert_eq!(events, [completed_event(1, Ok(())), completed_event(2, Err(OffloadError::NoRoom))]);
    let stage = StageId::new(0).unwrap();
    assert_eq!(target.room(stage), target.capabilities().stage_entries[0] - 1);
}

#[tokio::test]
async fn an_idle_entry_is_reported_by_its_name() {
    let server = RestartableServer::new().await;
    let time = Arc::new(parking_lot_time::Time::default());
    let clock = Arc::clone(&time);
    let mut server = server;
    server.stop().await;
    server.service = Service::new(ServerSettings::default(), server.device.clone(), move || {
        ClockReading { steady: clock.now(), ..ClockReading::default() }
    });
    server.start().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, vec![insert(4)]).await;
    time.pass(Duration::from_secs(2));
    poll_until(&server, &mut target, &mut Vec::new(), |events| {
        events.contains(&OffloadEvent::Idle { entry: LtmIndex(4) })
    })
    .await;
}

/// A clock that tests set.
mod parking_lot_time {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    /// A clock that tests advance, in milliseconds.
    #[derive(Default)]
    pub(super) struct Time(AtomicU64);

    impl Time {
        pub(super) fn now(&self) -> Duration {
            Duration::from_secs(1000) + Duration::from_millis(self.0.load(Ordering::SeqCst))
        }

        pub(super) fn pass(&self, time: Duration) {
            self.0.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn packet_ins_and_packet_outs_pass() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    let field = |metadata_id, value: u8| PacketMetadata { metadata_id, value: vec![value] };
    let metadata = vec![field(1, 3), field(2, 0), field(3, 9), field(4, 1)];
    assert!(server.service.packet_in(PacketIn { payload: b"frame".to_vec(), metadata }));
    let mut packets = Vec::new();
    let wait = async {
        packets.extend(target.take_packets());
        while packets.is_empty() {
            server.news.notified().await;
            packets.extend(target.take_packets());
        }
    };
    timeout(TEST_TIMEOUT, wait).await.unwrap();
    let packet = packets.pop().unwrap();
    assert_eq!((packet.ingress_port, packet.miss_tag, packet.last_stage), (3, 9, 1));
    assert_eq!(packet.payload, b"frame");
    target.send(PacketToSend::Direct { port: 2, payload: b"back".to_vec() }).unwrap();
    let sent = Arc::clone(&server.device.0.lock().news);
    timeout(TEST_TIMEOUT, sent.notified()).await.unwrap();
    assert_eq!(server.device.0.lock().sent.pop().unwrap().payload, b"back");
}

#[tokio::test]
async fn a_restored_session_has_all_confirmed_entries() {
    let mut server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, (0..300).map(insert).collect()).await;
    server.stop().await;
    let mut events = Vec::new();
    poll_until(&server, &mut target, &mut events, is_lost).await;
    assert!(target.submit(&mut vec![insert(999)]).is_err());
    // The device loses all entries, and its server with it.
    server.device.0.lock().entries.clear();
    server.service = service(&server.device);
    server.start().await;
    poll_until(&server, &mut target, &mut events, is_restored).await;
    assert_eq!(server.entry_names(), (0..300).collect::<Vec<_>>());
    let stage = StageId::new(0).unwrap();
    assert_eq!(target.room(stage), target.capabilities().stage_entries[0] - 300);
    assert_eq!(
        run_operations(&server, &mut target, vec![insert(500)]).await,
        [completed_event(500, Ok(()))]
    );
}

#[tokio::test]
async fn an_emptied_device_gets_thousands_of_entries_back() {
    let mut server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, (0..5000).map(insert).collect()).await;
    let before = entries(&server);
    assert_eq!(before.len(), 5000);
    server.stop().await;
    let mut events = Vec::new();
    poll_until(&server, &mut target, &mut events, is_lost).await;
    server.device.0.lock().entries.clear();
    server.service = service(&server.device);
    server.start().await;
    poll_until(&server, &mut target, &mut events, is_restored).await;
    assert_eq!(entries(&server), before);
}

#[tokio::test]
async fn a_client_takes_over_from_another_controller() {
    let server = RestartableServer::new().await;
    let mut first = connect(&server).await;
    run_operations(&server, &mut first, vec![insert(1)]).await;
    // The second client tries the same election id, finds it taken, and raises it.
    let mut second = connect(&server).await;
    let mut events = Vec::new();
    poll_until(&server, &mut first, &mut events, |events| {
        events.iter().any(|event| matches!(event, OffloadEvent::Lost(_)))
    })
    .await;
    drop(first);
    // Entries of the first client are no entries of the second client.
    run_operations(&server, &mut second, vec![insert(2)]).await;
    assert_eq!(server.entry_names(), [2]);
}

/// Waits a moment for events.
///
/// Only a moment, because [`Chaos`] delays events by a number of polls.
async fn next_poll(server: &RestartableServer) {
    let _ = timeout(Duration::from_millis(1), server.news.notified()).await;
}

#[tokio::test]
async fn a_faulty_connection_loses_no_result_or_entry() {
    let server = RestartableServer::new().await;
    let inner = connect(&server).await;
    let settings = ChaosSettings {
        delay: 64,
        hold_back: 64,
        reject: 64,
        disconnect: 32,
        away: 3,
        made_up_room: 100,
    };
    let mut target = Chaos::new(inner, settings, 7);
    let (mut batch, mut events) = ((0..200).map(insert).collect::<Vec<_>>(), Vec::new());
    let completed_count = |events: &[OffloadEvent]| {
        events.iter().filter(|event| matches!(event, OffloadEvent::Completed { .. })).count()
    };
    while completed_count(&events) < 200 {
        let mut part: Vec<_> = batch.drain(..batch.len().min(20)).collect();
        if target.submit(&mut part).is_err() {
            // A lost device accepts no operation, so operations wait.
            batch.splice(..0, part);
        }
        target.poll(&mut events);
        next_poll(&server).await;
    }
    // An update with a lost result is undone before the device is restored.
    while !target.is_connected() {
        target.poll(&mut events);
        next_poll(&server).await;
    }
    let mut confirmed: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            OffloadEvent::Completed { ticket, result: Ok(()) } => Some(ticket.0),
            _ => None,
        })
        .collect();
    confirmed.sort_unstable();
    assert_eq!(server.entry_names(), confirmed);
    assert!(confirmed.len() < 200, "some entries found no room");
}

#[tokio::test]
async fn the_first_tag_is_set_with_every_session() {
    let server = RestartableServer::new().await;
    let settings = ClientSettings { start_tag: 12, ..server.settings() };
    let _target = connect_with(&server, settings).await;
    let defaults = server.device.0.lock().defaults.clone();
    let start = &defaults[&shunt_p4runtime::program::START_TABLE];
    assert_eq!(start.as_ref().unwrap().params[0].value[..], [12]);
}

/// Another controller, controlled by the test.
mod rival {
    use shunt_p4runtime::wire::p4::v1::{
        Entity, MasterArbitrationUpdate, StreamMessageRequest, StreamMessageResponse, TableEntry,
        Uint128, Update, WriteRequest, entity, p4_runtime_client::P4RuntimeClient,
        stream_message_request, update::Type,
    };
    use tonic::{Code, Streaming, transport::Channel};

    /// A second controller, which competes for the primary role.
    pub(super) struct RivalController {
        client: P4RuntimeClient<Channel>,
        election: u64,
        stream: Option<(
            tokio::sync::mpsc::Sender<StreamMessageRequest>,
            Streaming<StreamMessageResponse>,
        )>,
    }

    impl RivalController {
        /// Creates a controller that writes under an election id and has no stream.
        pub(super) async fn new(address: std::net::SocketAddr, election: u64) -> Self {
            let client = P4RuntimeClient::connect(format!("http://{address}")).await.unwrap();
            Self { client, election, stream: None }
        }

        fn id(&self) -> Option<Uint128> {
            Some(Uint128 { high: 0, low: self.election })
        }

        pub(super) async fn become_primary(&mut self) {
            let (sender, receiver) = tokio::sync::mpsc::channel(4);
            let hello = MasterArbitrationUpdate {
                device_id: 1,
                election_id: self.id(),
                ..Default::default()
            };
            let update = Some(stream_message_request::Update::Arbitration(hello));
            sender.send(StreamMessageRequest { update }).await.unwrap();
            let receiver = tokio_stream::wrappers::ReceiverStream::new(receiver);
            let mut stream = self.client.stream_channel(receiver).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap();
            self.stream = Some((sender, stream));
        }

        pub(super) async fn write(&mut self, kind: Type, entry: TableEntry) -> Result<(), Code> {
            let entity = Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
            let request = WriteRequest {
                device_id: 1,
                election_id: self.id(),
                updates: vec![Update { r#type: kind.into(), entity: Some(entity) }],
                ..Default::default()
            };
            self.client.write(request).await.map(drop).map_err(|status| status.code())
        }
    }
}

fn is_lost(events: &[OffloadEvent]) -> bool {
    events.iter().any(|event| matches!(event, OffloadEvent::Lost(_)))
}

/// Returns the entries of the device without their numbers.
fn entries(server: &RestartableServer) -> Vec<TableEntry> {
    let memory = server.device.0.lock();
    let mut entries: Vec<TableEntry> = memory.entries.values().cloned().collect();
    entries.sort_by_key(|entry| (entry.controller_metadata, entry.priority));
    entries
}

#[tokio::test]
async fn changes_of_another_controller_are_repaired() {
    let server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, (0..300).map(insert).collect()).await;
    let before = entries(&server);
    let mut rival = rival::RivalController::new(server.address, 1000).await;
    rival.become_primary().await;
    let mut events = Vec::new();
    poll_until(&server, &mut target, &mut events, is_lost).await;
    for (number, entry) in before.iter().enumerate() {
        match number % 4 {
            0 => rival.write(Type::Delete, entry.clone()).await.unwrap(),
            1 => {
                let action = before[(number + 1) % 2].action.clone();
                let other = TableEntry { controller_metadata: 7777, action, ..entry.clone() };
                rival.write(Type::Modify, other).await.unwrap();
            }
            2 => {
                let other = TableEntry { priority: 99, ..entry.clone() };
                rival.write(Type::Insert, other).await.unwrap();
            }
            _ => {}
        }
    }
    assert_ne!(entries(&server), before);
    drop(rival);
    poll_until(&server, &mut target, &mut events, is_restored).await;
    assert_eq!(entries(&server), before);
}

#[tokio::test]
async fn late_write_of_old_session_is_refused() {
    let mut server = RestartableServer::new().await;
    let mut target = connect(&server).await;
    run_operations(&server, &mut target, vec![insert(1)]).await;
    let unknown = TableEntry { priority: 77, ..entries(&server)[0].clone() };
    server.stop().await;
    let mut events = Vec::new();
    poll_until(&server, &mut target, &mut events, is_lost).await;
    server.start().await;
    poll_until(&server, &mut target, &mut events, is_restored).await;
    // The late write of the first session arrives now.
    let mut late = rival::RivalController::new(server.address, 1).await;
    assert_eq!(late.write(Type::Insert, unknown).await, Err(Code::PermissionDenied));
    assert_eq!(server.entry_names(), [1]);
}

#[tokio::test]
async fn concurrent_writes_each_get_a_result() {
    let server = RestartableServer::new().await;
    let settings = ClientSettings { batch: 3, ..server.settings() };
    let mut target = connect_with(&server, settings).await;
    let remove = |number| (Ticket(number + 100), Operation::Remove { entry: LtmIndex(number) });
    // Removals wait for the results of earlier insertions.
    let batch: Vec<_> = (0..50).map(insert).chain((0..50).step_by(2).map(remove)).collect();
    let events = run_operations(&server, &mut target, batch).await;
    let failed = events
        .iter()
        .filter(|event| matches!(event, OffloadEvent::Completed { result: Err(_), .. }));
    assert_eq!(failed.count(), 0);
    assert_eq!(server.entry_names(), (1..50).step_by(2).collect::<Vec<_>>());
}
