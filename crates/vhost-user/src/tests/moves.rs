//! Tests that move frames through queues, and compare the frames with a list.

use std::{collections::VecDeque, sync::Arc};

use proptest::prelude::*;

use super::{KeptFrames, attach};
use crate::{
    NetHeader, SendEnd, Worker,
    features::VirtioFeatures,
    queues::DeviceQueues,
    testing::{BufferLayout, TestGuest},
};

/// A step of the guest or of the switch.
#[derive(Clone, Debug)]
enum Step {
    /// The guest sends a frame in parts of at most these lengths.
    GuestSends { length: usize, cuts: Vec<usize>, is_indirect: bool },
    /// The switch takes at most this number of frames.
    Take(usize),
    /// The guest offers a receive buffer.
    GuestOffers { length: usize, cuts: Vec<usize>, is_indirect: bool },
    /// The switch sends frames of these lengths.
    Send(Vec<usize>),
    /// The guest takes all buffers that the device has returned.
    GuestLooks,
    /// The back-end is killed, and another back-end starts.
    Restart,
}

/// Generates steps of the guest and the device.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cuts = || prop::collection::vec(0_usize..700, 0..4);
    let sends = (1_usize..3000, cuts(), any::<bool>())
        .prop_map(|(length, cuts, is_indirect)| Step::GuestSends { length, cuts, is_indirect });
    let offers = (12_usize..4000, cuts(), any::<bool>())
        .prop_map(|(length, cuts, is_indirect)| Step::GuestOffers { length, cuts, is_indirect });
    let step = prop_oneof![
        4 => sends,
        4 => offers,
        3 => (0_usize..9).prop_map(Step::Take),
        3 => prop::collection::vec(1_usize..5000, 0..5).prop_map(Step::Send),
        3 => Just(Step::GuestLooks),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..80)
}

/// Divides a length into parts.
fn layout(length: usize, cuts: &[usize], is_indirect: bool) -> BufferLayout {
    let (mut parts, mut left) = (Vec::new(), length);
    for cut in cuts.iter().filter(|cut| **cut > 0) {
        if *cut < left {
            parts.push(*cut);
            left -= cut;
        }
    }
    parts.push(left);
    BufferLayout { parts, is_indirect }
}

/// Returns a frame with bytes that no other step sends.
fn frame(length: usize, number: u32) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(length).collect()
}

/// A switch and a guest, and the frames between them as lists.
struct Model {
    guest: TestGuest,
    queues: Arc<DeviceQueues>,
    worker: Worker,
    /// Frames of the guest that the switch has not taken.
    from_guest: VecDeque<Vec<u8>>,
    /// Frames to the guest that the guest has not taken.
    to_guest: VecDeque<Vec<u8>>,
    /// Lengths of the buffers that the guest has offered and the switch has not filled.
    buffers: VecDeque<usize>,
    number: u32,
}

impl Model {
    /// Returns a guest with one pair of queues, and no frames.
    fn new(features: VirtioFeatures) -> Self {
        let queues = Arc::new(DeviceQueues::new(1).unwrap());
        Self {
            guest: TestGuest::new(1, 8, features),
            worker: Worker::new(&queues, 0),
            queues,
            from_guest: VecDeque::new(),
            to_guest: VecDeque::new(),
            buffers: VecDeque::new(),
            number: 0,
        }
    }

    /// Returns a frame of `length` bytes with a number of its own.
    fn next_frame(&mut self, length: usize) -> Vec<u8> {
        self.number += 1;
        frame(length, self.number)
    }

    /// Receives at most `max` frames from the guest.
    fn take(&mut self, max: usize) {
        let mut kept = KeptFrames::default();
        let polled = self.worker.receiver.receive(max, &mut kept);
        assert_eq!(polled.frames, kept.frames.len());
        assert_eq!(
            polled.frames,
            self.from_guest.len().min(max),
            "no frame waits for another poll"
        );
        for (header, frame) in kept.frames {
            assert_eq!(header, NetHeader::default());
            assert_eq!(Some(frame), self.from_guest.pop_front());
        }
    }

    /// Returns the number of buffers that a frame uses, or why the frame is not sent.
    fn buffers_of(&self, length: usize) -> Result<usize, SendEnd> {
        let needed = length + 12;
        let merges = self.guest.features.contains(VirtioFeatures::MRG_RXBUF);
        let mut room = 0;
        for (index, buffer) in self.buffers.iter().enumerate() {
            if index == usize::from(self.guest.size) || index > 0 && !merges {
                return Err(SendEnd::Refused);
            }
            room += buffer;
            if room >= needed {
                return Ok(index + 1);
            }
        }
        let is_refused = !merges && !self.buffers.is_empty()
            || self.buffers.len() == usize::from(self.guest.size);
        Err(if is_refused { SendEnd::Refused } else { SendEnd::Full })
    }

