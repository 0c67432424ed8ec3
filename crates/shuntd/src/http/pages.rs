//! The pages of the HTTP server.

use std::{net::IpAddr, sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{self, HeaderValue},
    http::uri::Authority,
};
use shunt_switch::Switch;
use tokio::{sync::Mutex, time::timeout};

use super::{
    accept::MetricsFormat,
    body::PageBody,
    health::{HealthMonitor, STALL_MAX},
    query::parameter,
    readiness::ReadinessMonitor,
    token::BearerToken,
    window::{self, WindowFeed},
};
use crate::metrics;

/// The pages of the HTTP server, made from the status of a switch.
pub(super) struct HttpPages {
    switch: Arc<Switch>,
    /// The token that requests must have; `None` for no token.
    token: Option<BearerToken>,
    health: HealthMonitor,
    readiness: ReadinessMonitor,
    /// The events for the live page, if the page is enabled.
    window: Option<WindowFeed>,
    /// Locked while packet threads read their entries for the live page.
    flows: Mutex<()>,
}

/// Maximum time to answer a request.
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);

/// Content type of all pages but the metrics.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The text page at `/`, without the live page.
const INDEX: &str = concat!(
    "shuntd ",
    env!("CARGO_PKG_VERSION"),
    "\n\n",
    "/metrics  metrics for Prometheus, also as OpenMetrics\n",
    "/healthz  200 while every thread iterates, else 503 with the reasons\n",
    "/readyz   200 if the configuration is in force and all ports are open, else 503 with the \
     reasons\n",
);

