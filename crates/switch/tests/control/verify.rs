//! Wrong cache entries are counted, logged and dropped.

use std::sync::Arc;

use shunt_pipeline::{Delta, EntryId, Evictor, Installed, OwnerId, Traversal, Version};
use shunt_switch::Config;

use crate::{
    fixture::{SwitchFixture, frame, wait_until},
    log::Log,
};

/// An eviction engine that finds no stale entries.
struct NeverStale;

impl Evictor for NeverStale {
    fn installed(&mut self, _: EntryId, _: &Arc<Traversal>) -> Installed {
        Installed::Recorded
    }

    fn removed(&mut self, _: EntryId) {}

    fn apply(&mut self, _: &[Delta], _: Version) -> Vec<EntryId> {
        Vec::new()
    }

    fn forget(&mut self, _: OwnerId) {}

    fn len(&self) -> usize {
        0
    }
}

#[tokio::test]
async fn wrong_cache_entry_is_logged_and_dropped() {
    let log = Log::capture();
    let fixture = SwitchFixture::without_bridge(1, Box::new(|_| Box::new(NeverStale))).await;
    fixture.add_bridge("br0").await;
    let from = fixture.add_port("p1", 0).await;
    let (old, new) = (fixture.add_port("p2", 0).await, fixture.add_port("p3", 0).await);
    fixture.switch.add_rules("br0", &["in_port=p1,cookie=1,actions=output:p2"]).await.unwrap();
    from.send(&frame(1));
    assert_eq!(old.next_received().await, frame(1));
    from.send(&frame(1));
    assert_eq!(old.next_received().await, frame(1));
    assert_eq!((fixture.switch.caches().verified, fixture.switch.caches().differences), (1, 0));

    fixture.switch.add_rules("br0", &["in_port=p1,cookie=2,actions=output:p3"]).await.unwrap();
    for _ in 0..3 {
        from.send(&frame(1));
        assert_eq!(new.next_received().await, frame(1));
    }
    assert_eq!(fixture.switch.caches().differences, 1);
    assert!(old.all_received().is_empty());
    wait_until(|| !log.lines_with("cache entry: the result is wrong").is_empty()).await;
    let lines = log.lines_with("cache entry: the result is wrong");
    let parts = ["flow=\"in_port=p1", "cookie 0x1; p2", "cookie 0x2; p3", "count=1"];
    assert!(parts.iter().all(|part| lines[0].contains(part)), "{lines:?}");
    assert_eq!(lines.len(), 1);
}

/// Number of bits of the source address in which flows differ.
const FLOW_BITS: u8 = 6;

/// Returns a frame with the last byte of its source address.
fn frame_of(flow: u8) -> Vec<u8> {
    let mut frame = frame(0);
    frame[11] = flow;
    frame
}

/// Each packet follows the tables while `caches.index`, `caches.learned_index` and
/// `caches.kind` change.
///
/// All hits and decisions are verified. A flow follows the rule of its highest bit, so megaflows
/// have several masks.
#[tokio::test]
async fn lookups_change_while_packets_flow() {
    let mut config = Config::default();
    config.caches.verify_one_in = 1;
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let from = fixture.add_port("p1", 0).await;
    let to = [fixture.add_port("p2", 0).await, fixture.add_port("p3", 0).await];
    let mut rules = vec!["priority=1,actions=output:p2".to_owned()];
    for bit in 0..FLOW_BITS {
        let (mask, priority, port) = (1 << bit, 10 + bit, 2 + bit % 2);
        rules.push(format!(
            "priority={priority},dl_src=00:00:00:00:00:{mask:02x}/00:00:00:00:00:{mask:02x},\
             actions=output:p{port}"
        ));
    }
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    let changes = [
        ("caches.index", "learned"),
        ("caches.index", "tuple-space"),
        ("caches.index", "learned"),
        ("caches.learned_index", "rqrmi"),
        ("caches.learned_index", "segments"),
        ("caches.kind", "flows"),
        ("caches.learned_index", "rqrmi"),
        ("caches.learned_index", "tree"),
        ("caches.index", "tuple-space"),
        ("caches.kind", "megaflow"),
        ("caches.index", "adaptive"),
    ];
    for change in changes {
        let flows = 0..1 << FLOW_BITS;
        flows.clone().for_each(|flow| from.send(&frame_of(flow)));
        fixture.switch.set(&[change]).await.unwrap();
        flows.clone().for_each(|flow| from.send(&frame_of(flow)));
        // Packets of different flows may leave in another order, because misses wait.
        let mut expected = [Vec::new(), Vec::new()];
        for flow in flows.clone().chain(flows) {
            let is_odd = flow.checked_ilog2().is_some_and(|bit| bit % 2 == 1);
            expected[usize::from(is_odd)].push(frame_of(flow));
        }
        for (port, mut expected) in to.iter().zip(expected) {
            let mut received = Vec::new();
            while received.len() < expected.len() {
                received.push(port.next_received().await);
            }
            received.sort_unstable();
            expected.sort_unstable();
            assert_eq!(received, expected, "{change:?}");
        }
        assert_eq!(fixture.switch.caches().differences, 0, "{change:?}");
    }
    assert!(fixture.switch.caches().verified > 0);
    assert!(to.iter().all(|port| port.all_received().is_empty()));
}
