//! A unix stream that is woken for write readiness only after a write has blocked.
//!
//! Tokio's streams register for both read and write readiness, and a unix socket signals write
//! readiness each time the peer reads. A request-reply exchange then wakes the task twice: once for
//! the request, and once without work, when the thread has just gone to sleep. A
//! [`ReadInterestStream`] registers for read readiness only. While the send buffer is full, the
//! stream also registers for write readiness.
//!
//! The stream wakes a Tokio task when a socket is ready. The `Waker` of `shunt-datapath` wakes a
//! thread that another thread has sent a message to. The stream and that `Waker` share no code.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd};

/// A unix stream that registers for write readiness only on demand.
pub(super) struct ReadInterestStream {
    /// The stream, registered for readiness to read.
    stream: AsyncFd<UnixStream>,
    /// The stream, registered for write readiness while the send buffer is full.
    write_interest: Option<AsyncFd<OwnedFd>>,
}

impl ReadInterestStream {
    /// Registers the stream for read readiness.
    /// Fails if the system refuses the registration.
    pub(super) fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let stream = watch(stream.into_std()?, Interest::READABLE)?;
        Ok(Self { stream, write_interest: None })
    }

    /// Waits until the send buffer has room, after a write has blocked.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let write_interest = match self.write_interest.take() {
            Some(write_interest) => write_interest,
            None => {
                let same = OwnedFd::from(self.stream.get_ref().try_clone()?);
                watch(same, Interest::WRITABLE)?
            }
        };
        let write_interest = self.write_interest.insert(write_interest);
        // A new registration reports the current readiness, so room that appeared meanwhile is not
        // missed.
        ready!(write_interest.poll_write_ready(context))?.clear_ready();
        self.write_interest = None;
        Poll::Ready(Ok(()))
    }
}

/// Registers a file descriptor for readiness.
#[expect(deprecated, reason = "the value owns its descriptor and keeps it open")]
fn watch<T: AsRawFd + AsFd>(owned: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owned, interest)
}

impl AsyncRead for ReadInterestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.stream.poll_read_ready_mut(context))?;
            let space = buffer.initialize_unfilled();
            match ready.try_io(|stream| stream.get_mut().read(space)) {
                Ok(Ok(count)) => {
                    // A short read empties the socket: later bytes signal readiness again.
                    if 0 < count && count < space.len() {
                        ready.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for ReadInterestStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.write_interest.is_some() {
                ready!(self.poll_room(context))?;
            }
            match self.stream.get_ref().write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_room(context))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Returns two connected streams.
    fn pair() -> (ReadInterestStream, tokio::net::UnixStream) {
        let (near, far) = tokio::net::UnixStream::pair().unwrap();
        (ReadInterestStream::new(near).unwrap(), far)
    }

    /// Number of bytes of a message that no socket buffer holds.
    const LARGE_LEN: usize = 1 << 22;

    #[tokio::test]
    async fn a_blocked_write_continues_as_the_peer_reads() {
        let (mut near, mut far) = pair();
        let sent: Vec<u8> = (0..LARGE_LEN).map(|at| at.to_le_bytes()[0]).collect();
        let (sending, expected) = (sent.clone(), sent);
        let writer = tokio::spawn(async move {
            near.write_all(&sending).await.unwrap();
            assert!(near.write_interest.is_none());
            near.shutdown().await.unwrap();
            near
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        assert!(received == expected, "{} bytes", received.len());
        drop(writer.await.unwrap());
    }

    #[tokio::test]
    async fn reads_of_any_length_return_all_bytes() {
        let (mut near, mut far) = pair();
        let writer = tokio::spawn(async move {
            for length in [1_usize, 7, 8, 9, 100_000, 3] {
                far.write_all(&vec![length.to_le_bytes()[0]; length]).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let (mut received, mut buffer) = (0, [0; 8]);
        loop {
            match near.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(received, 100_028);
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn no_write_interest_while_the_buffer_has_room() {
        let (mut near, mut far) = pair();
        for _ in 0..100 {
            near.write_all(b"reply").await.unwrap();
            far.read_exact(&mut [0; 5]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut context = Context::from_waker(Waker::noop());
        assert!(near.stream.poll_write_ready(&mut context).is_pending());
    }
}
