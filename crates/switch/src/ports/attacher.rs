//! Opens and closes the devices of registered ports, and attaches them to the packet threads.
//!
//! An opened port is first added to the packet threads, and then to the tables, where a received
//! packet finds its port. After both steps, the threads get the receive queues of the port. While
//! packets are held, as during a restore, the kernel queues the packets. A closed port is first
//! removed from the tables, and from the threads when no packet can be sent to it any more. Module
//! [`check`] finds changes of devices.

pub(crate) mod check;
mod queue_moves;
mod replaced_devices;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use shunt_datapath::{
    Command, PortError,
    command::{RemovedQueues, RxQueueState, ThreadPort, ThreadReceiver},
    port::{
        AssignedRxQueue, DescriptorStore, EalOptions, LinkMode, Port, Queues, RxQueue, SplitQueues,
        StoredDescriptor, open_inheriting,
    },
};
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tracing::warn;

use crate::{
    config::PortType,
    error::{SwitchError, with_causes},
    nic::{NicFront, NicSlot},
    ports::{
        bridges::Bridges,
        port::{BridgePort, PlacedRxQueue},
        registry::{BridgeRegistry, BridgeState},
    },
    threads::{
        data_plane::{DataPlane, StoppedThreads},
        load::{balancer::LoadBalancer, placement::QueuePlacer},
    },
};

/// Opens, attaches and closes ports.
pub(crate) struct PortAttacher {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    nic: Arc<NicSlot>,
    /// Measured loads, by which new receive queues get their packet threads.
    loads: Arc<LoadBalancer>,
    /// Store that keeps the queues of ports for the next process.
    descriptors: Arc<dyn DescriptorStore>,
    /// True while newly opened ports receive no packets.
    is_held: AtomicBool,
    /// The options with which DPDK is initialised.
    dpdk: Arc<EalOptions>,
    /// The start value of random numbers.
    seed: u64,
}

impl PortAttacher {
    /// Returns an attacher of which the ports receive packets at once.
    pub(crate) const fn new(
        plane: Arc<DataPlane>,
        bridges: Arc<Bridges>,
        nic: Arc<NicSlot>,
        loads: Arc<LoadBalancer>,
        descriptors: Arc<dyn DescriptorStore>,
        dpdk: Arc<EalOptions>,
        seed: u64,
    ) -> Self {
        let is_held = AtomicBool::new(false);
        Self { plane, bridges, nic, loads, descriptors, is_held, dpdk, seed }
    }

    /// Opens a registered port, and adds it to the packet threads.
    pub(crate) async fn open(&self, name: &str) -> Result<(), SwitchError> {
        self.open_all(&[name.to_owned()]).await.pop().unwrap_or(Ok(()))
    }

    /// Opens registered ports, and adds them to the packet threads.
    ///
    /// Returns the result of each port, in the order of `names`. The kernel takes tens of
    /// milliseconds for each device, mostly waiting. So all ports are opened at the same time.
    pub(crate) async fn open_all(&self, names: &[String]) -> Vec<Result<(), SwitchError>> {
        let opening: Vec<_> = names.iter().map(|name| self.begin_open(name)).collect();
        let mut opened = Vec::with_capacity(names.len());
        for (name, opening) in names.iter().zip(opening) {
            opened.push(match opening {
                Ok(Some(opening)) => finish_operation("open", name, opening).await.map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            });
        }
        let ports = names.iter().zip(opened).map(|(name, opened)| match opened {
            Ok(Some(port)) => self.begin_split(name, port),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        });
        let results = self.attach_all(ports.collect()).await;
        self.discard_failed(names, &results).await;
        self.check_users_of(names).await;
        // The port with the device may have been opened by this call.
        results.into_iter().map(|result| result.map_err(|error| self.name_owner(error))).collect()
    }

