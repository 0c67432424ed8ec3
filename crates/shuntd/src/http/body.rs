//! The body of a response.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// The body of a response.
pub(super) enum PageBody {
    /// One text; `None` after it was sent.
    Whole(Option<Bytes>),
    /// Server-sent events, sent as they arrive.
    Events(mpsc::Receiver<Bytes>),
}

impl From<String> for PageBody {
    fn from(text: String) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl From<&'static str> for PageBody {
    fn from(text: &'static str) -> Self {
        Self::Whole(Some(Bytes::from_static(text.as_bytes())))
    }
}

impl Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = match &mut *self {
            Self::Whole(text) => Poll::Ready(text.take()),
            Self::Events(events) => events.poll_recv(context),
        };
        part.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}
