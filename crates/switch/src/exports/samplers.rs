//! The samplers of packet threads for one bridge and protocol.

use shunt_datapath::{
    Command,
    sample::{SampleReceiver, SampleUse, SamplerConfig, packet_sampler},
};
use shunt_pipeline::BridgeId;

use crate::threads::data_plane::DataPlane;

/// Sends every packet thread a sampler for a bridge, or removes its sampler.
///
/// Returns the receivers of the samples when all threads use the new samplers. Each sampler has its
/// own seed.
pub(crate) async fn set_samplers(
    plane: &DataPlane,
    bridge: BridgeId,
    protocol: SampleUse,
    config: Option<SamplerConfig>,
) -> Vec<SampleReceiver> {
    // The samplers of different protocols get different seeds.
    let of_protocol = match protocol {
        SampleUse::Sflow => 0,
        SampleUse::Ipfix => 1 << 32,
    };
    let mut receivers = Vec::new();
    for thread in plane.living() {
        let sampler = config.map(|config| {
            let seed = config.seed.wrapping_add(of_protocol + receivers.len() as u64);
            let (sampler, receiver) = packet_sampler(SamplerConfig { seed, ..config });
            receivers.push(receiver);
            Box::new(sampler)
        });
        plane.send(thread, Command::Sample(bridge, protocol, sampler)).await;
    }
    // Threads process commands in order, so the replies follow the samplers.
    plane.pull_threads().await;
    receivers
}
