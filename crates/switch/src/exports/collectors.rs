//! The collectors of an exporter.

use std::{
    mem,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use shunt_flow_export::ExportDatagram;
use tokio::{sync::Notify, task::JoinHandle};

use super::{
    collector::{Collector, TemplateUse},
    sender::CollectorSender,
    totals::ExportTotals,
};

/// The collectors that get each datagram of an exporter.
#[derive(Debug)]
pub(super) struct ExportCollectors {
    /// The bridge and the protocol, which are the beginning of log lines.
    owner: String,
    /// The need to send templates before the datagrams.
    templates: TemplateUse,
    /// The counters of the exporter's datagrams.
    totals: Arc<ExportTotals>,
    /// The collectors, in the order of the options.
    list: Vec<RunningCollector>,
    /// Notified when a collector may have space for datagrams again.
    progress: Arc<Notify>,
}

/// A collector and the task that sends its datagrams.
#[derive(Debug)]
struct RunningCollector {
    collector: Arc<Collector>,
    /// The task that sends datagrams to the collector.
    sender: JoinHandle<()>,
}

impl ExportCollectors {
    /// Creates an empty list.
    ///
    /// `owner` is the beginning of log lines: the bridge and the protocol.
    pub(super) fn new(owner: String, templates: TemplateUse, totals: &Arc<ExportTotals>) -> Self {
        let totals = Arc::clone(totals);
        Self { owner, templates, totals, list: Vec::new(), progress: Arc::default() }
    }

    /// Sets the collectors, and opens the sockets of new collectors.
    ///
    /// Collectors that remain keep their sockets. Removed collectors still get the datagrams that
    /// wait for them. The function must be called in a tokio runtime.
    pub(super) fn set(&mut self, addresses: &[SocketAddr]) {
        let mut before = mem::take(&mut self.list);
        for address in addresses {
            let known = before.iter().position(|own| own.collector.address == *address);
            let own = match known {
                Some(position) => before.swap_remove(position),
                None => self.start(*address),
            };
            self.list.push(own);
        }
    }

    /// Starts to send to a collector.
    fn start(&self, address: SocketAddr) -> RunningCollector {
        let Self { owner, templates, totals, progress, .. } = self;
        let collector = Arc::new(Collector::new(address, owner, *templates, totals, progress));
        let sender = tokio::spawn(CollectorSender::new(Arc::clone(&collector)).run());
        RunningCollector { collector, sender }
    }

    /// Returns the counters of the exporter.
    pub(super) const fn totals(&self) -> &Arc<ExportTotals> {
        &self.totals
    }

    /// Returns the bridge and the protocol, which are the beginning of log lines.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the local address of the route to the first collector that has one.
    pub(super) fn local_address(&self) -> Option<IpAddr> {
        self.list.iter().find_map(|own| own.collector.local())
    }

    /// Returns whether the exporter may send more flows.
    ///
    /// True if any collector has space, or no collector has a socket. So a slow collector does not
    /// delay the other collectors.
    pub(super) fn has_room(&self) -> bool {
        let mut rooms = self.list.iter().filter_map(|own| own.collector.has_room()).peekable();
        rooms.peek().is_none() || rooms.any(|has_room| has_room)
    }

    /// Waits until the exporter may send more flows, or new sockets need templates.
    pub(super) async fn wait_for_room(&self) {
        while !self.has_room() && !self.need_templates() {
            self.progress.notified().await;
        }
    }

    /// Sends datagrams to all collectors.
    pub(super) fn send(&self, datagrams: Vec<ExportDatagram>) {
        for datagram in datagrams.into_iter().map(Arc::new) {
            self.list.iter().for_each(|own| own.collector.push(&datagram));
        }
    }

    /// Returns whether a collector has a new socket, which must send templates first.
    pub(super) fn need_templates(&self) -> bool {
        self.list.iter().any(|own| own.collector.needs_templates())
    }

    /// Sends templates to all collectors; a new socket sends them before all datagrams.
    pub(super) fn send_templates(&self, messages: Vec<ExportDatagram>) {
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        self.list.iter().for_each(|own| own.collector.push_templates(&messages));
    }

    /// Returns a reason for each collector that does not get all datagrams.
    pub(super) fn problems(&self) -> Vec<String> {
        self.list.iter().filter_map(|own| own.collector.problem()).collect()
    }

    /// Closes the collectors, and returns when their waiting datagrams are sent.
    ///
    /// Datagrams that are not sent within a few seconds are lost, and counted.
    pub(super) async fn end(mut self) {
        self.list.iter().for_each(|own| own.collector.close());
        for own in &mut self.list {
            // The task fails only if it panicked.
            let _ = (&mut own.sender).await;
        }
    }
}

impl Drop for RunningCollector {
    fn drop(&mut self) {
        // The task ends when the waiting datagrams are sent.
        self.collector.close();
    }
}

#[cfg(test)]
mod tests;
