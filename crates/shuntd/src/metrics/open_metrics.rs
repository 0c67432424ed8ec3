//! OpenMetrics 1.0: the values of the Prometheus text format, with different headings.
//!
//! In OpenMetrics, the name of a counter family lacks the suffix `_total` of its values, and the
//! text ends with a mark.

/// The suffix in the names of counter values.
const TOTAL: &str = "_total";

/// Converts metrics from the Prometheus text format to OpenMetrics.
pub(crate) fn open_metrics(text: &str) -> String {
    let mut converted = String::with_capacity(text.len() + END.len());
    // The heading of a family is its help line and then its type line, which shows whether the name
    // changes.
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

/// The last line of an OpenMetrics text.
const END: &str = "# EOF\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headings_omit_the_suffix_of_counters() {
        let text = "# HELP a_total Packets.\n# TYPE a_total counter\na_total{b=\"c_total\"} 1\n\
                    # HELP d Entries.\n# TYPE d gauge\nd 2\n";
        let expected = "# HELP a Packets.\n# TYPE a counter\na_total{b=\"c_total\"} 1\n\
                        # HELP d Entries.\n# TYPE d gauge\nd 2\n# EOF\n";
        assert_eq!(open_metrics(text), expected);
        assert_eq!(open_metrics(""), "# EOF\n");
    }
}
