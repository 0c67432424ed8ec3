//! The choice of a metrics format by the header `Accept` (RFC 9110, 12.5.1).

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// The format of OpenMetrics 1.0.
    OpenMetrics,
}

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The media types that accept the text format of Prometheus.
const PLAIN: [&str; 3] = ["text/plain", "text/*", "*/*"];

/// The largest weight of a media type, in thousandths.
const WEIGHT_MAX: u16 = 1000;

impl MetricsFormat {
    /// Returns the format that an `Accept` header prefers.
    ///
    /// The result is `Prometheus` unless OpenMetrics has at least the same weight.
    pub(super) fn of_accept(accept: &str) -> Self {
        let (mut open, mut plain) = (0, 0);
        for range in accept.split(',').filter_map(MediaRange::parse) {
            if range.is_open_metrics() {
                open = range.weight.max(open);
            } else if PLAIN.iter().any(|own| range.name.eq_ignore_ascii_case(own)) {
                plain = range.weight.max(plain);
            }
        }
        if open > 0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the value of `Content-Type`.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// One media range of the header, with its weight.
struct MediaRange<'a> {
    /// The media type, such as `text/plain`.
    name: &'a str,
    /// The parameter `version` of the media type.
    version: Option<&'a str>,
    /// Weight of the media range in thousandths.
    weight: u16,
}

impl<'a> MediaRange<'a> {
    /// Parses a media range; `None` if its weight is not valid.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self { name: parts.next()?, version: None, weight: WEIGHT_MAX };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if key.eq_ignore_ascii_case("q") {
                range.weight = weight(value)?;
            } else if key.eq_ignore_ascii_case("version") {
                range.version = Some(value.trim_matches('"'));
            }
        }
        Some(range)
    }

    /// Returns whether the type is a version of `OpenMetrics` that is served.
    fn is_open_metrics(&self) -> bool {
        self.name.eq_ignore_ascii_case(OPEN_METRICS)
            && self.version.is_none_or(|version| ["1.0.0", "0.0.1"].contains(&version))
    }
}

/// Parses a weight from 0 to 1 with up to three decimals, to thousandths.
fn weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 1 || decimals.len() > 3 || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let thousandths: u16 = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= WEIGHT_MAX).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_the_format_that_it_prefers() {
        let prometheus = [
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5",
            "application/openmetrics-text;version=0.0.1;q=0.4",
            "text/plain;version=1.0.0;q=0.3",
            "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ]
        .join(",");
        for accept in [
            &prometheus,
            "application/openmetrics-text",
            "APPLICATION/OpenMetrics-Text; Version=1.0.0",
            "application/openmetrics-text; version=\"1.0.0\", */*",
            "text/plain;q=0.5, application/openmetrics-text;q=0.501",
        ] {
            assert_eq!(MetricsFormat::of_accept(accept), MetricsFormat::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/plain, application/openmetrics-text;q=0.9",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=2.0.0",
        ] {
            assert_eq!(MetricsFormat::of_accept(accept), MetricsFormat::Prometheus, "{accept}");
        }
    }

    #[test]
    fn an_entry_with_a_wrong_weight_is_ignored() {
        for weight in
            ["", "-1", "2", "1.001", "0.5000", "+0.5", "0,5", "1e0", "NaN", ".5", "\u{b2}"]
        {
            let accept = format!("application/openmetrics-text;q={weight}");
            assert_eq!(MetricsFormat::of_accept(&accept), MetricsFormat::Prometheus, "{accept}");
        }
        for accept in [",,,;;;===", "application/openmetrics-text;q", "a/b;q=;q=1", "\u{1f980}"] {
            // No input causes a panic; a media range without a weight has the largest weight.
            let _ = MetricsFormat::of_accept(accept);
        }
        let long = "application/openmetrics-text;q=1;".repeat(10_000);
        assert_eq!(MetricsFormat::of_accept(&long), MetricsFormat::OpenMetrics);
    }
}
