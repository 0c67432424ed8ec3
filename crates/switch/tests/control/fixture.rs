//! Test fixtures: a switch, ports made of channels, and a controller.

use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use shunt_datapath::{
    BURST, Packet, Pool, PortError, RxQueue, TxQueue,
    port::{
        AssignedRxQueue, Capabilities, FirstThread, FrameCopies, Port, PortCopies, PortCounters,
        Queues, RxReport, SplitQueues,
    },
};
use shunt_flow::text::NoPortNames;
use shunt_ofproto::{
    message::{Hello, Message, SwitchConfig, Xid},
    wire::{header::Header, v13},
};
use shunt_pipeline::{DatapathPort, GroupCommand, Iterative, text::parse_group_mod};
use shunt_switch::{BridgePortStatus, Config, EngineMaker, Switch, ThreadState, config};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::{sleep, timeout},
};

/// Maximum time that a test waits.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

/// A frame that makes its packet thread panic.
pub(crate) const PANIC: &[u8] = b"panic";

/// A frame that breaks its receive queue.
pub(crate) const BREAK: &[u8] = b"break";

/// A frame after which the packet thread waits at the gate of the port.
/// Frames before it are processed first.
pub(crate) const HOLD: &[u8] = b"hold";

/// A switch with one bridge, `br0`.
pub(crate) struct SwitchFixture {
    pub(crate) switch: Switch,
    folder: TempDir,
}

impl SwitchFixture {
    pub(crate) async fn start(threads: u16) -> Self {
        let engine: EngineMaker = Box::new(|pipeline| Box::new(Iterative::new(pipeline)));
        let fixture = Self::without_bridge(threads, engine).await;
        fixture.add_bridge("br0").await;
        fixture
    }

    /// Starts a switch with the configuration `config`, without a bridge.
    pub(crate) async fn of(config: &Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = Some(folder.path().to_owned());
        Self { switch: Switch::start(config, run_dir, 1).await.unwrap(), folder }
    }

    /// Starts a switch without a bridge; the test supplies the eviction engine.
    ///
    /// No predictor runs, so each cache entry was made for a packet that missed.
    pub(crate) async fn without_bridge(threads: u16, engine: EngineMaker) -> Self {
        let mut config = Config::default();
        config.foresight.predictors.clear();
        config.threads.packet = threads;
        config.caches.verify_one_in = 1;
        Self::with_engine(&config, engine).await
    }

    /// Starts a switch with a configuration; the test supplies the eviction engine.
    pub(crate) async fn with_engine(config: &Config, engine: EngineMaker) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = Some(folder.path().to_owned());
        let switch = Switch::start_with(config, run_dir, 1, engine).await.unwrap();
        Self { switch, folder }
    }

    pub(crate) async fn add_bridge(&self, name: &str) {
        let bridge =
            config::BridgeOptions { name: name.to_owned(), ..config::BridgeOptions::default() };
        self.switch.add_bridge(&bridge).await.unwrap();
    }

    /// Adds a port to `br0`; one packet thread receives from it.
    pub(crate) async fn add_port(&self, name: &str, receiver: usize) -> FarEnd {
        let (port, far_end) = wire(receiver);
        self.switch.add_own_port("br0", name, port).await.unwrap();
        far_end
    }

    /// Adds a port to `br0`; the least loaded packet thread receives from it.
    pub(crate) async fn add_placed_port(&self, name: &str) -> FarEnd {
        let (port, far_end) = wire_to(0, FirstThread::LeastLoaded);
        self.switch.add_own_port("br0", name, port).await.unwrap();
        far_end
    }

    /// Connects a controller to `br0`; it receives all asynchronous messages.
    pub(crate) async fn controller(&self) -> Controller {
        self.controller_of("br0").await
    }

    pub(crate) async fn controller_of(&self, bridge: &str) -> Controller {
        Controller::connect(&self.folder.path().join(format!("{bridge}.mgmt"))).await
    }

    /// Adds groups to `br0`, in the syntax of `ovs-ofctl add-group`.
    pub(crate) async fn add_groups(&self, groups: &[&str]) {
        let mut controller = self.controller().await;
        for text in groups {
            let request = parse_group_mod(GroupCommand::Add, text, &NoPortNames).unwrap();
            controller.send(&Message::GroupMod(request)).await;
        }
        assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    }

    /// Returns the states of all threads but the offload thread.
    pub(crate) fn threads(&self) -> Vec<ThreadState> {
        self.switch.threads().iter().map(|thread| thread.state).collect()
    }

    pub(crate) fn port(&self, name: &str) -> BridgePortStatus {
        let bridges = self.switch.bridges();
        let mut ports = bridges.iter().flat_map(|bridge| &bridge.ports);
        ports.find(|port| port.name == name).unwrap().clone()
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(is_true: impl Fn() -> bool) {
    let wait = async {
        while !is_true() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(WAIT_MAX, wait).await.unwrap();
}

/// Awaits `work`, which must complete in [`WAIT_MAX`].
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(WAIT_MAX, work).await.unwrap()
}

/// Returns a frame of an unknown protocol.
pub(crate) fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![number; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// A gate at which threads wait while it is closed.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    is_met: AtomicBool,
    /// Notified when the gate opens.
    opens: Condvar,
    lock: Mutex<()>,
}

/// Keeps a gate closed until it is dropped.
pub(crate) struct Closed<'a>(&'a Gate);

