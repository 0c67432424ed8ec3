//! The direct engine of [`shunt_kairo`] for programs in C that have a flow cache of their own.
//!
//! `include/shunt_kairo.h` is the page to read: what the functions do, and who owns what. It is
//! written by hand; a test compiles a program with it, runs the program, and compares the layout of
//! every structure.
//!
//! A program says what its cache holds ([`ffi::kairo_installed`]), what the cache lost
//! ([`ffi::kairo_removed`]) and what changed ([`ffi::kairo_apply`]), and is told which entries go.
//! Tables and rules stay its own; headers are 81 words in the layout of
//! [`shunt_flow::layout`], which [`ffi::kairo_parse`] writes from the text of a match.

mod engine;
pub mod ffi;
mod rules;
