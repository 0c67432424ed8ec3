//! Bridges and ports that come and go at the same time, and often.

use shunt_flow::PortNo;
use shunt_ofproto::message::{Message, PortMod};
use shunt_pipeline::PortConfig;

use crate::bench::{Bench, frame, in_time, wire};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bridge_that_goes_takes_ports_with_it_that_come_meanwhile() {
    let bench = Bench::start(1).await;
    for round in 0..50 {
        bench.add_bridge("br1").await;
        let mut far_ends = Vec::new();
        for number in 0..4 {
            let (port, far_end) = wire(0);
            bench.switch.add_own_port("br1", &format!("old{number}"), port).await.unwrap();
            far_ends.push(far_end);
        }
        let (port, far_end) = wire(0);
        far_ends.push(far_end);
        let adds = async {
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
            bench.switch.add_own_port("br1", "new", port).await
        };
        let (removed, _) =
            in_time(async { tokio::join!(bench.switch.remove_bridge("br1"), adds) }).await;
        removed.unwrap();
        assert_eq!(bench.switch.bridges().len(), 1);
        assert!(far_ends.iter().all(|far_end| far_end.is_closed()), "in round {round}");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_down_and_up_passes_packets_accordingly() {
    let bench = Bench::start(1).await;
    let (from, to) = (bench.add_port("p1", 0).await, bench.add_port("p2", 0).await);
    bench
        .switch
        .add_rules("br0", &["in_port=p1,actions=output:p2", "in_port=p2,actions=output:p1"])
        .await
        .unwrap();
    let mut controller = bench.controller().await;
    let down = PortConfig { port_down: true, ..PortConfig::default() };
    for (config, passes) in [(down, false), (PortConfig::default(), true), (down, false)] {
        let mac = [2, 0, 0, 0, 1, 1];
        let number = PortNo::new(bench.port("p2").number);
        let request = PortMod { port: number, mac, config, mask: down, advertise: 0 };
        controller.send(&Message::PortMod(request)).await;
        assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
        assert_eq!(bench.port("p2").link, if passes { "up" } else { "down: by a controller" });
        let dropped = bench.switch.drops().total();
        from.send(&frame(1));
        to.send(&frame(2));
        if passes {
            assert_eq!((to.hear().await, from.hear().await), (frame(1), frame(2)));
        } else {
            crate::bench::until(|| bench.switch.drops().total() == dropped + 2).await;
        }
        assert_eq!((to.heard().len(), from.heard().len()), (0, 0));
    }
}