impl Gate {
    pub(crate) fn close(&self) -> Closed<'_> {
        self.is_closed.store(true, Ordering::Relaxed);
        Closed(self)
    }

    /// Waits while the gate is closed.
    pub(crate) fn pass(&self) {
        while self.is_closed.load(Ordering::Relaxed) {
            self.is_met.store(true, Ordering::Relaxed);
            // A notification before the wait is lost, which the time limit makes up for.
            let guard = self.lock.lock().unwrap();
            drop(self.opens.wait_timeout(guard, Duration::from_millis(5)).unwrap());
        }
        self.is_met.store(false, Ordering::Relaxed);
    }

    /// Waits until a thread is at the gate.
    pub(crate) async fn wait_for_thread(&self) {
        wait_until(|| self.is_met.load(Ordering::Relaxed)).await;
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(false, Ordering::Relaxed);
        self.0.opens.notify_all();
    }
}

/// The far end of a port, where the test sends and receives frames.
pub(crate) struct FarEnd {
    pub(crate) gate: Arc<Gate>,
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    parts: Arc<()>,
    lost: Arc<[AtomicU64; 2]>,
}

impl FarEnd {
    /// Sets the counters of frames that the device lost on receipt and on sending.
    pub(crate) fn lose(&self, rx: u64, tx: u64) {
        [rx, tx]
            .iter()
            .zip(&*self.lost)
            .for_each(|(own, lost)| lost.store(*own, Ordering::Relaxed));
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // If the port is closed already, the frame is dropped.
        let _ = self.to.send(frame.to_vec());
    }

    /// Waits for the next frame that the port sends.
    pub(crate) async fn next_received(&self) -> Vec<u8> {
        let wait = async {
            loop {
                match self.from.try_recv() {
                    Ok(frame) => return frame,
                    Err(_) => sleep(Duration::from_millis(1)).await,
                }
            }
        };
        in_time(wait).await
    }

    /// Takes all frames that the port has sent.
    pub(crate) fn all_received(&self) -> Vec<Vec<u8>> {
        self.from.try_iter().collect()
    }

    /// Returns whether the port and its queues are closed.
    pub(crate) fn is_closed(&self) -> bool {
        Arc::strong_count(&self.parts) == 1
    }
}

/// A port with queues in memory.
struct Wire {
    receiver: usize,
    /// The packet thread that gets the receive queue.
    first: FirstThread,
    frames: Option<Receiver<Vec<u8>>>,
    sent: Sender<Vec<u8>>,
    gate: Arc<Gate>,
    part: Arc<()>,
    lost: Arc<[AtomicU64; 2]>,
}

/// The receive queue of a [`Wire`].
struct WireRx {
    frames: Receiver<Vec<u8>>,
    gate: Arc<Gate>,
    /// True if the packet thread stops at the gate before its next frame.
    is_held: bool,
    _part: Arc<()>,
}

/// The transmit queue of a [`Wire`].
struct WireTx {
    sent: Sender<Vec<u8>>,
    _part: Arc<()>,
}

/// Returns a port with its far end; one packet thread receives from the port.
pub(crate) fn wire(receiver: usize) -> (Box<dyn Port>, FarEnd) {
    wire_to(receiver, FirstThread::At(receiver))
}

/// Returns a port with its far end; the thread `first` gets its receive queue.
fn wire_to(receiver: usize, first: FirstThread) -> (Box<dyn Port>, FarEnd) {
    let ((to, frames), (sent, from), parts) = (channel(), channel(), Arc::new(()));
    let (part, gate) = (Arc::clone(&parts), Arc::<Gate>::default());
    let frames = Some(frames);
    let lost = Arc::<[AtomicU64; 2]>::default();
    let (own_gate, own_lost) = (Arc::clone(&gate), Arc::clone(&lost));
    let wire = Wire { receiver, first, frames, sent, gate: own_gate, part, lost: own_lost };
    (Box::new(wire), FarEnd { gate, to, from, parts, lost })
}

