//! Tests of requests for queues: the bridge has the queues 0 and 7 on port 1.

use shunt_flow::PortNo;
use shunt_pipeline::QueueId;

use super::code;
use crate::{
    ErrorCode,
    connection::ConnectionKind,
    message::{Message, MultipartReply, MultipartRequest, QueueFilter},
    testing::ConnectionHarness,
};

/// Asks for the statistics of queues; returns the replies.
fn ask(port: PortNo, queue: Option<u32>) -> Vec<Message> {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let filter = QueueFilter { port, queue: queue.map(QueueId::new) };
    harness.request(&Message::MultipartRequest(MultipartRequest::Queue(filter)))
}

#[test]
fn queue_statistics_have_the_queues_of_the_filter() {
    let one = PortNo::new(1);
    let queues = |port, queue| match &ask(port, queue)[..] {
        [Message::MultipartReply { more: false, reply: MultipartReply::Queue(queues) }] => {
            queues.iter().map(|own| (own.port, own.queue.number())).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(queues(PortNo::ANY, None), [(one, 0), (one, 7)]);
    assert_eq!(queues(one, Some(7)), [(one, 7)]);
    assert_eq!(queues(PortNo::new(2), None), []);
    let error = |port, queue| ask(port, queue).first().and_then(code);
    assert_eq!(error(one, Some(5)), Some(ErrorCode::QueueUnknown));
    assert_eq!(error(PortNo::new(2), Some(7)), Some(ErrorCode::QueueUnknown));
    assert_eq!(error(PortNo::new(77), None), Some(ErrorCode::QueuePort));
}

#[test]
fn queue_configuration_has_the_rates() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let replies = harness.request(&Message::QueueConfigRequest(PortNo::new(1)));
    let [Message::QueueConfigReply(config)] = &replies[..] else { panic!("{replies:?}") };
    let rates = config.queues.iter().map(|own| (own.queue.number(), own.min_rate, own.max_rate));
    let expected = [(0, None, Some(1000)), (7, Some(250), Some(1000))];
    assert_eq!((config.port, rates.collect::<Vec<_>>()), (PortNo::new(1), expected.to_vec()));
    let replies = harness.request(&Message::QueueConfigRequest(PortNo::new(2)));
    let [Message::QueueConfigReply(config)] = &replies[..] else { panic!("{replies:?}") };
    assert!(config.queues.is_empty());
}
