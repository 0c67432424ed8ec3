//! OpenMetrics 1.0: the same values as in the text format of Prometheus, with other headings.
//!
//! The name of a counter family lacks the suffix `_total` of its values, and the text has an end mark.

/// The suffix of the values of a counter.
const TOTAL: &str = "_total";

/// Returns metrics in the text format of Prometheus as OpenMetrics.
pub(crate) fn open_metrics(text: &str) -> String {
    let mut converted = String::with_capacity(text.len() + END.len());
    // The heading of a family is its help and then its type, which says if the name changes.
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(heading) = line.strip_prefix("# HELP ") else {
            converted.push_str(line);
            converted.push('\n');
            continue;
        };
        let (name, help) = heading.split_once(' ').unwrap_or((heading, ""));
        let kind = lines.next_if(|next| next.starts_with("# TYPE ")).unwrap_or_default();
        let kind = kind.rsplit(' ').next().unwrap_or_default();
        let family = name.strip_suffix(TOTAL).filter(|_| kind == "counter").unwrap_or(name);
        converted += &format!("# HELP {family} {help}\n# TYPE {family} {kind}\n");
    }
    converted + END
}

/// The last line.
const END: &str = "# EOF\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_lose_their_suffix_in_headings_alone() {
        let text = "# HELP a_total Packets.\n# TYPE a_total counter\na_total{b=\"c_total\"} 1\n\
                    # HELP d Entries.\n# TYPE d gauge\nd 2\n";
        let expected = "# HELP a Packets.\n# TYPE a counter\na_total{b=\"c_total\"} 1\n\
                        # HELP d Entries.\n# TYPE d gauge\nd 2\n# EOF\n";
        assert_eq!(open_metrics(text), expected);
        assert_eq!(open_metrics(""), "# EOF\n");
    }
}
