//! Names: a type name is unique in all product crates, and tests that are named elsewhere exist.

use std::collections::{BTreeMap, BTreeSet};

use shunt_tests::repository::files;
use syn::{Attribute, Item, ItemMod};

/// Names that several crates may define,
/// because these names have a conventional meaning.
const SHARED: &[&str] = &["Arguments", "Command", "Config", "Error"];

/// The type names of one file, and the modules that are only for tests.
#[derive(Default)]
struct Definitions {
    types: Vec<String>,
    test_modules: Vec<String>,
}

impl Definitions {
    fn of(text: &str) -> Self {
        let mut definitions = Self::default();
        definitions.add(&syn::parse_file(text).unwrap().items);
        definitions
    }

    fn add(&mut self, items: &[Item]) {
        for item in items {
            let (name, attributes) = match item {
                Item::Struct(item) => (&item.ident, &item.attrs),
                Item::Enum(item) => (&item.ident, &item.attrs),
                Item::Union(item) => (&item.ident, &item.attrs),
                Item::Trait(item) => (&item.ident, &item.attrs),
                Item::Type(item) => (&item.ident, &item.attrs),
                Item::Mod(module) => {
                    self.add_module(module);
                    continue;
                }
                _ => continue,
            };
            if !is_for_tests(attributes) {
                self.types.push(name.to_string());
            }
        }
    }

    fn add_module(&mut self, module: &ItemMod) {
        match &module.content {
            _ if is_for_tests(&module.attrs) => {
                let path = module.attrs.iter().find(|attribute| attribute.path().is_ident("path"));
                let path = path.and_then(literal);
                self.test_modules.push(path.unwrap_or_else(|| module.ident.to_string()));
            }
            Some((_, items)) => self.add(items),
            None => {}
        }
    }
}

/// Returns whether an item is compiled for tests only.
///
/// Such an item has `cfg(test)`, or the feature `testing`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let cfg = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    cfg.filter_map(|attribute| attribute.meta.require_list().ok()).any(|list| {
        let condition = list.tokens.to_string();
        condition == "test" || condition.contains("testing") || condition.contains("loom")
    })
}

/// Returns the string of `#[path = ".."]`.
fn literal(attribute: &Attribute) -> Option<String> {
    let value = &attribute.meta.require_name_value().ok()?.value;
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value else { return None };
    Some(text.value().trim_end_matches(".rs").to_owned())
}

/// Returns the folder with the modules of a file.
fn folder_of_modules(path: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or_default();
    match file {
        "lib.rs" | "mod.rs" | "main.rs" => folder.to_owned(),
        file => format!("{folder}/{}", file.trim_end_matches(".rs")),
    }
}

#[test]
fn type_names_are_unique() {
    let is_product = |path: &String| path.starts_with("crates/") && path.contains("/src/");
    let sources: BTreeMap<String, Definitions> = files(".rs")
        .into_iter()
        .filter(|(path, _)| is_product(path))
        .map(|(path, text)| (path, Definitions::of(&text)))
        .collect();
    let mut test_modules = BTreeSet::new();
    for (path, definitions) in &sources {
        let folder = folder_of_modules(path);
        let beside = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for module in &definitions.test_modules {
            test_modules.extend([format!("{folder}/{module}"), format!("{beside}/{module}")]);
        }
    }
    let is_test = |path: &str| {
        test_modules.iter().any(|module| {
            path.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/']))
        })
    };
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, definitions) in sources.iter().filter(|(path, _)| !is_test(path)) {
        for name in &definitions.types {
            homes.entry(name).or_default().insert(path);
        }
    }
    assert!(homes.len() > 500, "the product has types: {}", homes.len());
    let twice = homes.iter().filter(|(name, files)| files.len() > 1 && !SHARED.contains(name));
    let twice: Vec<String> = twice.map(|(name, files)| format!("{name}: {files:?}")).collect();
    assert!(twice.is_empty(), "{} names are two things:\n{}", twice.len(), twice.join("\n"));
}

/// Cargo runs no test, and reports success, if no test has the given name.
#[test]
fn tests_named_by_xtask_exist() {
    let sources = files(".rs");
    let is_named = |word: &&str| {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_plain && word.matches('_').count() >= 2 && !word.contains("__")
    };
    let xtask = sources.iter().filter(|(path, _)| path.starts_with("xtask/src/"));
    let words = xtask.flat_map(|(_, text)| text.split('"').skip(1).step_by(2)).filter(is_named);
    let names: BTreeSet<&str> = words.collect();
    assert!(names.len() >= 5, "the soak names its tests: {names:?}");
    for name in names {
        let start = format!("fn {name}(");
        assert!(sources.iter().any(|(_, text)| text.contains(&start)), "there is no test {name}");
    }
}