    /// Names the port of this switch that has the device of a refused port.
    ///
    /// A device has further names by `ip link property add`. So only the index of the device shows
    /// that two ports want the same one.
    fn name_owner(&self, error: SwitchError) -> SwitchError {
        let SwitchError::Port { name: refused, source } = &error else { return error };
        let PortError::Claimed { name, index, process } = source else { return error };
        if *process != i32::try_from(std::process::id()).ok() {
            return error;
        }
        let bridges = self.bridges.lock();
        let is_tap = |port: &BridgePort| port.settings.kind == PortType::Tap;
        // Two ports may have the two ends of a TAP.
        let wants_tap = bridges.find_port(refused).is_ok_and(|(_, port)| is_tap(port));
        let owner = bridges.iter().find_map(|bridge| {
            let has_device = |port: &&BridgePort| {
                port.open.is_some()
                    && port.device.is_some_and(|own| own.index == *index)
                    && is_tap(port) == wants_tap
            };
            let port = bridge.ports.values().find(has_device)?;
            let other = port.settings.device();
            Some(SwitchError::InUse {
                what: format!("device {name}, which is {other} by another name,"),
                port: port.settings.name.clone(),
                bridge: bridge.settings.name.clone(),
            })
        });
        drop(bridges);
        owner.unwrap_or(error)
    }

    /// Adds an open port to the packet threads, and then to the tables.
    pub(crate) async fn attach(&self, name: &str, port: Box<dyn Port>) -> Result<(), SwitchError> {
        let port = self.begin_split(name, port);
        self.attach_all(vec![port]).await.pop().unwrap_or(Ok(()))
    }

    /// Removes the descriptors of ports that failed to open from the store.
    ///
    /// The store has duplicates of the queues. These duplicates would keep the device in use, and
    /// queue packets that no thread reads.
    async fn discard_failed(&self, names: &[String], results: &[Result<(), SwitchError>]) {
        let prefixes: Vec<_> = {
            let bridges = self.bridges.lock();
            let failed = names.iter().zip(results).filter(|(_, result)| result.is_err());
            let ports = failed.filter_map(|(name, _)| bridges.find_port(name).ok());
            let closed = ports.map(|(_, port)| port).filter(|port| port.open.is_none());
            closed.filter_map(|port| port.spec()?.store_prefix()).collect()
        };
        if prefixes.is_empty() {
            return;
        }
        let descriptors = Arc::clone(&self.descriptors);
        let discard = move || prefixes.iter().for_each(|prefix| descriptors.discard(prefix));
        let _ = spawn_blocking(discard).await;
    }

    /// Begins to open a registered port; `None` if the port needs no device.
    fn begin_open(&self, name: &str) -> Result<Option<Opening>, SwitchError> {
        let (spec, number) = {
            let bridges = self.bridges.lock();
            let port = bridges.find_port(name)?.1;
            (port.spec(), port.datapath.map_or(0, |number| u64::from(number.number())))
        };
        let seed = self.seed.wrapping_add(number);
        // Opening a capture file reads the whole file, and opening a device takes the kernel long.
        let (descriptors, dpdk) = (Arc::clone(&self.descriptors), Arc::clone(&self.dpdk));
        Ok(spec.map(|spec| {
            spawn_blocking(move || {
                let prefix = spec.store_prefix();
                let take = |prefix: &String| descriptors.take(prefix);
                let inherited = prefix.as_ref().map_or_else(Vec::new, take);
                let port = open_inheriting(&spec, seed, &dpdk, inherited)?;
                if let Some(prefix) = prefix.filter(|_| port.must_discard_stored()) {
                    descriptors.discard(&prefix);
                }
                Ok(port)
            })
        }))
    }

