//! The listeners and connections of the HTTP server.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use shunt_switch::{ControlTask, ListeningSockets, Switch};
use shunt_tls::{TlsError, TlsFiles, TlsIdentity};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use super::{
    HttpOptions,
    pages::HttpPages,
    readiness::ReadinessMonitor,
    stall_timeout::StallTimeoutStream,
    token::{BearerToken, TokenError},
    window::WindowFeed,
};
use crate::{
    connection_places::{ConnectionPlace, ConnectionPlaces},
    daemon::reload::Reloader,
    listener_log::ListenerLog,
    ovsdb::DatabaseProblem,
};

/// The running HTTP server; dropping the value stops it.
pub(crate) struct HttpService {
    /// The tasks of the server; dropping the set aborts them.
    tasks: JoinSet<()>,
}

/// The reason why the server did not start.
#[derive(Debug, Error)]
pub(crate) enum HttpStartError {
    // The texts contain those of their causes, which are therefore no sources of the report.
    /// The options are not valid, which a check of the configuration finds.
    #[error("{0}")]
    Options(String),
    /// The token file cannot be used.
    #[error("http.token_file: {0}")]
    Token(TokenError),
    /// The key or the certificate cannot be used.
    #[error("http: {0}")]
    Tls(TlsError),
}

/// Maximum number of connections.
///
/// A further connection takes the place of the oldest one without a request, or is closed.
const CONNECTIONS_MAX: usize = 64;

/// Maximum number of bytes of a request line and its headers.
const HEADER_BYTES_MAX: usize = 8192;

/// Maximum number of header lines.
const HEADERS_MAX: usize = 64;

/// Maximum number of bytes that are read ahead on a connection.
const BUFFER_BYTES_MAX: usize = 16384;

/// Maximum time until the headers of the first request are complete.
///
/// The time contains the TLS handshake. Until then, the client has sent no token.
const FIRST_REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum time until the headers of a later request, including idle time.
const HEADER_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum time that a write waits for the client to read.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum time of a connection; a client may open the next connection immediately.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);

/// Maximum time to complete the last request of a connection.
const LAST_REQUEST_TIME_MAX: Duration = Duration::from_secs(20);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Pause between two attempts to listen on an address.
const LISTEN_PAUSE: Duration = Duration::from_secs(2);

impl HttpService {
    /// Starts the server if the options name an address.
    ///
    /// An address that cannot be used does not stop the switch. Listening is retried, and `/readyz`
    /// names the address meanwhile.
    ///
    /// # Errors
    ///
    /// If the token file, the key or the certificate cannot be used.
    pub(crate) async fn start(
        options: &HttpOptions,
        switch: &Arc<Switch>,
        reloader: &Arc<Reloader>,
        database: DatabaseProblem,
    ) -> Result<Option<Self>, HttpStartError> {
        let addresses =
            options.addresses().map_err(|error| HttpStartError::Options(error.message))?;
        if addresses.is_empty() {
            return Ok(None);
        }
        let HttpAccess { token, tls } = HttpAccess::read(options)?;
        let window = options.window.then(WindowFeed::new);
        let readiness = ReadinessMonitor::new(Arc::clone(switch), Arc::clone(reloader), database);
        let pages = HttpPages::new(Arc::clone(switch), readiness, token, window);
        let server = HttpServer {
            pages: Arc::new(pages),
            tls,
            connections: ConnectionPlaces::new(CONNECTIONS_MAX, Some(FIRST_REQUEST_TIME_MAX)),
            has_token: options.has_token(),
            listening: Arc::clone(switch.listening_sockets()),
        };
        let pages = Arc::clone(&server.pages);
        let mut tasks = JoinSet::new();
        for address in addresses {
            let server = server.clone();
            match server.listen(address) {
                Ok(listener) => drop(tasks.spawn(server.accept(listener))),
                Err(error) => {
                    warn!(
                        %error,
                        "http.listen: cannot listen on {address}, retrying every {} s",
                        LISTEN_PAUSE.as_secs()
                    );
                    pages.readiness().note_closed_address(address, &error);
                    tasks.spawn(server.listen_later(address));
                }
            }
        }
        tasks.spawn(ControlTask::new("HTTP pages", async move { pages.run().await }));
        Ok(Some(Self { tasks }))
    }

    /// Checks the files that the options name, unless there is no HTTP server.
    ///
    /// # Errors
    ///
    /// If [`Self::start`] would refuse a file.
    pub(crate) fn check(options: &HttpOptions) -> Result<(), HttpStartError> {
        if options.listen.is_empty() {
            return Ok(());
        }
        HttpAccess::read(options).map(drop)
    }

