//! The classifier [`shunt_nuevomatch::NuevoMatch`] of IPv4 5-tuples for C programs.
//!
//! Read `include/shunt_nuevomatch.h`: it documents the functions and the ownership of memory. The
//! header is written by hand. A test compiles a program with it, runs the program, and compares the
//! layout of every structure.
//!
//! ```c
//! nuevomatch *rules = nuevomatch_build(list, count, seed);
//! nuevomatch_lookup_batch(rules, keys, keys_count, matches);
//! nuevomatch_free(rules);
//! ```

pub mod ffi;
mod five_tuple;
