//! Wrong cache entries are counted, logged and dropped.

use std::sync::Arc;

use shunt_pipeline::{Delta, EntryId, Evictor, Installed, OwnerId, Traversal, Version};

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
    wait_until(|| !log.lines_with("cache entry: wrong result").is_empty()).await;
    let lines = log.lines_with("cache entry: wrong result");
    let parts = ["flow=\"in_port=p1", "cookie 0x1; p2", "cookie 0x2; p3", "count=1"];
    assert!(parts.iter().all(|part| lines[0].contains(part)), "{lines:?}");
    assert_eq!(lines.len(), 1);
}
