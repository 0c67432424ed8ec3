//! The hosts on the ports, which send frames of a few hundred flows and receive the output.

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use shunt_datapath::{BURST, Pool, port::Queues};
use shunt_flow::testing::packet::PacketBuilder;
use shunt_pipeline::DatapathPort;

use crate::draw;

/// Number of flows in one network.
const FLOWS: usize = 400;

/// Number of bursts sent between two receptions.
const BURSTS: usize = 8;

/// All hosts, each on one queue of one port.
#[derive(Default)]
pub(crate) struct Hosts {
    pub(crate) far_ends: Vec<Queues>,
    pool: Pool,
    /// Packets that the queues of the switch accepted.
    pub(crate) sent: u64,
    /// Packets that the hosts received.
    pub(crate) received: u64,
}

impl Hosts {
    /// Sends some bursts of some flows, and receives the output.
    pub(crate) fn exchange(&mut self, runner: &mut TestRunner, flows: &[Vec<u8>]) {
        for _ in 0..BURSTS {
            let far_end = draw(runner, 0..self.far_ends.len());
            let first = draw(runner, 0..flows.len());
            for frame in flows.iter().cycle().skip(first).take(BURST) {
                let packet = self.pool.take(frame.len(), DatapathPort::new(0));
                let mut packet = packet.expect("the pool has a buffer");
                packet.frame_mut().copy_from_slice(frame);
                let took = self.far_ends[far_end].tx.tx(std::slice::from_ref(&packet));
                self.sent += took as u64;
                self.pool.put_back(packet);
            }
            self.far_ends[far_end].tx.flush();
        }
        self.receive();
    }

    /// Receives the output so far.
    pub(crate) fn receive(&mut self) {
        let mut burst = Vec::with_capacity(BURST);
        for far_end in &mut self.far_ends {
            let Some(rx) = &mut far_end.rx else { continue };
            loop {
                rx.rx(&mut self.pool, &mut burst).expect("a virtual cable does not fail");
                if burst.is_empty() {
                    break;
                }
                self.received += burst.len() as u64;
                burst.drain(..).for_each(|packet| self.pool.put_back(packet));
            }
        }
    }
}

/// Returns the flows of a network, with header values that generated rules use.
pub(crate) fn flows(runner: &mut TestRunner) -> Vec<Vec<u8>> {
    draw(runner, vec(frame(), FLOWS))
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let mac = || select(vec![[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]);
    let address = || select(vec![[10, 0, 0, 1], [10, 0, 0, 2], [10, 1, 0, 1]]);
    let port = || select(vec![1_u16, 2, 80]);
    let tags = vec((select(vec![0x8100_u16, 0x88a8]), select(vec![0_u16, 5, 0x2005])), 0..=2);
    let network = (address(), address(), select(vec![0_u8, 1, 2, 64]), select(vec![0_u8, 40, 112]));
    let transport = (port(), port(), select(vec![0x10_u16, 0x11, 0x14]), 0..10_u8);
    (mac(), mac(), tags, network, transport, 0..200_usize).prop_map(
        |(source, target, tags, network, transport, length)| {
            let (from, to, ttl, tos) = network;
            let (own, other, flags, kind) = transport;
            let ip = || PacketBuilder::ipv4(from, to).ttl(ttl).tos(tos);
            let packet = match kind {
                0 => PacketBuilder::arp(1, (source, from), ([0; 6], to)),
                1 => PacketBuilder::ethernet(0x88cc),
                2 => ip().fragment(0x2000).udp(own, other),
                3 => ip().fragment(0x2010).udp(own, other),
                4..7 => ip().udp(own, other),
                _ => ip().tcp(own, other).tcp_flags(flags),
            };
            let tag = |packet: PacketBuilder, (tpid, tci)| packet.tag(tpid, tci);
            let packet = tags.into_iter().fold(packet, tag);
            packet.macs(source, target).payload(vec![7; length]).build()
        },
    )
}
