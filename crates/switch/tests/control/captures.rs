//! Captures of packets at a port.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shunt_switch::CapturedPacket;
use tokio::time::sleep;

use crate::fixture::{SwitchFixture, frame, in_time};

#[expect(clippy::disallowed_methods, reason = "a capture has the time of the system clock")]
fn unix_time_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos().try_into().unwrap()
}

#[tokio::test]
async fn captured_packets_carry_the_time_of_day() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    let capture = fixture.switch.start_capture("p1").await.unwrap();
    let before = unix_time_ns();
    let captured = async {
        loop {
            // The packet thread may start the capture only after the first packet.
            port.send(&frame(7));
            sleep(Duration::from_millis(2)).await;
            let mut packets = fixture.switch.read_capture(capture).unwrap();
            if let Some(packet) = packets.pop() {
                return packet;
            }
        }
    };
    let CapturedPacket { time_ns, .. } = in_time(captured).await;
    // The poll loop iteration may have begun just before the packet was sent.
    let earliest = before - 1_000_000_000;
    assert!((earliest..=unix_time_ns()).contains(&time_ns), "{time_ns} is not after {before}");
}
