//! Replies to multipart requests.

use std::{sync::Arc, vec};

use shunt_flow::PortNo;
use shunt_pipeline::{Group, GroupId, Meter, MeterId, Rule, RuleFilter, Time};

use crate::{
    Host,
    error::{ErrorCode, TooLong},
    message::{
        AggregateStatistics, FlowStatistics, GroupDescription, GroupFeatures, GroupStatistics,
        MeterDescription, MeterFeatures, MeterStatistics, MultipartReply, MultipartRequest,
        QueueConfig, QueueFilter, Xid,
    },
    wire::{
        Codec,
        part_writer::{PartWriter, ReplyEntry},
    },
};

/// Returns whether the reply contains counters, which threads must report first.
pub(super) const fn is_counted(request: &MultipartRequest) -> bool {
    matches!(
        request,
        MultipartRequest::Flow(_)
            | MultipartRequest::Aggregate(_)
            | MultipartRequest::NiciraFlow(_)
            | MultipartRequest::NiciraAggregate(_)
            | MultipartRequest::Table
            | MultipartRequest::Port(_)
            | MultipartRequest::Group(_)
            | MultipartRequest::Meter(_)
    )
}

/// Checks that the object that a request names exists.
pub(super) fn check(request: &MultipartRequest, host: &impl Host) -> Result<(), ErrorCode> {
    match request {
        MultipartRequest::Queue(filter) => check_queue(*filter, host),
        MultipartRequest::Meter(Some(meter)) | MultipartRequest::MeterConfig(Some(meter)) => {
            let exists = host.meters().iter().any(|own| own.id == *meter);
            if exists { Ok(()) } else { Err(ErrorCode::MeterUnknown) }
        }
        MultipartRequest::Description
        | MultipartRequest::Flow(_)
        | MultipartRequest::Aggregate(_)
        | MultipartRequest::NiciraFlow(_)
        | MultipartRequest::NiciraAggregate(_)
        | MultipartRequest::Table
        | MultipartRequest::Port(_)
        | MultipartRequest::Group(_)
        | MultipartRequest::GroupDescription(_)
        | MultipartRequest::GroupFeatures
        | MultipartRequest::Meter(None)
        | MultipartRequest::MeterConfig(None)
        | MultipartRequest::MeterFeatures
        | MultipartRequest::TableFeatures
        | MultipartRequest::PortDescription
        | MultipartRequest::FlowMonitor(_) => Ok(()),
    }
}

/// Builds the reply to a request that passed [`check`]; [`FlowReply`] lists rules.
pub(super) fn reply(request: &MultipartRequest, host: &impl Host, codec: Codec) -> MultipartReply {
    match request {
        MultipartRequest::Description => MultipartReply::Description(host.description()),
        MultipartRequest::Flow(_) => MultipartReply::Flow(Vec::new()),
        MultipartRequest::Aggregate(filter) => MultipartReply::Aggregate(aggregate(filter, host)),
        MultipartRequest::NiciraFlow(_) => MultipartReply::NiciraFlow(Vec::new()),
        MultipartRequest::NiciraAggregate(filter) => {
            MultipartReply::NiciraAggregate(aggregate(filter, host))
        }
        MultipartRequest::Table => MultipartReply::Table(host.table_statistics()),
        MultipartRequest::Port(port) => {
            let mut ports = host.port_statistics();
            ports.retain(|own| *port == PortNo::ANY || own.port == *port);
            MultipartReply::Port(ports)
        }
        MultipartRequest::Queue(filter) => {
            let mut queues = host.queue_statistics();
            queues.retain(|own| filter.selects(own.port, own.queue));
            MultipartReply::Queue(queues)
        }
        MultipartRequest::Group(group) => MultipartReply::Group(groups(*group, host)),
        MultipartRequest::GroupDescription(group) => {
            let mut groups = host.groups();
            groups.retain(|own| group.is_none_or(|group| own.id == group));
            let groups = groups.iter().map(|group| GroupDescription::of(group));
            MultipartReply::GroupDescription(groups.collect())
        }
        MultipartRequest::GroupFeatures => MultipartReply::GroupFeatures(group_features(codec)),
        MultipartRequest::Meter(meter) => MultipartReply::Meter(meters(*meter, host)),
        MultipartRequest::MeterConfig(meter) => {
            let mut meters = host.meters();
            meters.retain(|own| meter.is_none_or(|meter| own.id == meter));
            let meters = meters.iter().map(|meter| MeterDescription::of(meter));
            MultipartReply::MeterConfig(meters.collect())
        }
        MultipartRequest::MeterFeatures => MultipartReply::MeterFeatures(meter_features()),
        MultipartRequest::TableFeatures => MultipartReply::TableFeatures(host.table_features()),
        MultipartRequest::PortDescription => MultipartReply::PortDescription(host.ports()),
        // The flow monitors of the connection write their updates themselves.
        MultipartRequest::FlowMonitor(_) => MultipartReply::FlowMonitor(Vec::new()),
    }
}

