//! The direct engine of [`shunt_kairo`] for C programs with their own flow cache.
//!
//! Read `include/shunt_kairo.h`: it documents the functions and the ownership of memory. The header
//! is written by hand. A test compiles a program with it, runs the program, and compares the layout
//! of every structure.
//!
//! A program reports the entries that its cache installs ([`ffi::kairo_installed`]) and drops
//! ([`ffi::kairo_removed`]), and the changes of rules ([`ffi::kairo_apply`]). The engine returns
//! the entries to evict. Tables and rules stay with the program. Headers are 81 words in the layout
//! of [`shunt_flow::layout`], which [`ffi::kairo_parse`] writes from the text of a match:
//!
//! ```c
//! kairo *engine = kairo_new(version, seed);
//! kairo_installed(engine, entry, &traversal);
//! int64_t count = kairo_apply(engine, deltas, deltas_count, version + 1);
//! kairo_evicted(engine, evicted, count);
//! kairo_free(engine);
//! ```

mod engine;
pub mod ffi;
mod rules;