impl Port for Wire {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            tx_tunnel_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: false,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let queues = (0..usize::from(threads)).map(|thread| {
            let frames = self.frames.take_if(|_| thread == self.receiver);
            let rx = frames.map(|frames| WireRx {
                frames,
                gate: Arc::clone(&self.gate),
                is_held: false,
                _part: Arc::clone(&self.part),
            });
            let tx = WireTx { sent: self.sent.clone(), _part: Arc::clone(&self.part) };
            Queues { rx: rx.map(|rx| Box::new(rx) as Box<dyn RxQueue>), tx: Box::new(tx) }
        });
        Ok(queues.collect())
    }

    fn split_by_queue(&mut self, threads: u16) -> Result<SplitQueues, PortError> {
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for queues in self.split(threads)? {
            rx.extend(queues.rx.map(|queue| AssignedRxQueue { first: self.first, queue }));
            tx.push(queues.tx);
        }
        Ok(SplitQueues { rx, tx })
    }

    fn link_up(&self) -> bool {
        true
    }

    fn mtu(&self) -> Option<u32> {
        Some(1500)
    }

    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 1, 1]
    }

    /// The port copies as many frames as [`FarEnd::lose`] sets, of 60 bytes each.
    fn copies(&self) -> PortCopies {
        let [rx, tx] = [0, 1].map(|place| {
            let frames = self.lost[place].load(Ordering::Relaxed);
            FrameCopies { frames, bytes: 60 * frames }
        });
        PortCopies { rx, tx }
    }

    fn counters(&self) -> PortCounters {
        let [rx_dropped, tx_dropped] = [0, 1].map(|place| self.lost[place].load(Ordering::Relaxed));
        PortCounters { rx_dropped, tx_dropped }
    }
}

impl RxQueue for WireRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        if std::mem::take(&mut self.is_held) {
            self.gate.pass();
        }
        for frame in self.frames.try_iter().take(BURST) {
            match &*frame {
                HOLD => {
                    self.is_held = true;
                    break;
                }
                PANIC => panic!("the test requests this panic"),
                BREAK => return Err(PortError::DeviceGone { name: "wire".to_owned() }),
                frame => {
                    let mut packet = pool.take(frame.len(), DatapathPort::default()).unwrap();
                    packet.frame_mut().copy_from_slice(frame);
                    burst.push(packet);
                }
            }
        }
        Ok(RxReport::default())
    }
}

impl TxQueue for WireTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        packets.iter().for_each(|packet| drop(self.sent.send(packet.frame().to_vec())));
        packets.len()
    }

    fn flush(&mut self) {}
}

/// A connection of a controller to the switch.
pub(crate) struct Controller {
    stream: UnixStream,
    /// Messages that arrived while a reply was awaited.
    pub(crate) events: Vec<Message>,
}

impl Controller {
    async fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).await.unwrap();
        let mut controller = Self { stream, events: Vec::new() };
        controller.send(&Message::Hello(Hello { version: 4, bitmap: None })).await;
        assert!(matches!(controller.next_received().await, Message::Hello(_)));
        controller.send(&Message::SetConfig(SwitchConfig { miss_send_len: 128 })).await;
        assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
        controller
    }

    pub(crate) async fn send(&mut self, message: &Message) {
        let bytes = v13::encode(Xid::new(9), message).unwrap();
        in_time(self.stream.write_all(&bytes)).await.unwrap();
    }

    /// Waits for the next message and returns it.
    pub(crate) async fn next_received(&mut self) -> Message {
        let mut frame = vec![0; Header::LEN];
        in_time(self.stream.read_exact(&mut frame)).await.unwrap();
        frame.resize(Header::parse(&frame).unwrap().length.into(), 0);
        in_time(self.stream.read_exact(&mut frame[Header::LEN..])).await.unwrap();
        v13::decode(&frame).unwrap().1
    }

    /// Sends a request and returns its reply.
    pub(crate) async fn ask(&mut self, message: &Message) -> Message {
        self.send(message).await;
        loop {
            match self.next_received().await {
                event @ (Message::PortStatus(_) | Message::FlowRemoved(_)) => {
                    self.events.push(event);
                }
                answer => return answer,
            }
        }
    }
}
