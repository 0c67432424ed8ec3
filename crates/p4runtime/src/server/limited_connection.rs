//! A limit on the number of connections.
//!
//! Each connection holds a permit while it lives. A connection without a permit is closed at once,
//! so that its peer notices and retries later. The peer of a waiting connection could not know why
//! it waits.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::debug;

/// A connection that holds a permit.
#[derive(Debug)]
pub(super) struct LimitedConnection {
    stream: TcpStream,
    /// Released when the connection is dropped.
    _permit: OwnedSemaphorePermit,
}

/// Returns the incoming connections that get a permit; closes the others.
pub(super) fn limit_connections(
    incoming: impl Stream<Item = io::Result<TcpStream>>,
    connections_max: usize,
) -> impl Stream<Item = io::Result<LimitedConnection>> {
    let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    incoming.filter_map(move |stream| {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => return Some(Err(error)),
        };
        let permit = Arc::clone(&permits).try_acquire_owned();
        if permit.is_err() {
            debug!(connections_max, "P4Runtime: connection closed, because too many are open");
        }
        Some(Ok(LimitedConnection { stream, _permit: permit.ok()? }))
    })
}

impl Connected for LimitedConnection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
