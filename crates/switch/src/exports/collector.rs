//! A collector: the datagrams that wait for it, and the reason if it gets no datagrams.
//!
//! An exporter adds datagrams to the queue of a collector. A
//! [`CollectorSender`](super::sender::CollectorSender) sends them as the socket has space. The
//! number of waiting datagrams is bounded. While a collector has no socket, its datagrams are
//! dropped immediately, because they would be out of date when the collector is reachable again.

use std::{
    collections::VecDeque,
    io, mem,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;
use shunt_flow_export::ExportDatagram;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::totals::ExportTotals;

/// Maximum number of datagrams that wait for a collector; together at most 11 MiB.
///
/// At 100 Mbit/s they are sent in one second.
const WAITING_MAX: usize = 8192;

/// Number of waiting datagrams above which exporters keep further flows.
const WAITING_HIGH: usize = WAITING_MAX / 2;

/// Number of checks in a row without a refusal after which the refusal has ended.
///
/// There is one check each second.
const QUIET_CHECKS_AFTER_REFUSAL: u32 = 3;

/// Number of checks in a row without a loss after which an overflow has ended.
///
/// Datagrams may still wait after an overflow.
const QUIET_CHECKS_AFTER_OVERFLOW: u32 = 10;

/// Need of a protocol to send templates before its datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateUse {
    /// The protocol has no templates.
    Never,
    /// Each new socket sends templates first.
    ///
    /// Each socket is a separate transport session (RFC 7011, 10.3.7).
    EachSocket,
}

/// A collector and the datagrams for it.
#[derive(Debug)]
pub(super) struct Collector {
    /// The address that gets the datagrams.
    pub(super) address: SocketAddr,
    /// The bridge and the protocol, which are the beginning of log lines.
    owner: String,
    /// The need to send templates before the datagrams.
    templates: TemplateUse,
    /// The counters of the exporter's datagrams.
    totals: Arc<ExportTotals>,
    /// The queue and the socket state.
    state: Mutex<CollectorState>,
    /// Notified when the sender may have datagrams to send.
    changed: Notify,
    /// Notified when the queue may have space again, or the collector needs templates.
    progress: Arc<Notify>,
}

/// The waiting datagrams of a collector, and the state of its socket.
#[derive(Debug, Default)]
struct CollectorState {
    /// The datagrams that were not sent yet, oldest first.
    waiting: VecDeque<Arc<ExportDatagram>>,
    /// The local address of the socket; `None` while there is no socket.
    local: Option<IpAddr>,
    /// The reason why no datagrams can be sent now.
    fault: Option<CollectorFault>,
    /// The reports that no program listens.
    refusal: CollectorRefusal,
    /// True while waiting datagrams must follow templates that are not queued yet.
    needs_templates: bool,
    /// The datagrams that the full queue dropped.
    overflow: CollectorOverflow,
    /// True once no more datagrams are queued.
    is_closed: bool,
}

/// Datagrams that were dropped because the queue was full.
#[derive(Clone, Copy, Debug, Default)]
struct CollectorOverflow {
    /// Number of datagrams dropped in this overflow; 0: there is no overflow.
    lost: u64,
    /// True when the overflow was logged.
    is_logged: bool,
    /// Value of `lost` at the last check.
    checked: u64,
    /// Number of checks in a row without a loss.
    quiet_checks: u32,
}

/// The reports of the host of a collector that no program listens at the port.
///
/// Hosts limit the rate of these reports, so most datagrams of a refusal are not reported.
#[derive(Clone, Copy, Debug, Default)]
struct CollectorRefusal {
    /// True while the collector counts as refusing.
    is_current: bool,
    /// True if the refusal of a datagram was reported since the last check.
    has_refused: bool,
    /// True if a datagram was sent without such a report since the last check.
    has_accepted: bool,
    /// Number of checks in a row without a refusal.
    quiet_checks: u32,
}

/// The reason why a collector gets no datagrams.
#[derive(Debug)]
pub(super) enum CollectorFault {
    /// No socket can be opened. The fault ends when a socket is opened.
    NotOpened(io::Error),
    /// The socket refused a datagram. The fault ends when a later datagram is sent.
    NotSent(io::Error),
}

impl Collector {
    /// Creates a collector without a socket.
    pub(super) fn new(
        address: SocketAddr,
        owner: &str,
        templates: TemplateUse,
        totals: &Arc<ExportTotals>,
        progress: &Arc<Notify>,
    ) -> Self {
        Self {
            address,
            owner: owner.to_owned(),
            templates,
            totals: Arc::clone(totals),
            state: Mutex::default(),
            changed: Notify::new(),
            progress: Arc::clone(progress),
        }
    }