    /// Begins to create the queues of an open port.
    ///
    /// `None` if the packet threads do not get the port.
    fn begin_split(
        &self,
        name: &str,
        mut port: Box<dyn Port>,
    ) -> Result<Option<SplittingPort>, SwitchError> {
        let (id, number, datapath, losses) = {
            let bridges = self.bridges.lock();
            let (bridge, entered) = bridges.find_port(name)?;
            let losses = Arc::clone(&entered.nic_losses);
            (bridge.id, entered.number, entered.datapath, losses)
        };
        let threads = self.plane.living();
        // The number of threads is at most `THREADS_MAX`.
        let count = u16::try_from(threads.len()).unwrap_or(u16::MAX);
        if count == 0 {
            return Err(SwitchError::NoThreads);
        }
        let Some(datapath) = datapath else { return Ok(None) };
        if let Some(nic) = self.nic.front() {
            port = nic.in_front_of(id, number, datapath, port, losses);
        }
        let splitting = spawn_blocking(move || {
            let queues = port.split_by_queue(count)?;
            let link_mode = port.link_mode();
            Ok(SplitPort { port, queues, link_mode })
        });
        let name = name.to_owned();
        Ok(Some(SplittingPort { name, bridge: id, number, datapath, threads, splitting }))
    }

    /// Adds ports to the packet threads, and then all ports to the tables.
    ///
    /// Returns the result of each port. The caller has the lock of all changes, through which alone
    /// it gets the attacher. So no other call places queues between the choice of a thread and the
    /// entry of the queue.
    async fn attach_all(
        &self,
        ports: Vec<Result<Option<SplittingPort>, SwitchError>>,
    ) -> Vec<Result<(), SwitchError>> {
        let (mut results, mut attached) = (Vec::with_capacity(ports.len()), Vec::new());
        let is_placed = ports.iter().any(|port| matches!(port, Ok(Some(_))));
        // Without a choice of threads, the loads of all queues are not read.
        let mut placer = if is_placed && self.plane.living().len() > 1 {
            self.loads.placer(&self.bridges, self.plane.now())
        } else {
            QueuePlacer::default()
        };
        for port in ports {
            results.push(match port {
                Ok(Some(port)) => {
                    self.add_to_threads(port, &mut placer).await.map(|port| attached.push(port))
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            });
        }
        if !attached.is_empty() {
            // Threads process commands in order: after this acknowledgement, all threads have the
            // ports.
            self.plane.pull_threads().await;
        }
        let opened: Vec<_> = attached.iter().map(|port| (port.bridge, port.number)).collect();
        let (mut stored, mut replaced) = (Vec::new(), Vec::new());
        for AttachedPort { bridge, number, port, link_mode, receivers } in attached {
            self.bridges.with_port(bridge, number, |entered| {
                let threads = receivers.iter().map(|(thread, _)| *thread);
                entered.rx_queues = threads.map(PlacedRxQueue::new).collect();
                entered.held_queues = receivers;
                let prefix = entered.spec().and_then(|spec| spec.store_prefix());
                stored.extend(prefix.map(|prefix| (prefix, port.stored_descriptors())));
                if entered.enter_device(port, link_mode, self.bridges.set_down()) {
                    self.bridges.admin_changes().add(bridge, number);
                }
                replaced.extend(entered.note_opened_device().then_some((bridge, number)));
            });
        }
        self.bridges.publish_ports();
        self.flush_ports(replaced).await;
        if !self.is_held.load(Relaxed) {
            self.begin_receiving(&opened).await;
        }
        self.keep(stored).await;
        results
    }

    /// Holds the packets of ports that are opened from now on; the kernel queues them.
    ///
    /// Ports that are already open continue to receive.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Relaxed);
    }

    /// Returns whether the packets of opened ports are held.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Ends [`Self::hold`]: the held ports begin to receive.
    pub(crate) async fn release(&self) {
        self.is_held.store(false, Relaxed);
        let numbers = |bridge: &BridgeState| {
            let id = bridge.id;
            bridge.ports.keys().map(move |number| (id, *number)).collect::<Vec<_>>()
        };
        let ports: Vec<_> = self.bridges.lock().iter().flat_map(numbers).collect();
        self.begin_receiving(&ports).await;
    }