/// Returns the statistics of one group, or of all groups.
fn groups(group: Option<GroupId>, host: &impl Host) -> Vec<GroupStatistics> {
    let (now, users) = (host.now(), host.group_users());
    let mut groups = host.groups();
    groups.retain(|own| group.is_none_or(|group| own.id == group));
    let references = |own: &Group| users.get(&own.id).copied().unwrap_or(0);
    groups.iter().map(|own| GroupStatistics::of(own, references(own), now)).collect()
}

/// Returns the statistics of one meter, or of all meters.
fn meters(meter: Option<MeterId>, host: &impl Host) -> Vec<MeterStatistics> {
    let (now, users) = (host.now(), host.meter_users());
    let mut meters = host.meters();
    meters.retain(|own| meter.is_none_or(|meter| own.id == meter));
    let flows = |own: &Meter| users.get(&own.id).copied().unwrap_or(0);
    meters.iter().map(|own| MeterStatistics::of(own, flows(own), now)).collect()
}

// The fields of the group and meter features can hold the maximum numbers.
const _: () = assert!(Group::COUNT_MAX <= u32::MAX as usize);
const _: () = assert!(Meter::COUNT_MAX <= u32::MAX as usize);
const _: () = assert!(Meter::BANDS_MAX <= u8::MAX as usize);

/// Returns the group features, which are the same for all types.
fn group_features(codec: Codec) -> GroupFeatures {
    let actions = codec.standard_actions().iter().fold(0, |bits, number| bits | 1 << number);
    GroupFeatures {
        kinds: 0xf,
        capabilities: GroupFeatures::SELECT_WEIGHT
            | GroupFeatures::SELECT_LIVENESS
            | GroupFeatures::CHAINING,
        groups_max: [u32::try_from(Group::COUNT_MAX).unwrap_or(u32::MAX); 4],
        actions: [actions; 4],
    }
}

/// Returns the meter features.
///
/// The switch supports both band types, both units, bursts and counters, but no colours.
fn meter_features() -> MeterFeatures {
    MeterFeatures {
        meters_max: u32::try_from(Meter::COUNT_MAX).unwrap_or(u32::MAX),
        band_kinds: 0b110,
        capabilities: 0xf,
        bands_max: u8::try_from(Meter::BANDS_MAX).unwrap_or(u8::MAX),
        colors_max: 0,
    }
}

