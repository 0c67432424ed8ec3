//! Some of a few packets, by their places among them.

/// A few of the packets that go through the stages in step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    places: [u8; FEW],
    count: u8,
}

/// So many go in step at most.
pub(super) const FEW: usize = 32;

impl Places {
    pub(super) const NONE: Self = Self { places: [0; FEW], count: 0 };

    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    #[inline]
    pub(super) const fn count(&self) -> u32 {
        self.count as u32
    }

    /// One more, of fewer than [`FEW`].
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "below FEW")]
    pub(super) const fn push(&mut self, place: usize) {
        self.places[self.count as usize] = place as u8;
        self.count += 1;
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.places[..usize::from(self.count)].iter().map(|place| usize::from(*place))
    }

    /// Takes out those that `is_one` accepts.
    pub(super) fn take(&mut self, is_one: impl Fn(usize) -> bool) -> Self {
        let (mut taken, mut left) = (Self::NONE, Self::NONE);
        for place in self.iter() {
            if is_one(place) {
                taken.push(place);
            } else {
                left.push(place);
            }
        }
        *self = left;
        taken
    }
}

const _: () = assert!(FEW < 256, "a place is a byte, and so is their number");
