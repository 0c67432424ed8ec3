//! Tables of forecasts.

use std::fmt::Write;

use serde_json::Value;

use super::{count, list, table, word};

/// Returns the outcomes of forecasts by origin, and the reasons of refusals,
/// as text.
pub(crate) fn forecast(status: &Value) -> String {
    let sources = list(&status["sources"]);
    if sources.is_empty() {
        return "no forecasts: set `predictors` in [foresight], or preload flows\n".to_owned();
    }
    let titles = [
        "source",
        "state",
        "pauses",
        "received",
        "installed",
        "hits",
        "late",
        "covered",
        "wrong",
        "evicted",
        "withheld",
        "arrived",
        "precision",
        "coverage",
        "lead",
        "spent",
        "saved",
        "predictor time",
        "unused entries",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for own in sources {
        let counts = [
            "pauses",
            "received",
            "installed",
            "hits",
            "late",
            "covered",
            "wrong",
            "evicted",
            "withheld",
            "arrived",
        ];
        let mut row = vec![word(&own["source"]).to_owned(), word(&own["state"]).to_owned()];
        row.extend(counts.map(|key| count(&own[key]).to_string()));
        row.extend(["precision", "coverage"].map(|key| percent(&own[key])));
        let times = ["lead_us", "spent_us", "saved_us", "predictor_us"];
        row.extend(times.map(|key| own[key].as_u64().map_or_else(|| "-".to_owned(), time)));
        row.push(count(&own["unused_entries"]).to_string());
        rows.push(row);
    }
    let mut text = table(&rows);
    for own in sources {
        for refused in list(&own["refused"]) {
            let (source, reason) = (word(&own["source"]), word(&refused[0]));
            let _ = writeln!(text, "refused: {source}, {reason}: {}", count(&refused[1]));
        }
    }
    for own in sources.iter().filter(|own| count(&own["nic_covered"]) > 0) {
        let (source, covered) = (word(&own["source"]), count(&own["nic_covered"]));
        let _ = writeln!(text, "covered by the NIC after the installation: {source}: {covered}");
    }
    for own in sources.iter().filter(|own| !own["arrived_share"].is_null()) {
        text.push_str(&comparison(own));
    }
    let [observed, missed] = ["observed", "not_observed"].map(|key| count(&status[key]));
    let _ = writeln!(
        text,
        "{observed} new flows observed, {missed} not observed, {} predicted flows without a hit",
        count(&status["speculative"])
    );
    let _ = writeln!(text, "time of predictors: {}", time(count(&status["predictors_us"])));
    text
}

/// Returns a line that compares installed and withheld forecasts of a source.
fn comparison(own: &Value) -> String {
    let [arrived, unneeded, saved] =
        ["arrived", "unneeded", "saved_misses"].map(|key| count(&own[key]));
    format!(
        "comparison: {}: {arrived} of {} withheld flows missed ({}), {} of the installed were hit; saved misses: {saved}\n",
        word(&own["source"]),
        arrived + unneeded,
        percent(&own["arrived_share"]),
        percent(&own["precision"]),
    )
}

/// Returns a share in percent.
fn percent(share: &Value) -> String {
    share.as_f64().map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Returns a time as text, in a fitting unit.
fn time(us: u64) -> String {
    match us {
        0..10_000 => format!("{us} us"),
        10_000..10_000_000 => format!("{} ms", us / 1000),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_source_has_one_row() {
        let status = json!({ "observed": 4, "not_observed": 0, "speculative": 1,
            "predictors_us": 1500, "sources": [
            { "source": "reply", "state": "on", "pauses": 31, "received": 4, "installed": 3,
              "hits": 2, "late": 0, "covered": 0, "wrong": 0, "evicted": 0, "precision": 1.0,
              "coverage": 0.5, "lead_us": 40, "spent_us": 30, "saved_us": 20_000, "predictor_us": 61,
              "withheld": 9, "arrived": 3, "unneeded": 5, "arrived_share": 0.375,
              "saved_misses": 1, "unused_entries": 7, "nic_covered": 5, "refused": [["learns", 1]] } ] });
        let text = forecast(&status);
        let expected = ["on", "31", "100.0 %", "50.0 %", "40 us", "30 us", "20 ms", "61 us", "7"];
        assert!(expected.iter().all(|word| text.contains(word)), "{text}");
        assert!(text.contains("refused: reply, learns: 1\n"), "{text}");
        let comparison = "comparison: reply: 3 of 8 withheld flows missed (37.5 %), 100.0 % of the \
                          installed were hit; saved misses: 1\n";
        assert!(text.contains(comparison), "{text}");
        assert!(text.ends_with("time of predictors: 1500 us\n"), "{text}");
        assert!(text.contains("covered by the NIC after the installation: reply: 5\n"), "{text}");
    }
}