    /// Queues a datagram; without a socket or space, the datagram is lost.
    pub(super) fn push(&self, datagram: &Arc<ExportDatagram>) {
        let mut state = self.state.lock();
        if state.local.is_none() {
            self.count_lost(datagram);
        } else if state.waiting.len() >= WAITING_MAX {
            self.count_lost(datagram);
            state.overflow.lost += 1;
        } else {
            state.waiting.push_back(Arc::clone(datagram));
        }
        self.changed.notify_one();
    }

    /// Queues templates, before all waiting datagrams if the socket needs templates.
    pub(super) fn push_templates(&self, messages: &[Arc<ExportDatagram>]) {
        let mut state = self.state.lock();
        if mem::take(&mut state.needs_templates) {
            for message in messages.iter().rev() {
                state.waiting.push_front(Arc::clone(message));
            }
            self.changed.notify_one();
        } else {
            drop(state);
            messages.iter().for_each(|message| self.push(message));
        }
    }

    /// Returns whether waiting datagrams must follow templates that are not queued yet.
    pub(super) fn needs_templates(&self) -> bool {
        self.state.lock().needs_templates
    }

    /// Returns whether exporters may add flows; `None` without a socket.
    pub(super) fn has_room(&self) -> Option<bool> {
        let state = self.state.lock();
        state.local.map(|_| state.waiting.len() < WAITING_HIGH)
    }