    /// Sends frames to the guest, and checks how many fit its buffers.
    fn send(&mut self, lengths: &[usize]) {
        let frames: Vec<Vec<u8>> = lengths.iter().map(|length| self.next_frame(*length)).collect();
        let mut end = SendEnd::All;
        let mut count = 0;
        for frame in &frames {
            match self.buffers_of(frame.len()) {
                Ok(buffers) => {
                    self.buffers.drain(..buffers);
                    self.to_guest.push_back(frame.clone());
                    count += 1;
                }
                Err(reason) => {
                    end = reason;
                    break;
                }
            }
        }
        let sent = self
            .worker
            .sender
            .send(frames.iter().map(|frame| (NetHeader::default(), frame.as_slice())));
        assert_eq!((sent.frames, sent.end), (count, end));
    }

    /// Compares the received frames with the sent ones.
    fn look(&mut self) {
        self.guest.take_sent(0);
        for (header, frame) in self.guest.take_received(0) {
            assert_eq!(header[..10], [0; 10]);
            assert_eq!(Some(frame), self.to_guest.pop_front());
        }
        assert_eq!(self.to_guest.len(), 0, "all sent frames are there");
    }

    /// Runs a step of the model.
    fn run(&mut self, step: Step) {
        let indirect = self.guest.features.contains(VirtioFeatures::INDIRECT_DESC);
        match step {
            Step::GuestSends { length, cuts, is_indirect } => {
                let frame = self.next_frame(length);
                let layout = layout(length + 12, &cuts, is_indirect && indirect);
                if self.guest.send(0, NetHeader::default(), &frame, &layout) {
                    self.from_guest.push_back(frame);
                }
            }
            Step::GuestOffers { length, cuts, is_indirect } => {
                let layout = layout(length, &cuts, is_indirect && indirect);
                if self.guest.offer_buffer(0, &layout) {
                    self.buffers.push_back(length);
                }
            }
            Step::Take(max) => self.take(max),
            Step::Send(lengths) => self.send(&lengths),
            Step::GuestLooks => self.look(),
            Step::Restart => unreachable!("the caller restarts"),
        }
    }
}

/// Checks that no step loses or repeats a frame.
fn check(features: VirtioFeatures, steps: Vec<Step>) {
    let mut model = Model::new(features);
    let mut device = attach(&model.queues, &model.guest);
    for step in steps {
        match step {
            Step::Restart => {
                drop(device);
                device = attach(&model.queues, &model.guest);
            }
            step => model.run(step),
        }
        assert_eq!(model.queues.take_failures(), []);
    }
    model.take(usize::MAX);
    model.look();
    drop(device);
}

/// The features of a guest with split rings.
const PLAIN: VirtioFeatures = VirtioFeatures::VERSION_1;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The property holds with every set of ring features, and through restarts.
    #[test]
    fn frames_arrive_once_and_in_order(
        steps in steps(), is_packed: bool, merges: bool, has_events: bool, has_indirect: bool,
    ) {
        let optional = [
            (is_packed, VirtioFeatures::RING_PACKED),
            (merges, VirtioFeatures::MRG_RXBUF),
            (has_events, VirtioFeatures::EVENT_IDX),
            (has_indirect, VirtioFeatures::INDIRECT_DESC),
        ];
        let features = optional.into_iter().filter(|(is_taken, _)| *is_taken);
        check(features.fold(PLAIN, |all, (_, feature)| all.with(feature)), steps);
    }
}

#[test]
fn indexes_wrap_at_16_bits() {
    for features in [PLAIN, TestGuest::SPLIT, TestGuest::PACKED] {
        let mut model = Model::new(features);
        let _device = attach(&model.queues, &model.guest);
        for _ in 0..70_000 / 8 {
            for _ in 0..8 {
                model.run(Step::GuestSends { length: 60, cuts: Vec::new(), is_indirect: false });
                let offer = Step::GuestOffers { length: 100, cuts: Vec::new(), is_indirect: false };
                model.run(offer);
            }
            model.take(32);
            model.send(&[60; 8]);
            model.look();
        }
        assert_eq!(model.queues.take_failures(), []);
    }
}

#[test]
fn a_large_packet_takes_several_buffers() {
    for features in [TestGuest::SPLIT, TestGuest::PACKED] {
        let mut model = Model::new(features);
        let _device = attach(&model.queues, &model.guest);
        for length in [2000, 100, 60_000, 10_000] {
            model.run(Step::GuestOffers { length, cuts: vec![1000], is_indirect: false });
        }
        model.send(&[65_000]);
        model.look();
    }
}
