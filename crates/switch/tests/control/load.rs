//! Receive queues that move between packet threads while packets flow.

use std::collections::BTreeSet;

use shunt_switch::{DatapathReader, QueueMoves};

use crate::fixture::{SwitchFixture, frame, wait_until};

/// Returns the packet threads of the only receive queues of two ports.
fn threads(fixture: &SwitchFixture) -> [usize; 2] {
    let queues = DatapathReader::new(&fixture.switch).rx_queues();
    ["p1", "p2"].map(|name| {
        let mut own = queues.iter().filter(|queue| queue.port == name);
        let queue = own.next().unwrap();
        assert!(own.next().is_none() && queue.queue == 0, "{queues:?}");
        queue.thread
    })
}

/// Both ports begin at the first packet thread.
#[tokio::test]
async fn a_busy_queue_moves_to_an_idle_thread() {
    let fixture = SwitchFixture::start(2).await;
    let (one, two) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    let to = fixture.add_port("p3", 1).await;
    fixture.switch.add_rules("br0", &["actions=output:p3"]).await.unwrap();
    let reader = DatapathReader::new(&fixture.switch);
    for _ in 0..8 {
        assert_eq!(reader.rebalance().await, QueueMoves::default(), "no queue has a load");
    }
    let is_unknown = reader.rx_queues().iter().all(|queue| queue.busy_percent.is_none());
    assert!(is_unknown, "a command adds no interval");
    assert_eq!(threads(&fixture), [0, 0]);
    for _ in 0..1000 {
        one.send(&frame(1));
        two.send(&frame(2));
    }
    for _ in 0..2000 {
        to.next_received().await;
    }
    // Packets of one flow are on the way while its queue may move.
    (0..100).for_each(|number| one.send(&frame(number)));
    assert_eq!(reader.rebalance().await, QueueMoves { planned: 1, moved: 1 });
    (100..200).for_each(|number| one.send(&frame(number)));
    for number in 0..200 {
        assert_eq!(to.next_received().await, frame(number));
    }
    let [first, second] = threads(&fixture);
    assert_ne!(first, second, "each thread has a busy queue");
    two.send(&frame(9));
    assert_eq!(to.next_received().await, frame(9));
    let received = |name| fixture.port(name).rx_packets;
    wait_until(|| received("p1") == 1200 && received("p2") == 1001).await;
    // The counts of a queue move with the queue.
    let packets = |name: &str| {
        let threads = fixture.switch.threads_and_queues();
        let mut queues = threads.iter().flat_map(|own| &own.queues);
        queues.find(|queue| queue.port == name).map(|queue| queue.packets)
    };
    wait_until(|| packets("p1") == Some(1200) && packets("p2") == Some(1001)).await;
    for (number, own) in fixture.switch.threads_and_queues().iter().enumerate() {
        assert!(own.queues.iter().all(|queue| queue.thread == number), "{own:?}");
        assert_eq!(own.queues.is_empty(), number >= 2, "only packet threads poll: {own:?}");
        assert_eq!(own.cpus.is_none(), number >= 2, "{own:?}");
    }
    // A moved queue is closed with its port.
    for name in ["p1", "p2"] {
        fixture.switch.remove_port(name).await.unwrap();
    }
    assert!(one.is_closed() && two.is_closed());
}

/// Queues of added ports get the thread with the least load.
///
/// Of several such threads, the one with the fewest queues gets the queue.
#[tokio::test]
async fn a_new_port_gets_the_least_loaded_thread() {
    let fixture = SwitchFixture::start(2).await;
    let to = fixture.add_port("p0", 1).await;
    fixture.switch.add_rules("br0", &["actions=output:p0"]).await.unwrap();
    let reader = DatapathReader::new(&fixture.switch);
    let thread = |name: &str| {
        let queues = reader.rx_queues();
        queues.iter().find(|queue| queue.port == name).unwrap().thread
    };
    // The loads are measured from a first sample on.
    assert_eq!(reader.rebalance().await, QueueMoves::default());
    let mut ports = Vec::new();
    for name in ["p1", "p2", "p3"] {
        ports.push(fixture.add_placed_port(name).await);
    }
    let placed = ["p0", "p1", "p2", "p3"].map(thread);
    assert_eq!(placed, [1, 0, 0, 1], "without loads, the fewest queues and the lowest number");
    (0..1000).for_each(|_| ports[2].send(&frame(3)));
    for _ in 0..1000 {
        to.next_received().await;
    }
    for name in ["p4", "p5", "p6"] {
        ports.push(fixture.add_placed_port(name).await);
        assert_eq!(thread(name), 0, "{name}: thread 1 has a load");
    }
    // Each port receives at its thread.
    for (number, port) in (0..).zip(&ports) {
        port.send(&frame(number));
        assert_eq!(to.next_received().await, frame(number));
    }
}

/// Each call sees the queue that the call before it has placed.
#[tokio::test]
async fn ports_that_are_added_at_once_are_spread() {
    let fixture = SwitchFixture::start(4).await;
    let add = |name| fixture.add_placed_port(name);
    let _ports = tokio::join!(add("p1"), add("p2"), add("p3"), add("p4"));
    let queues = DatapathReader::new(&fixture.switch).rx_queues();
    let threads: BTreeSet<_> = queues.iter().map(|queue| queue.thread).collect();
    assert_eq!(threads.len(), 4, "{queues:?}");
}
