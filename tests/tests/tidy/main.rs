//! Properties of the repository: the order of crates, files, pages, and words.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

mod crates;
mod files;
mod names;
mod pages;
mod prose;
mod status_keys;