    /// Returns the local address of the socket.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.state.lock().local
    }

    /// Closes the collector: it accepts no datagrams, and ends when the queue is empty.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Returns whether the collector gets no more datagrams.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Waits for datagrams that can be sent.
    ///
    /// Returns false when the collector is closed and its queue is empty.
    pub(super) async fn wait(&self) -> bool {
        loop {
            {
                let state = self.state.lock();
                // No templates are queued any more after the collector was closed.
                let may_send = !state.needs_templates || state.is_closed;
                if may_send && !state.waiting.is_empty() {
                    return true;
                }
                if state.is_closed && state.waiting.is_empty() {
                    return false;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Takes the next datagram from the queue, if it can be sent.
    pub(super) fn take(&self) -> Option<Arc<ExportDatagram>> {
        let mut state = self.state.lock();
        let may_send = !state.needs_templates || state.is_closed;
        let taken = if may_send { state.waiting.pop_front() } else { None };
        if state.waiting.len() < WAITING_HIGH {
            self.progress.notify_one();
        }
        taken
    }

    /// Puts a datagram back at the head of the queue,
    /// if the socket has no space for it.
    pub(super) fn put_back(&self, datagram: Arc<ExportDatagram>) {
        self.state.lock().waiting.push_front(datagram);
    }

    /// Records a new socket and its local address.
    pub(super) fn note_opened(&self, local: IpAddr) {
        let mut state = self.state.lock();
        state.local = Some(local);
        self.ask_for_templates(&mut state);
    }

    /// Ends a fault of opening the socket.
    pub(super) fn end_open_fault(&self) {
        let is_ended = {
            let mut state = self.state.lock();
            state.fault.take_if(|fault| matches!(fault, CollectorFault::NotOpened(_))).is_some()
        };
        self.log_reachable(is_ended);
    }

    /// Records that the kernel accepted a datagram.
    pub(super) fn note_sent(&self) {
        self.totals.update(|totals| totals.sent += 1);
        let is_ended = self.state.lock().fault.take().is_some();
        self.log_reachable(is_ended);
    }

    /// Records that the host of the collector has refused an earlier datagram.
    pub(super) fn note_refused(&self) {
        let mut state = self.state.lock();
        (state.refusal.is_current, state.refusal.has_refused) = (true, true);
    }

    /// Records that the host of the collector has not refused the earlier datagrams.
    pub(super) fn note_accepted(&self) {
        self.state.lock().refusal.has_accepted = true;
    }

    /// Ends a refusal after some checks without a report of the host.
    ///
    /// The caller checks once a second.
    pub(super) fn check_refusal(&self) {
        let mut state = self.state.lock();
        let CollectorRefusal { is_current, has_refused, has_accepted, .. } = state.refusal;
        (state.refusal.has_refused, state.refusal.has_accepted) = (false, false);
        if has_refused {
            state.refusal.quiet_checks = 0;
        } else if is_current && has_accepted {
            state.refusal.quiet_checks += 1;
        }
        if is_current && has_accepted {
            // A collector program that has started since then has no template.
            self.ask_for_templates(&mut state);
        }
        if state.refusal.quiet_checks >= QUIET_CHECKS_AFTER_REFUSAL {
            state.refusal = CollectorRefusal::default();
        }
    }

    /// Asks for the templates again, if a new socket needs them.
    fn ask_for_templates(&self, state: &mut CollectorState) {
        state.needs_templates = self.templates == TemplateUse::EachSocket;
        self.progress.notify_one();
    }

    /// Records that a fault closed the socket; logs the first fault in a row.
    pub(super) fn note_closed(&self, fault: CollectorFault) {
        let is_new = {
            let mut state = self.state.lock();
            (state.local, state.needs_templates) = (None, false);
            state.fault.replace(fault).is_none()
        };
        if let Some(text) = self.fault_text().filter(|_| is_new) {
            warn!("{}: {text}; the switch tries again each second", self.owner);
        }
    }

    /// Returns whether the last datagram could not be sent, or no socket can be opened.
    pub(super) fn has_fault(&self) -> bool {
        self.state.lock().fault.is_some()
    }

    /// Counts a datagram that was taken from the queue and is lost.
    pub(super) fn count_lost(&self, datagram: &ExportDatagram) {
        self.totals.update(|totals| {
            totals.lost += 1;
            totals.records_lost += u64::from(datagram.records);
        });
    }

    /// Counts all waiting datagrams as lost.
    pub(super) fn lose_waiting(&self) {
        let waiting = mem::take(&mut self.state.lock().waiting);
        waiting.iter().for_each(|datagram| self.count_lost(datagram));
        self.progress.notify_one();
    }

    /// Logs the start and the end of an overflow of the queue.
    ///
    /// The caller checks once a second.
    pub(super) fn log_overflow(&self) {
        let (overflow, is_over) = {
            let mut state = self.state.lock();
            let is_empty = state.waiting.is_empty();
            let overflow = state.overflow;
            let is_quiet = overflow.lost == overflow.checked;
            let quiet_checks = if is_quiet { overflow.quiet_checks + 1 } else { 0 };
            (state.overflow.checked, state.overflow.quiet_checks) = (overflow.lost, quiet_checks);
            let is_over = overflow.lost > 0
                && (is_empty && is_quiet || quiet_checks >= QUIET_CHECKS_AFTER_OVERFLOW);
            state.overflow.is_logged = overflow.lost > 0;
            if is_over {
                state.overflow = CollectorOverflow::default();
            }
            (overflow, is_over)
        };
        let (owner, address) = (&self.owner, self.address);
        if overflow.lost > 0 && !overflow.is_logged {
            warn!("{owner}: {}", full_text(address));
        }
        if is_over {
            let lost = overflow.lost;
            info!(lost, "{owner}: collector {address} gets all datagrams again");
        }
    }

    /// Returns the reason why the collector does not get all datagrams, if it does not.
    pub(super) fn problem(&self) -> Option<String> {
        let (overflow, is_refused) = {
            let state = self.state.lock();
            (state.overflow, state.refusal.is_current)
        };
        let address = self.address;
        if let Some(text) = self.fault_text() {
            Some(text)
        } else if overflow.lost > 0 {
            Some(full_text(address))
        } else {
            is_refused.then(|| {
                format!("collector {address} refuses datagrams: start a collector at this port")
            })
        }
    }

    /// Returns the error of the socket, with advice.
    fn fault_text(&self) -> Option<String> {
        let state = self.state.lock();
        let (CollectorFault::NotOpened(error) | CollectorFault::NotSent(error)) =
            state.fault.as_ref()?;
        let address = self.address;
        let ip = address.ip();
        Some(format!(
            "collector {address} cannot be reached: {error}; check the addresses of the host and \
             `ip route get {ip}`"
        ))
    }

    /// Logs that the collector is reachable again, or not any more.
    fn log_reachable(&self, is_reachable: bool) {
        if is_reachable {
            info!("{}: collector {} is reachable again", self.owner, self.address);
        }
    }
}

/// Returns the text that describes an overflow.
fn full_text(address: SocketAddr) -> String {
    format!(
        "collector {address} gets datagrams more slowly than they are made: the send buffer is full, \
         {WAITING_MAX} datagrams wait, and later ones are lost; use a faster link to the collector, or \
         report less"
    )
}
