//! The pages of the package. The links of the pages resolve at their installed place.

use std::{collections::BTreeMap, fs, path::Path};

use crate::shell::TaskError;

/// Files that have another name in the package.
///
/// Each file has a path in the repository, and a path in the folder of the pages.
const RENAMED: [(&str, &str); 3] = [
    ("docs/README.md", "index.md"),
    ("README.md", "README.md"),
    // The package manager requires the list of changes in this file.
    ("CHANGELOG.md", "changelog.gz"),
];

/// Files of `docs` that are examples.
pub(super) const EXAMPLES: [&str; 6] = [
    "af-xdp.conf",
    "announce.py",
    "dpdk.conf",
    "example.toml",
    "grafana.json",
    "ovsdb-server.conf",
];

/// Returns the pages of the package by file name, from a repository.
pub(super) fn pages(root: &Path) -> Result<BTreeMap<String, String>, TaskError> {
    let installed = installed_pages(root)?;
    let pages = installed.iter().filter(|(_, to)| has_extension(to, "md"));
    pages
        .map(|(from, to)| {
            let text = fs::read_to_string(root.join(from))?;
            let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
            Ok((to.clone(), rewrite(&text, |link| resolve(&installed, folder, link))))
        })
        .collect()
}

/// Returns the files that a link may lead to.
///
/// Each file has a path in the repository, and a path in the folder of the pages.
fn installed_pages(root: &Path) -> Result<BTreeMap<String, String>, TaskError> {
    let mut installed = BTreeMap::new();
    for file in fs::read_dir(root.join("docs"))? {
        let name = file?.file_name().to_string_lossy().into_owned();
        if has_extension(&name, "md") {
            installed.insert(format!("docs/{name}"), name);
        }
    }
    installed
        .extend(EXAMPLES.iter().map(|name| (format!("docs/{name}"), format!("examples/{name}"))));
    installed.extend(RENAMED.map(|(from, to)| (from.to_owned(), to.to_owned())));
    Ok(installed)
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|own| own == extension)
}

/// Returns the target of a link in the package;
/// `None` if the package has no such file.
fn resolve(installed: &BTreeMap<String, String>, folder: &str, link: &str) -> Option<String> {
    if link.starts_with('#') || link.contains("://") {
        return Some(link.to_owned());
    }
    let (path, anchor) = link.find('#').map_or((link, ""), |at| link.split_at(at));
    let path = match path.strip_prefix("../") {
        Some(above) => above.to_owned(),
        None if folder.is_empty() => path.to_owned(),
        None => format!("{folder}/{path}"),
    };
    Some(format!("{}{anchor}", installed.get(&path)?))
}

/// Replaces the targets of links outside of code.
///
/// A link without a target is replaced by its text.
fn rewrite(page: &str, resolve: impl Fn(&str) -> Option<String>) -> String {
    let (mut text, mut in_code) = (String::new(), false);
    for line in page.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence {
            text.push_str(line);
        } else {
            rewrite_line(line, &resolve, &mut text);
        }
    }
    text
}

fn rewrite_line(mut line: &str, resolve: &impl Fn(&str) -> Option<String>, text: &mut String) {
    while let Some(at) = line.find(['`', '[']) {
        let (before, rest) = line.split_at(at);
        let code = rest.strip_prefix('`').and_then(|code| code.find('`'));
        if let Some(length) = code {
            text.push_str(before);
            let (code, after) = rest.split_at(length + 2);
            text.push_str(code);
            line = after;
            continue;
        }
        let Some((name, link, after)) = link(rest) else {
            let (first, after) = rest.split_at(1);
            text.push_str(before);
            text.push_str(first);
            line = after;
            continue;
        };
        match resolve(link) {
            Some(target) => text.push_str(&format!("{before}[{name}]({target})")),
            // The description of an image replaces the image.
            None => text.push_str(&format!("{}{name}", before.strip_suffix('!').unwrap_or(before))),
        }
        line = after;
    }
    text.push_str(line);
}

/// Splits `[NAME](LINK)REST`.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (link, rest) = rest.split_once(')')?;
    (!name.contains(['[', ']'])).then_some((name, link, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    #[test]
    fn links_to_absent_files_become_text() {
        let resolve = |link: &str| (link == "a.md#b").then(|| "c.md#b".to_owned());
        let page = "See [`a`](a.md#b), [x](x.md) and `[y](y.md)` [1].\n![image](i.svg)\n\
                    ```\n[z](z.md)\n```\n[x](x.md)";
        let expected = "See [`a`](c.md#b), x and `[y](y.md)` [1].\nimage\n```\n[z](z.md)\n```\nx";
        assert_eq!(rewrite(page, resolve), expected);
    }

    /// Every relative link of a packaged page leads to a packaged file.
    #[test]
    fn links_of_packaged_pages_resolve() {
        let pages = pages(&root()).unwrap();
        assert!(pages.contains_key("README.md") && pages.contains_key("configuration.md"));
        for (name, text) in &pages {
            rewrite(text, |link| {
                let file = link.split('#').next().unwrap();
                let is_packaged = file.is_empty()
                    || file.contains("://")
                    || pages.contains_key(file)
                    || file == "changelog.gz"
                    || file.strip_prefix("examples/").is_some_and(|own| EXAMPLES.contains(&own));
                assert!(is_packaged, "{name}: {link}");
                None
            });
        }
        assert!(pages["install.md"].contains("(configuration.md)"));
    }
}
