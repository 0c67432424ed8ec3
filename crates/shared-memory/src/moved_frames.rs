//! The results of moving frames from and to another process.

/// The result of a poll for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolledFrames {
    /// Number of frames that were taken, including refused frames.
    pub frames: usize,
    /// False if the receiver's descriptor becomes readable for the next frame.
    pub may_have_more: bool,
}

/// The result of sending several frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentFrames {
    /// Number of frames that were sent.
    pub frames: usize,
    /// Reason why no further frames were sent.
    pub end: SendEnd,
}

impl SentFrames {
    /// Creates the result of a call that sent nothing.
    #[must_use]
    pub const fn none(end: SendEnd) -> Self {
        Self { frames: 0, end }
    }
}

/// Reason why no further frames were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// All frames of the batch were sent.
    All,
    /// The ring has no space for the next frame, or no peer is connected.
    Full,
    /// The peer can never accept the next frame.
    ///
    /// The frame is too long, or needs an offload that was not negotiated.
    Refused,
    /// Another thread uses the queue.
    Busy,
}
