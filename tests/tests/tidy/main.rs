//! Properties of the repository itself: the order of its crates, its files, its pages, its words.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read is not tidy")]

mod crates;
mod files;
mod names;
mod pages;
mod prose;
mod status_keys;