    /// Sends the held receive queues of ports to the packet threads.
    async fn begin_receiving(&self, ports: &[(BridgeId, PortNo)]) {
        let mut held = Vec::new();
        for (bridge, number) in ports {
            self.bridges.with_port(*bridge, *number, |port| held.extend(receivers(*bridge, port)));
        }
        if held.is_empty() {
            return;
        }
        // A thread translates packets by its own version, and this version must contain the ports.
        self.plane.adopted_newest().await;
        for (thread, receiver) in held {
            self.plane.send(thread, Command::AddReceiver(Box::new(receiver))).await;
        }
    }

    /// Waits for the queues of a port, and passes its send queues to the threads.
    async fn add_to_threads(
        &self,
        port: SplittingPort,
        placer: &mut QueuePlacer,
    ) -> Result<AttachedPort, SwitchError> {
        let SplittingPort { name, bridge, number, datapath, threads, splitting } = port;
        let SplitPort { port, queues, link_mode } =
            finish_operation("create the queues of", &name, splitting).await?;
        let (speed, now) = (link_mode.speed_bps, self.plane.now());
        self.bridges.with_port(bridge, number, |own| own.set_link_speed(speed, now));
        let (traffic, qos) = {
            let bridges = self.bridges.lock();
            let port = bridges.find_port(&name)?.1;
            (port.traffic.clone(), port.egress_qos.clone())
        };
        let capabilities = port.capabilities();
        let SplitQueues { rx, tx } = queues;
        let receivers = {
            let mut placement = placer.port(&threads, port.numa_node());
            let place = |own: AssignedRxQueue| Some((placement.place(own.first)?, own.queue));
            rx.into_iter().filter_map(place).collect()
        };
        for (thread, tx) in threads.into_iter().zip(tx) {
            let Some(traffic) = traffic.get(thread).cloned() else { continue };
            let queues = Queues { rx: None, tx };
            let added =
                ThreadPort { port: datapath, bridge, number, capabilities, queues, traffic };
            self.plane.send(thread, Command::AddPort(Box::new(added))).await;
            if let Some(qos) = qos.clone() {
                self.plane.send(thread, Command::SetQos(datapath, Some(qos))).await;
            }
        }
        Ok(AttachedPort { bridge, number, port, link_mode, receivers })
    }

    /// Removes a port from the tables, then from the packet threads, and closes it.
    pub(crate) async fn detach(&self, name: &str) -> Result<(), SwitchError> {
        self.close(name, drop).await
    }