/// A page: status code, content type and body.
type Page = (StatusCode, &'static str, PageBody);

impl HttpPages {
    pub(super) fn new(
        switch: Arc<Switch>,
        readiness: ReadinessMonitor,
        token: Option<BearerToken>,
        window: Option<WindowFeed>,
    ) -> Self {
        let health = HealthMonitor::new(Arc::clone(&switch), STALL_MAX);
        Self { switch, token, health, readiness, window, flows: Mutex::default() }
    }

    pub(super) const fn readiness(&self) -> &ReadinessMonitor {
        &self.readiness
    }

    /// Observes the threads and sends the events of the live page.
    ///
    /// The function ends when its future is dropped.
    pub(super) async fn run(&self) {
        let window = async {
            if let Some(window) = &self.window {
                window.run(&self.switch, &self.readiness, &self.health).await;
            }
        };
        tokio::join!(self.health.run(), window);
    }

    /// Answers a request; the body of the request is ignored.
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Response<PageBody> {
        // The files of the live page contain no data, and a browser sends no token with requests
        // for them.
        let file = self.window.as_ref().and_then(|_| window::file(request.uri().path()));
        let token = self.token.as_ref();
        let (status, kind, body) = match (refusal(request, token, file.is_some()), file) {
            (Some(refused), _) => refused,
            (None, Some((kind, content))) => (StatusCode::OK, kind, content.into()),
            (None, None) => timeout(PAGE_TIME_MAX, self.page(request)).await.unwrap_or_else(|_| {
                let text =
                    format!("the page was not complete within {} s\n", PAGE_TIME_MAX.as_secs());
                text_page(StatusCode::SERVICE_UNAVAILABLE, text)
            }),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let policy = HeaderValue::from_static(window::CONTENT_SECURITY_POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        if token.is_some_and(|token| !token.is_in(request.headers())) {
            // Without a token, a client keeps no place among the connections.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        response
    }

    /// Returns the page for a request.
    async fn page<B>(&self, request: &Request<B>) -> Page {
        match request.uri().path() {
            "/" => text_page(StatusCode::OK, INDEX),
            "/events" => self.events(),
            "/flows" => self.flows().await,
            "/trace" => self.trace(request.uri().query().unwrap_or_default()),
            "/metrics" => self.metrics(request.headers()).await,
            "/healthz" => verdict(&self.health.problems()),
            "/readyz" => verdict(&self.readiness.missing()),
            path => {
                text_page(StatusCode::NOT_FOUND, format!("no page {path}; the pages are:\n{INDEX}"))
            }
        }
    }

    /// Returns the page with the metrics.
    async fn metrics(&self, headers: &HeaderMap) -> Page {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
        let format = MetricsFormat::of_accept(&accepted.join(","));
        let text = metrics::all(&self.switch).await;
        let text = match format {
            MetricsFormat::Prometheus => text,
            MetricsFormat::OpenMetrics => metrics::open_metrics(&text),
        };
        (StatusCode::OK, format.content_type(), text.into())
    }

    /// Returns the stream of events for the live page.
    fn events(&self) -> Page {
        let Some(window) = &self.window else { return window_is_off() };
        match window.subscribe() {
            Some(events) => (StatusCode::OK, "text/event-stream", PageBody::Events(events)),
            None => {
                text_page(StatusCode::SERVICE_UNAVAILABLE, "too many windows are open: close one\n")
            }
        }
    }

    /// Returns the cache entries with most packets as JSON.
    ///
    /// Packet threads read out their entries for this page, so a browser requests it only on demand
    /// of its user.
    async fn flows(&self) -> Page {
        if self.window.is_none() {
            return window_is_off();
        }
        let _alone = self.flows.lock().await;
        let entries = self.switch.entries(FLOWS_MAX).await;
        match serde_json::to_string(&entries) {
            Ok(text) => (StatusCode::OK, "application/json", text.into()),
            Err(error) => text_page(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    /// Returns the trace of a packet as text.
    fn trace(&self, query: &str) -> Page {
        if self.window.is_none() {
            return window_is_off();
        }
        let (Some(bridge), Some(flow)) = (parameter(query, "bridge"), parameter(query, "flow"))
        else {
            let text = "a trace needs the parameters `bridge` and `flow`\n";
            return text_page(StatusCode::BAD_REQUEST, text);
        };
        match self.switch.trace(&bridge, &flow) {
            Ok(trace) => text_page(StatusCode::OK, trace.to_text()),
            Err(error) => text_page(StatusCode::BAD_REQUEST, format!("{error}\n")),
        }
    }
}

/// Number of cache entries that the live page shows.
const FLOWS_MAX: usize = 20;

/// Returns a page of plain text.
fn text_page(status: StatusCode, text: impl Into<PageBody>) -> Page {
    (status, PLAIN, text.into())
}

/// Returns the page for a request to the live page while it is off.
fn window_is_off() -> Page {
    text_page(
        StatusCode::NOT_FOUND,
        "the window, a live page, is off: set `window = true` in [http]\n",
    )
}

/// Returns the page for a refused request; `None` if the request is allowed.
///
/// Files of the live page need no token.
fn refusal<B>(request: &Request<B>, token: Option<&BearerToken>, is_file: bool) -> Option<Page> {
    let page = |status, text: &str| Some(text_page(status, format!("{text}\n")));
    let headers = request.headers();
    match token {
        Some(token) if !is_file && !token.is_in(headers) => {
            let text = "the request has no valid bearer token: send the header \
                        `Authorization: Bearer TOKEN` with the token of http.token_file";
            return page(StatusCode::UNAUTHORIZED, text);
        }
        None if !names_this_host(headers) => {
            let text = "without a bearer token, the header `Host` must be an IP address or localhost: \
                        set http.token_file, or use such an address";
            return page(StatusCode::MISDIRECTED_REQUEST, text);
        }
        _ => {}
    }
    let is = |name, expected| headers.get(name).is_some_and(|value| value == expected);
    if is(SEC_FETCH_SITE, "cross-site") && !is(SEC_FETCH_MODE, "navigate") {
        let text = "a web page of another site may not request these pages";
        return page(StatusCode::FORBIDDEN, text);
    }
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return None;
    }
    page(StatusCode::METHOD_NOT_ALLOWED, "the pages can only be read: use GET or HEAD")
}

/// The header by which a browser names the relation of the requesting site.
///
/// W3C, *Fetch Metadata Request Headers*. Another site cannot read an answer, but its requests
/// would cause work of packet threads.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The header by which a browser reports that the user follows a link.
const SEC_FETCH_MODE: &str = "sec-fetch-mode";

/// Returns whether `Host` is an IP address, `localhost`, or absent.
///
/// A web page of another site can make its own host name resolve to a loopback address, and then
/// read pages through the browser of a user (DNS rebinding). Such requests have that host name in
/// `Host`.
fn names_this_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    })
}

/// Returns the page of a health or readiness check with the given problems.
fn verdict(problems: &[String]) -> Page {
    if problems.is_empty() {
        return text_page(StatusCode::OK, "ok\n");
    }
    text_page(StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_another_site_is_refused() {
        let status = |site: &str, mode: &str| {
            let request = Request::builder().header(SEC_FETCH_SITE, site);
            let request = request.header(SEC_FETCH_MODE, mode).body(()).unwrap();
            refusal(&request, None, false).map(|(status, ..)| status)
        };
        assert_eq!(status("cross-site", "no-cors"), Some(StatusCode::FORBIDDEN));
        assert_eq!(status("cross-site", "navigate"), None, "a user follows a link");
        assert_eq!(status("same-origin", "cors"), None);
        assert_eq!(status("none", "navigate"), None, "a user typed the address");
    }

    #[test]
    fn a_foreign_host_name_is_refused() {
        let is_own = |host: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_bytes(host).unwrap());
            names_this_host(&headers)
        };
        let own: [&[u8]; 5] =
            [b"127.0.0.1:9475", b"127.0.0.1", b"[::1]:9475", b"LocalHost:1", b"192.0.2.1"];
        for host in own {
            assert!(is_own(host), "{host:?}");
        }
        let foreign: [&[u8]; 6] = [
            b"evil.example",
            b"evil.example:9475",
            b"localhost.evil.example",
            b"",
            b"\xff",
            b"127.0.0.1.nip.io",
        ];
        for host in foreign {
            assert!(!is_own(host), "{host:?}");
        }
        assert!(names_this_host(&HeaderMap::new()), "HTTP 1.0");
    }
}