/// Returns the totals of the rules that a filter selects.
fn aggregate(filter: &RuleFilter, host: &impl Host) -> AggregateStatistics {
    let rules = host.rules(filter);
    let mut totals = AggregateStatistics {
        // The field has 32 bits, and a larger number is not representable.
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

/// Checks that the queue of a request exists.
fn check_queue(filter: QueueFilter, host: &impl Host) -> Result<(), ErrorCode> {
    check_queues(filter.port, host)?;
    let exists = || host.queues().iter().any(|own| filter.selects(own.port, own.queue));
    if filter.queue.is_none() || exists() { Ok(()) } else { Err(ErrorCode::QueueUnknown) }
}

/// Checks that the port of a queue request exists.
fn check_queues(port: PortNo, host: &impl Host) -> Result<(), ErrorCode> {
    let exists = || host.ports().iter().any(|own| own.number == port);
    if port == PortNo::ANY || exists() { Ok(()) } else { Err(ErrorCode::QueuePort) }
}

/// Returns the queues of a port, or of all ports.
pub(super) fn queue_config(port: PortNo, host: &impl Host) -> Result<QueueConfig, ErrorCode> {
    check_queues(port, host)?;
    let mut queues = host.queues();
    queues.retain(|own| QueueFilter { port, queue: None }.selects(own.port, own.queue));
    queues.truncate(QueueConfig::QUEUES_MAX);
    Ok(QueueConfig { port, queues })
}

/// A flow statistics reply that is encoded as fast as the peer reads it.
///
/// The reply shares the rules with the tables, so it holds one pointer for each rule that the peer
/// has not read. A rule that is removed meanwhile is kept until it is read. A scan by pages would
/// hold more: the rules of one version stay complete only if the tables keep all rules that are
/// removed since then.
#[derive(Debug)]
pub(super) struct FlowReply {
    /// The form of the entries.
    form: FlowReplyForm,
    /// The rules that are not written yet.
    rules: vec::IntoIter<Arc<Rule>>,
    /// The message that is being filled.
    writer: Option<PartWriter>,
    /// Time of the request, for the durations of rules.
    now: Time,
}

/// The form of flow statistics, which follows their request.
#[derive(Clone, Copy, Debug)]
pub(super) enum FlowReplyForm {
    /// The form of `OFPMP_FLOW`.
    Standard,
    /// The form of `NXST_FLOW`.
    Nicira,
}

impl FlowReply {
    /// Returns a reply in which no rule is written yet. Rule ages count up to `now`.
    pub(super) fn new(
        xid: Xid,
        form: FlowReplyForm,
        mut rules: Vec<Arc<Rule>>,
        now: Time,
        codec: Codec,
    ) -> Self {
        rules.shrink_to_fit();
        let empty = match form {
            FlowReplyForm::Standard => MultipartReply::Flow(Vec::new()),
            FlowReplyForm::Nicira => MultipartReply::NiciraFlow(Vec::new()),
        };
        let writer = Some(codec.part_writer(xid, &empty));
        Self { form, rules: rules.into_iter(), writer, now }
    }

    /// Returns the next message; `None` after the last one.
    ///
    /// # Errors
    ///
    /// A single rule does not fit into a message and is left out. Rules of this length are refused
    /// when they are added.
    pub(super) fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let Some(writer) = &mut self.writer else { return Ok(None) };
        for rule in self.rules.by_ref() {
            let statistics = FlowStatistics::of(&rule, self.now);
            let entry = match self.form {
                FlowReplyForm::Standard => ReplyEntry::Flow(&statistics),
                FlowReplyForm::Nicira => ReplyEntry::NiciraFlow(&statistics),
            };
            if let Some(full) = writer.push(entry)? {
                return Ok(Some(full));
            }
        }
        self.writer.take().map(PartWriter::finish).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        BridgeId, BridgeSettings, FlowModCommand, Modification, Pipeline, text::parse_rule,
    };

    use super::*;

    /// A slow peer costs a pointer to each unread rule, and no copy of a rule.
    #[test]
    fn a_listing_holds_pointers_to_unread_rules() {
        /// Number of rules in the listing.
        const COUNT: usize = 2000;
        let (pipeline, bridge, filter) = (Pipeline::new(0), BridgeId::new(1), RuleFilter::all());
        pipeline.add_bridge(bridge, BridgeSettings::default());
        let rule = |port: usize| {
            let text = format!("tcp,tp_dst={port},actions=drop");
            let added = parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap();
            Modification::from(added)
        };
        drop(pipeline.modify(bridge, (0..COUNT).map(rule), Time::ZERO).unwrap());
        let rules: Vec<_> = pipeline.rules(bridge, &filter).iter().map(Arc::downgrade).collect();
        let references = || rules.iter().map(Weak::strong_count).collect::<Vec<_>>();
        let of_tables = references();
        let listed = pipeline.rules(bridge, &filter);
        let mut reply =
            FlowReply::new(Xid::new(7), FlowReplyForm::Standard, listed, Time::ZERO, Codec::V13);
        let mut messages = 0;
        loop {
            let unread = reply.rules.len();
            let with_reply = (0..)
                .zip(&of_tables)
                .map(|(position, count)| count + usize::from(position >= COUNT - unread));
            assert!(references().into_iter().eq(with_reply), "{unread} rules are unread");
            let Some(_) = reply.next_message().unwrap() else { break };
            messages += 1;
        }
        assert!(messages > 1 && reply.rules.as_slice().is_empty());
        assert_eq!(references(), of_tables);
    }
}