    /// Closes a port, and removes the device that was created for it.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), SwitchError> {
        let port = name.to_owned();
        let set_up = self.bridges.take_up_work(name)?;
        let remove_device = move |open: Box<dyn Port>| {
            set_up.into_iter().for_each(|work| work());
            if let Err(error) = open.remove_device() {
                warn!(error = with_causes(&error), "port {port}: the device cannot be removed");
            }
        };
        self.close(name, remove_device).await
    }

    /// Takes a port out of the tables and the packet threads, and passes it to `end`.
    async fn close(
        &self,
        name: &str,
        end: impl FnOnce(Box<dyn Port>) + Send + 'static,
    ) -> Result<(), SwitchError> {
        let (id, number, datapath, prefix, held, open) = {
            let mut bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let (id, number, datapath) = (bridge.id, port.number, port.datapath);
            let prefix = port.spec().and_then(|spec| spec.store_prefix());
            let mut held = Vec::new();
            let open = bridges.port_mut(id, number).and_then(|port| {
                port.link_up = false;
                held = std::mem::take(&mut port.held_queues);
                port.take_device()
            });
            (id, number, datapath, prefix, held, open)
        };
        self.bridges.publish_ports();
        let mut queues: Vec<Option<RemovedQueues>> = Vec::new();
        if let Some(datapath) = datapath.filter(|_| open.is_some()) {
            self.plane.adopted_newest().await;
            let question = |_, reply| Command::RemovePort(datapath, reply);
            queues = self.plane.ask(question).await;
        }
        // Closing a device takes the kernel long, so a blocking task closes devices. The store may
        // also have descriptors of a port that is not open.
        let descriptors = Arc::clone(&self.descriptors);
        let close = spawn_blocking(move || {
            if let Some(open) = open {
                open.release_device();
                end(open);
            }
            drop((queues, held));
            if let Some(prefix) = prefix {
                descriptors.discard(&prefix);
            }
        });
        let _ = close.await;
        if let Some(nic) = self.nic.front() {
            nic.leave(id, number, datapath);
        }
        Ok(())
    }

    /// Closes a port and records the reason; the port keeps its number.
    async fn take_down(&self, name: &str, problem: &str) {
        let place = self.bridges.lock().find_port(name).map(|(own, port)| (own.id, port.number));
        let Ok((id, number)) = place else { return };
        if self.detach(name).await.is_ok() {
            self.bridges.with_port(id, number, |port| {
                port.problem = Some(problem.to_owned());
                // No thread has a queue of this port, so this task is the only writer of the
                // counter.
                port.traffic.iter().for_each(|traffic| traffic.rx_broken.set(0));
            });
            self.bridges.changed().add(id, number);
        }
    }

    /// Takes down the ports that have lost a receiving thread by a panic.
    pub(crate) async fn take_down_cut_off(&self, stopped: &StoppedThreads) {
        let is_last = self.plane.living().is_empty();
        let cut_off = cut_off(&self.bridges.lock(), &stopped.packet, is_last);
        for (name, thread) in cut_off {
            let problem = match stopped.vital {
                Some(thread) => format!("the {thread} panicked"),
                None => format!("packet thread {thread} panicked"),
            };
            warn!(reason = problem, "port {name}: down");
            self.take_down(&name, &problem).await;
        }
    }

    /// Stores descriptors of ports, in place of their previous descriptors.
    async fn keep(&self, stored: Vec<(String, Vec<StoredDescriptor>)>) {
        if stored.is_empty() {
            return;
        }
        let descriptors = Arc::clone(&self.descriptors);
        // The call may block, because the service manager may be busy.
        let keep = spawn_blocking(move || {
            stored.into_iter().for_each(|(prefix, own)| descriptors.keep(&prefix, own));
        });
        let _ = keep.await;
    }

    /// Closes and opens the ports of the NIC's bridge, because the NIC has changed.
    pub(crate) async fn reopen_at_nic(&self, nic: &NicFront) {
        for (name, id, number) in self.open_ports_of_nic(nic) {
            if let Err(error) = self.detach(&name).await {
                // The port was removed meanwhile; the new NIC stays in force.
                warn!(
                    error = with_causes(&error),
                    "port {name}: cannot be reopened after the NIC changed"
                );
                continue;
            }
            if let Err(error) = self.open(&name).await {
                warn!(
                    error = with_causes(&error),
                    "port {name}: cannot be reopened at the new NIC"
                );
                self.bridges.with_port(id, number, |port| port.note_open_error(&error));
            }
            self.bridges.changed().add(id, number);
        }
    }

    /// Takes down the ports of a stale NIC.
    ///
    /// [`Self::check`] opens these ports again.
    pub(crate) async fn take_down_at_nic(&self, nic: &NicFront, reason: &str) {
        for (name, id, number) in self.open_ports_of_nic(nic) {
            let is_reopened = self.bridges.with_port(id, number, |port| port.is_reopened());
            if is_reopened == Some(true) && nic.is_nic_port(id, number) {
                warn!(reason, "port {name}: down, because the NIC is stale");
                self.take_down(&name, &format!("the NIC is stale: {reason}")).await;
            }
        }
    }

    /// Returns the open ports of the NIC's bridge with a device that the switch opened.
    fn open_ports_of_nic(&self, nic: &NicFront) -> Vec<(String, BridgeId, PortNo)> {
        let bridges = self.bridges.lock();
        let Some(bridge) = bridges.by_id(nic.bridge_id()) else { return Vec::new() };
        let is_open = |port: &&BridgePort| {
            port.open.is_some() && port.spec().is_some() && port.number != PortNo::LOCAL
        };
        let open = bridge.ports.values().filter(is_open);
        open.map(|port| (port.settings.name.clone(), bridge.id, port.number)).collect()
    }
}

