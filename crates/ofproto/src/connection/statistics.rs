//! Answers to multipart requests.

use std::{sync::Arc, vec};

use shunt_flow::PortNo;
use shunt_pipeline::{Rule, RuleFilter, TableId, Time};

use crate::{
    Host,
    error::{ErrorCode, TooLong},
    message::{
        AggregateStatistics, FlowStatistics, MultipartReply, MultipartRequest, QueueFilter, Xid,
    },
    wire::v13::multipart::{Entry, PartWriter},
};

/// Whether the answer is made of counters, which must be handed in first.
pub(super) const fn is_counted(request: &MultipartRequest) -> bool {
    matches!(
        request,
        MultipartRequest::Flow(_)
            | MultipartRequest::Aggregate(_)
            | MultipartRequest::Table
            | MultipartRequest::Port(_)
    )
}

/// The answer to a request; to one for rules see [`FlowReply`].
pub(super) fn answer(
    request: &MultipartRequest,
    host: &impl Host,
) -> Result<MultipartReply, ErrorCode> {
    Ok(match request {
        MultipartRequest::Description => MultipartReply::Description(host.description()),
        MultipartRequest::Flow(_) => MultipartReply::Flow(Vec::new()),
        MultipartRequest::Aggregate(filter) => MultipartReply::Aggregate(aggregate(filter, host)),
        MultipartRequest::Table => MultipartReply::Table(host.table_statistics()),
        MultipartRequest::Port(port) => {
            let mut ports = host.port_statistics();
            ports.retain(|own| *port == PortNo::ANY || own.port == *port);
            MultipartReply::Port(ports)
        }
        MultipartRequest::Queue(filter) => check_queue(*filter, host)?,
        MultipartRequest::Group(_) => MultipartReply::Group,
        MultipartRequest::GroupDescription => MultipartReply::GroupDescription,
        MultipartRequest::GroupFeatures => MultipartReply::GroupFeatures,
        MultipartRequest::Meter(Some(_)) | MultipartRequest::MeterConfig(Some(_)) => {
            return Err(ErrorCode::MeterUnknown);
        }
        MultipartRequest::Meter(None) => MultipartReply::Meter,
        MultipartRequest::MeterConfig(None) => MultipartReply::MeterConfig,
        MultipartRequest::MeterFeatures => MultipartReply::MeterFeatures,
        MultipartRequest::TableFeatures => {
            let tables = 0..=TableId::MAX.number();
            MultipartReply::TableFeatures(tables.filter_map(TableId::new).collect())
        }
        MultipartRequest::PortDescription => MultipartReply::PortDescription(host.ports()),
    })
}

fn aggregate(filter: &RuleFilter, host: &impl Host) -> AggregateStatistics {
    let rules = host.rules(filter);
    let mut totals = AggregateStatistics {
        flows: u32::try_from(rules.len()).unwrap_or(u32::MAX),
        ..AggregateStatistics::default()
    };
    for rule in &rules {
        let own = rule.stats.totals();
        totals.packets = totals.packets.saturating_add(own.packets);
        totals.bytes = totals.bytes.saturating_add(own.bytes);
    }
    totals
}

/// There are no queues; asking for one by number is a mistake, asking for all is not.
fn check_queue(filter: QueueFilter, host: &impl Host) -> Result<MultipartReply, ErrorCode> {
    check_queues(filter.port, host)?;
    if filter.queue.is_some() { Err(ErrorCode::QueueUnknown) } else { Ok(MultipartReply::Queue) }
}

/// Whether there is such a port to ask the queues of.
pub(super) fn check_queues(port: PortNo, host: &impl Host) -> Result<(), ErrorCode> {
    let exists = || host.ports().iter().any(|own| own.number == port);
    if port == PortNo::ANY || exists() { Ok(()) } else { Err(ErrorCode::QueuePort) }
}

/// The answer to a request for rules, written as fast as the peer reads it.
#[derive(Debug)]
pub(super) struct FlowReply {
    rules: vec::IntoIter<Arc<Rule>>,
    writer: Option<PartWriter>,
    now: Time,
}

impl FlowReply {
    pub(super) fn new(xid: Xid, rules: Vec<Arc<Rule>>, now: Time) -> Self {
        let writer = Some(PartWriter::new(xid, &MultipartReply::Flow(Vec::new())));
        Self { rules: rules.into_iter(), writer, now }
    }

    /// The next message; `None` after the last.
    ///
    /// # Errors
    ///
    /// A rule alone does not fit into a message, and is left out. Such rules are refused when they
    /// are added.
    pub(super) fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let Some(writer) = &mut self.writer else { return Ok(None) };
        for rule in self.rules.by_ref() {
            let statistics = FlowStatistics::of(&rule, self.now);
            if let Some(full) = writer.push(Entry::Flow(&statistics))? {
                return Ok(Some(full));
            }
        }
        self.writer.take().map(PartWriter::finish).transpose()
    }
}
