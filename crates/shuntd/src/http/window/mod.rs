//! The window: a live page of the switch for browsers.
//!
//! The page is plain HTML, CSS and JavaScript, embedded in the binary. Server-sent events deliver
//! the status of the switch once a second, without work of packet threads.

mod feed;

pub(super) use feed::WindowFeed;

/// A file of the live page: path, content type and content.
type WindowFile = (&'static str, &'static str, &'static str);

/// The files of the live page; they contain no data of the switch.
const FILES: [WindowFile; 4] = [
    ("/", "text/html; charset=utf-8", include_str!("window.html")),
    ("/window.css", "text/css; charset=utf-8", include_str!("window.css")),
    ("/window.js", "text/javascript; charset=utf-8", include_str!("window.js")),
    ("/objects.js", "text/javascript; charset=utf-8", include_str!("objects.js")),
];

/// The sources that the live page may use: files and events of this server.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
     style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// Returns the content type and the content of a file of the live page.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    let found = FILES.iter().find(|(own, ..)| *own == path);
    found.map(|(_, kind, content)| (*kind, *content))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the texts between each `start` and the next quotation mark.
    fn quoted_texts<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
        let rest = text.split(start).skip(1);
        rest.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn the_script_uses_elements_that_exist() {
        let [(.., page), _, (.., script), (.., objects)] = FILES;
        let defined = quoted_texts(page, "id=\"");
        for (script, least) in [(script, 21), (objects, 4)] {
            let used = quoted_texts(script, "byId(\"");
            assert!(used.len() >= least, "{used:?}");
            assert!(used.is_subset(&defined), "{:?}", used.difference(&defined));
        }
        for attribute in ["aria-labelledby=\"", "for=\"", "href=\"#"] {
            let named = quoted_texts(page, attribute);
            assert!(!named.is_empty() && named.is_subset(&defined), "{attribute}");
        }
        for named in
            [quoted_texts(page, "src=\""), quoted_texts(page, "rel=\"stylesheet\" href=\"")]
        {
            assert!(named.iter().all(|name| file(&format!("/{name}")).is_some()), "{named:?}");
        }
    }

    /// No table is empty, and a screen reader names each table and row.
    #[test]
    fn sections_of_objects_are_hidden_and_named() {
        let [(.., page), _, _, (.., objects)] = FILES;
        for name in quoted_texts(objects, "showSection(byId(\"") {
            let start = format!("<section aria-labelledby=\"{name}-title\" hidden>");
            let section = page.split_once(&start).map(|(_, rest)| rest).unwrap_or_default();
            let (section, _) = section.split_once("</section>").unwrap_or_default();
            let body = format!("<tbody id=\"{name}\" data-heads>");
            for part in ["<caption>", "<th scope=\"col\">", "tabindex=\"0\"", &body] {
                assert!(section.contains(part), "{name}: {part}: {section}");
            }
        }
        assert_eq!(quoted_texts(objects, "showSection(byId(\"").len(), 4);
    }

    /// The packets of an LTM entry with a next tag are not dropped.
    #[test]
    fn top_flows_have_the_next_tag() {
        let [_, _, (.., script), _] = FILES;
        assert!(script.contains("\"next(\" + entry.next + \")\""));
    }

    #[test]
    fn the_page_counts_each_loss_of_drops() {
        let [_, _, (.., script), _] = FILES;
        for loss in [
            "not_received",
            "device_lost",
            "packet_in_listener_full",
            "packet_in_no_connection",
            "packet_in_no_bridge",
            "snooping_inbox_full",
            "forward_dropped",
        ] {
            assert!(
                script.contains(&format!("{loss}\"")) || script.contains(&format!(".{loss}")),
                "{loss}"
            );
        }
    }

    #[test]
    fn the_page_loads_nothing_from_other_hosts() {
        for (path, _, content) in FILES {
            let urls = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!urls.contains("//") || path.ends_with(".js"), "{path}");
            assert!(!urls.contains("http:") && !urls.contains("https:"), "{path}");
            assert!(!content.contains(" style=") && !content.contains(" onclick="), "{path}");
            assert!(
                !content.contains("innerHTML"),
                "{path}: the browser would run markup in texts of peers"
            );
        }
    }
}