    /// Stops the server with its connections, if there is a server.
    pub(crate) async fn stop(service: Option<Self>) {
        if let Some(mut service) = service {
            service.tasks.shutdown().await;
        }
    }
}

/// The content of the files that the options name.
struct HttpAccess {
    /// The token that clients send, if they need one.
    token: Option<BearerToken>,
    /// Key and certificate, if the server has TLS.
    tls: Option<TlsIdentity>,
}

impl HttpAccess {
    /// Reads the files, and checks that they can be used.
    fn read(options: &HttpOptions) -> Result<Self, HttpStartError> {
        let token = options.has_token().then(|| BearerToken::read(&options.token_file));
        let token = token.transpose().map_err(HttpStartError::Token)?;
        let tls = options.tls().map_err(|(message, _)| HttpStartError::Options(message))?;
        let tls = tls.map(server_identity).transpose().map_err(HttpStartError::Tls)?;
        Ok(Self { token, tls })
    }
}

/// Returns the TLS identity of a server, after a check of its files.
fn server_identity(files: TlsFiles) -> Result<TlsIdentity, TlsError> {
    let identity = TlsIdentity::default();
    identity.set(Some(files));
    identity.check()?;
    Ok(identity)
}

/// The state that the listeners of the server share.
#[derive(Clone)]
struct HttpServer {
    pages: Arc<HttpPages>,
    /// Key and certificate, if the server has TLS.
    tls: Option<TlsIdentity>,
    /// The open connections, with a bounded number of places.
    connections: Arc<ConnectionPlaces>,
    /// True if requests must have a token.
    has_token: bool,
    /// The listening sockets that outlive the process.
    listening: Arc<ListeningSockets>,
}

impl HttpServer {
    /// Listens on an address, and logs the port that the system has chosen.
    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let listener = TcpListener::from_std(self.listening.listen_tcp(address)?)
            .inspect_err(|_| self.listening.pause_tcp(address))?;
        let (token, tls) = (self.has_token, self.tls.is_some());
        let local = listener.local_addr().unwrap_or(address);
        info!(address = %local, token, tls, "http: ready");
        Ok(listener)
    }

    /// Retries to listen on an address, and then serves its connections.
    ///
    /// The address may be assigned to an interface later, and another program may release a port.
    async fn listen_later(self, address: SocketAddr) {
        loop {
            sleep(LISTEN_PAUSE).await;
            match self.listen(address) {
                Ok(listener) => {
                    self.pages.readiness().note_open_address(address);
                    return self.accept(listener).await;
                }
                Err(error) => self.pages.readiness().note_closed_address(address, &error),
            }
        }
    }

    /// Serves the connections of a listener.
    async fn accept(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut log = ListenerLog::new("http");
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => match self.connections.insert() {
                    Some(place) => {
                        let serving = self.clone().serve_in_place(stream, peer, place);
                        connections.spawn(ControlTask::new(format!("http:{peer}"), serving));
                    }
                    None => log.log_refused(CONNECTIONS_MAX),
                },
                Err(error) => {
                    log.log_failed(&error);
                    // The cause may be a lack of descriptors, so an immediate second attempt would
                    // fail, too.
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a connection until it ends, or another connection needs its place.
    async fn serve_in_place(self, stream: TcpStream, peer: SocketAddr, place: ConnectionPlace) {
        let place = Arc::new(place);
        tokio::select! {
            () = self.serve(stream, peer, Arc::clone(&place)) => {}
            () = place.wait_for_removal() => debug!(%peer, "http: connection without a request closed"),
        }
    }

    /// Serves a connection, with TLS if the server has a certificate.
    async fn serve(self, stream: TcpStream, peer: SocketAddr, place: Arc<ConnectionPlace>) {
        let stream = StallTimeoutStream::new(stream, WRITE_TIME_MAX);
        let pages = self.pages;
        let Some(identity) = &self.tls else { return serve(stream, peer, pages, place).await };
        match identity.accept(stream).await {
            Ok(stream) => serve(stream, peer, pages, place).await,
            Err(error) => debug!(%peer, %error, "http: the TLS handshake failed"),
        }
    }
}

/// Serves a connection until it closes, sends an invalid request,
/// or exceeds its time.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    pages: Arc<HttpPages>,
    place: Arc<ConnectionPlace>,
) {
    let service = service_fn(move |request| {
        // A connection that has lost its place is closed while it waits for the page.
        let _ = place.note_request();
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(pages.answer(&request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = match timeout(CONNECTION_TIME_MAX, connection.as_mut()).await {
        Ok(served) => served,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            timeout(LAST_REQUEST_TIME_MAX, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        debug!(%peer, %error, "http: connection closed");
    }
}
