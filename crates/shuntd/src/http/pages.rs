//! The pages of the HTTP server.

use std::{net::IpAddr, sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{self, HeaderValue},
    http::uri::Authority,
};
use shunt_switch::Switch;
use tokio::time::timeout;

use super::{
    accept::MetricsFormat,
    body::TextBody,
    health::{HealthMonitor, STALL_MAX},
    readiness,
    token::BearerToken,
};
use crate::{daemon::reload::Reloader, metrics};

/// The pages of the HTTP server, from the status of a switch.
pub(super) struct HttpPages {
    switch: Arc<Switch>,
    reloader: Arc<Reloader>,
    token: Option<BearerToken>,
    health: HealthMonitor,
}

/// Maximum time to make a page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);

/// Type of all pages but metrics.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The page `/`.
const INDEX: &str = concat!(
    "shuntd ",
    env!("CARGO_PKG_VERSION"),
    "\n\n",
    "/metrics  metrics for Prometheus, also as OpenMetrics\n",
    "/healthz  200 while every thread iterates, else 503 with the reasons\n",
    "/readyz   200 if the configuration is in force and all ports are open, else 503 with the rest\n",
);

/// A page: status, type and text.
type Page = (StatusCode, &'static str, String);

impl HttpPages {
    pub(super) fn new(
        switch: Arc<Switch>,
        reloader: Arc<Reloader>,
        token: Option<BearerToken>,
    ) -> Self {
        let health = HealthMonitor::new(Arc::clone(&switch), STALL_MAX);
        Self { switch, reloader, token, health }
    }

    /// Returns the observer of the threads, which the server runs.
    pub(super) const fn health(&self) -> &HealthMonitor {
        &self.health
    }

    /// Answers a request; its body is ignored.
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Response<TextBody> {
        let refused = refusal(request.headers(), request.method(), self.token.as_ref());
        let (status, kind, text) = match refused {
            Some(page) => page,
            None => timeout(PAGE_TIME_MAX, self.page(request)).await.unwrap_or_else(|_| {
                let text = format!("not done within {} s\n", PAGE_TIME_MAX.as_secs());
                (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
            }),
        };
        let mut response = Response::new(TextBody::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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

    async fn page<B>(&self, request: &Request<B>) -> Page {
        match request.uri().path() {
            "/" => (StatusCode::OK, PLAIN, INDEX.to_owned()),
            "/metrics" => self.metrics(request.headers()).await,
            "/healthz" => verdict(&self.health.problems()),
            "/readyz" => {
                let not_in_force = self.reloader.not_in_force();
                verdict(&readiness::missing(&self.switch.bridges(), &not_in_force))
            }
            path => {
                (StatusCode::NOT_FOUND, PLAIN, format!("no page {path}; the pages are:\n{INDEX}"))
            }
        }
    }

    async fn metrics(&self, headers: &HeaderMap) -> Page {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
        let format = MetricsFormat::of_accept(&accepted.join(","));
        let text = metrics::all(&self.switch).await;
        let text = match format {
            MetricsFormat::Prometheus => text,
            MetricsFormat::OpenMetrics => metrics::open_metrics(&text),
        };
        (StatusCode::OK, format.content_type(), text)
    }
}

/// Returns the page of a request that is refused before its path matters.
fn refusal(headers: &HeaderMap, method: &Method, token: Option<&BearerToken>) -> Option<Page> {
    let page = |status, text: &str| Some((status, PLAIN, format!("{text}\n")));
    match token {
        Some(token) if !token.is_in(headers) => {
            let text = "a bearer token is required: send the header `Authorization: Bearer TOKEN` \
                        with the token of http.token_file";
            return page(StatusCode::UNAUTHORIZED, text);
        }
        None if !names_this_host(headers) => {
            let text = "without a bearer token, the header `Host` must be an IP address or localhost: \
                        set http.token_file, or use such an address";
            return page(StatusCode::MISDIRECTED_REQUEST, text);
        }
        _ => {}
    }
    if [Method::GET, Method::HEAD].contains(method) {
        return None;
    }
    page(StatusCode::METHOD_NOT_ALLOWED, "the pages can only be read: use GET or HEAD")
}

/// Returns whether `Host` is an IP address, `localhost`, or absent.
///
/// A web page of another site can make its own name resolve to a loopback address and then read pages
/// through the browser of a user (DNS rebinding). Its requests have that name.
fn names_this_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    })
}

/// Returns the page of a check that found these problems.
fn verdict(problems: &[String]) -> Page {
    if problems.is_empty() {
        return (StatusCode::OK, PLAIN, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, PLAIN, problems.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