/// The result of an operation on a device, which runs on a thread that may block.
type Blocking<T> = JoinHandle<Result<T, PortError>>;

/// A port that is being opened.
type Opening = Blocking<Box<dyn Port>>;

/// A port for which the queues are being created.
struct SplittingPort {
    name: String,
    /// The number of the bridge.
    bridge: BridgeId,
    /// The OpenFlow number of the port.
    number: PortNo,
    /// The number of the port in the datapath.
    datapath: DatapathPort,
    /// The packet threads that get the queues, by number.
    threads: Vec<usize>,
    /// The creation of the queues, which may block.
    splitting: Blocking<SplitPort>,
}

/// An open port with its queues.
struct SplitPort {
    port: Box<dyn Port>,
    queues: SplitQueues,
    /// The way to learn about changes of the link.
    link_mode: LinkMode,
}

/// A port that was added to the packet threads, and not yet to the tables.
struct AttachedPort {
    bridge: BridgeId,
    /// The OpenFlow number of the port.
    number: PortNo,
    port: Box<dyn Port>,
    /// The way to learn about changes of the link.
    link_mode: LinkMode,
    /// Receive queues of the port, each with the packet thread that gets it.
    receivers: Vec<(usize, Box<dyn RxQueue>)>,
}

/// Returns the held receive queues of a port,
/// each with the packet thread that gets it.
fn receivers(
    bridge: BridgeId,
    entered: &mut BridgePort,
) -> impl Iterator<Item = (usize, ThreadReceiver)> {
    let held = std::mem::take(&mut entered.held_queues);
    let (number, traffic, policer) = (entered.number, &entered.traffic, &entered.policer);
    let (port, places) = (entered.datapath, &entered.rx_queues);
    (0..).zip(held).filter_map(move |(position, (thread, queue))| {
        let (port, traffic) = (port?, Arc::clone(traffic.get(thread)?));
        let policer = policer.clone();
        let load = Arc::clone(&places.get(usize::from(position))?.load);
        let state = RxQueueState { number: position, received: 0, load };
        Some((thread, ThreadReceiver { port, bridge, number, queue, traffic, policer, state }))
    })
}

/// Waits for a blocking operation on the device of a port.
async fn finish_operation<T>(
    doing: &'static str,
    name: &str,
    operation: Blocking<T>,
) -> Result<T, SwitchError> {
    let panicked = |error: JoinError| SwitchError::System {
        doing: format!("{doing} port {name}"),
        source: error.into(),
    };
    let failed = |source| SwitchError::Port { name: name.to_owned(), source };
    operation.await.map_err(panicked)?.map_err(failed)
}

/// Returns the ports that have lost a receiving thread, each with this thread.
fn cut_off(bridges: &BridgeRegistry, stopped: &[usize], is_last: bool) -> Vec<(String, usize)> {
    let ports = bridges.iter().flat_map(|bridge| bridge.ports.values());
    let open = ports.filter(|port| port.open.is_some());
    let missed = |port: &BridgePort| {
        let receiver = stopped.iter().find(|thread| port.has_receiver(**thread));
        receiver
            .filter(|_| !port.spreads_packets())
            .or_else(|| stopped.first().filter(|_| is_last))
            .copied()
    };
    open.filter_map(|port| Some((port.settings.name.clone(), missed(port)?))).collect()
}
