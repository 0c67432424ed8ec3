#![expect(unsafe_code, reason = "the C interface passes raw pointers")]
//! The structures and functions of `include/shunt_nuevomatch.h`, which documents them.
//!
//! The caller guarantees its pointers: a pointer that is not null refers to what the header says,
//! to as many elements as counted, during the call. `as_ref`, `as_mut` and one
//! helper for arrays turn them into references and slices. Memory that is only written is accessed
//! through the pointer, because it may be uninitialised. All other code is in the module `five_tuple`. A panic ends the process, as
//! Rust requires at a C interface.

use std::{
    ffi::{c_char, c_int},
    slice,
};

use shunt_nuevomatch::{KeySchema, NuevoMatch, NuevoMatchSettings, PRIORITY_MAX};

use crate::five_tuple::{BATCH, RuleProblem, converted, rule, winners};

/// A classifier: `nuevomatch`.
pub struct NuevoMatchHandle(NuevoMatch<5>);

/// A rule: `nuevomatch_rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NuevoMatchRule {
    /// Network of the source.
    pub source: u32,
    /// Network of the destination.
    pub destination: u32,
    /// Length of the prefix of the source.
    pub source_bits: u8,
    /// Length of the prefix of the destination.
    pub destination_bits: u8,
    /// First protocol that the rule matches.
    pub protocol_low: u8,
    /// Last protocol that the rule matches.
    pub protocol_high: u8,
    /// First source port that the rule matches.
    pub source_port_low: u16,
    /// Last source port that the rule matches.
    pub source_port_high: u16,
    /// First destination port that the rule matches.
    pub destination_port_low: u16,
    /// Last destination port that the rule matches.
    pub destination_port_high: u16,
    /// Priority of the rule; the smallest wins.
    pub priority: u32,
    /// A number of the caller.
    pub value: u32,
}

/// The headers of a packet: `nuevomatch_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NuevoMatchKey {
    /// Source address of the packet.
    pub source: u32,
    /// Destination address of the packet.
    pub destination: u32,
    /// Source port of the packet.
    pub source_port: u16,
    /// Destination port of the packet.
    pub destination_port: u16,
    /// IP protocol of the packet.
    pub protocol: u8,
}

/// The winner for a packet: `nuevomatch_match`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NuevoMatchResult {
    /// Priority of the winner, or [`NUEVOMATCH_NONE`].
    pub priority: u32,
    /// Value of the winner.
    pub value: u32,
}

/// Sizes of a classifier: `nuevomatch_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NuevoMatchSizes {
    /// Number of rules in the classifier.
    pub rules: usize,
    /// Number of iSets in the classifier.
    pub sets: usize,
    /// Number of rules that no iSet holds.
    pub remainder_rules: usize,
    /// Number of hash tables of the remainder.
    pub remainder_tables: usize,
    /// Bytes of everything that lookups read.
    pub bytes: usize,
}

/// A refused rule: `nuevomatch_error`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NuevoMatchError {
    /// Position of the rule, from 0.
    pub rule: usize,
    /// Name of the refused member, a constant text.
    pub field: *const c_char,
    /// The rule or limit, a constant text.
    pub reason: *const c_char,
}

/// Largest priority of a rule.
pub const NUEVOMATCH_PRIORITY_MAX: u32 = PRIORITY_MAX;
/// Priority of the result if no rule matches.
pub const NUEVOMATCH_NONE: u32 = PRIORITY_MAX + 1;

/// Checks rules, and writes the first refused member of a rule.
///
/// Returns 1 if [`nuevomatch_build`] accepts the rules, or 0 if one is invalid. The error is not
/// written then if its pointer is null.
///
/// # Safety
///
/// `rules` points to `count` rules, and `error` to room for one error, if it is not null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_check(
    rules: *const NuevoMatchRule,
    count: usize,
    error: *mut NuevoMatchError,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let refused = match unsafe { all(rules, count) } {
        Some(rules) => rules
            .iter()
            .map(rule)
            .enumerate()
            .find_map(|(position, own)| own.err().map(|problem| (position, problem))),
        None => Some((0, RuleProblem::NO_RULES)),
    };
    let Some((position, problem)) = refused else { return 1 };
    if !error.is_null() {
        let RuleProblem { field, reason } = problem;
        let own =
            NuevoMatchError { rule: position, field: field.as_ptr(), reason: reason.as_ptr() };
        // SAFETY: the pointer is not null, and has room for an error.
        unsafe { error.write(own) };
    }
    0
}

/// Builds a classifier; free it with [`nuevomatch_free`].
///
/// Returns null if a rule is invalid, or if the system refuses the least memory of the build.
/// [`nuevomatch_check`] finds the invalid rule.
///
/// # Safety
///
/// `rules` points to `count` rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_build(
    rules: *const NuevoMatchRule,
    count: usize,
    seed: u64,
) -> *mut NuevoMatchHandle {
    // SAFETY: the caller guarantees that the pointer is valid.
    let rules = unsafe { all(rules, count) }.and_then(converted);
    let settings = NuevoMatchSettings { seed, ..Default::default() };
    let schema = KeySchema::five_tuple();
    let built = rules.and_then(|rules| NuevoMatch::build(&schema, &rules, &settings).ok());
    built.map_or(std::ptr::null_mut(), |built| Box::into_raw(Box::new(NuevoMatchHandle(built))))
}

/// Frees a classifier; null is ignored.
///
/// # Safety
///
/// The classifier is from [`nuevomatch_build`], and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_free(classifier: *mut NuevoMatchHandle) {
    if !classifier.is_null() {
        // SAFETY: `nuevomatch_build` made the classifier from a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(classifier) });
    }
}

/// Writes the winner for a packet.
///
/// Returns 1, or 0 if no rule matches or a pointer is null.
///
/// # Safety
///
/// All pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_lookup(
    classifier: *const NuevoMatchHandle,
    key: *const NuevoMatchKey,
    best: *mut NuevoMatchResult,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let found = unsafe { nuevomatch_lookup_batch(classifier, key, 1, best) };
    c_int::from(found > 0)
}

/// Writes the winners for packets.
///
/// Returns the number of packets that a rule matches, 0 if a pointer is null.
///
/// # Safety
///
/// All pointers are as the header says, and there is room for `count` winners.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_lookup_batch(
    classifier: *const NuevoMatchHandle,
    keys: *const NuevoMatchKey,
    count: usize,
    best: *mut NuevoMatchResult,
) -> usize {
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(classifier) = (unsafe { classifier.as_ref() }) else { return 0 };
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(keys) = (unsafe { all(keys, count) }) else { return 0 };
    if best.is_null() {
        return 0;
    }
    let (mut matched, mut written) = (0, 0);
    for winner in keys.chunks(BATCH).flat_map(|keys| winners(&classifier.0, keys)) {
        // SAFETY: there is room for `count` winners, initialised or not.
        let place = unsafe { best.add(written) };
        // SAFETY: `place` is in the room that the caller guarantees.
        unsafe { place.write(winner) };
        written += 1;
        matched += usize::from(winner.priority != NUEVOMATCH_NONE);
    }
    matched
}

/// Adds a rule.
///
/// Returns 1, 0 if there is no room for it, or -1 if it is invalid or a pointer is null.
///
/// # Safety
///
/// All pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_insert(
    classifier: *mut NuevoMatchHandle,
    own: *const NuevoMatchRule,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(classifier) = (unsafe { classifier.as_mut() }) else { return -1 };
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(Ok(rule)) = (unsafe { own.as_ref() }).map(rule) else { return -1 };
    c_int::from(classifier.0.insert(&rule))
}

/// Removes a rule.
///
/// Returns 1, 0 if there is none, or -1 if it is invalid or a pointer is null.
///
/// # Safety
///
/// All pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_remove(
    classifier: *mut NuevoMatchHandle,
    own: *const NuevoMatchRule,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(classifier) = (unsafe { classifier.as_mut() }) else { return -1 };
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(Ok(rule)) = (unsafe { own.as_ref() }).map(rule) else { return -1 };
    c_int::from(classifier.0.remove(&rule))
}

/// Writes the sizes of a classifier.
///
/// Returns 1, or 0 if a pointer is null.
///
/// # Safety
///
/// All pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuevomatch_get_statistics(
    classifier: *const NuevoMatchHandle,
    sizes: *mut NuevoMatchSizes,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(classifier) = (unsafe { classifier.as_ref() }) else { return 0 };
    if sizes.is_null() {
        return 0;
    }
    let own = classifier.0.statistics();
    let own = NuevoMatchSizes {
        rules: own.rules,
        sets: own.sets.len(),
        remainder_rules: own.remainder_rules,
        remainder_tables: own.remainder_tables,
        bytes: own.bytes,
    };
    // SAFETY: the pointer is not null, and has room for the sizes.
    unsafe { sizes.write(own) };
    1
}

/// Returns the elements of an array of the caller.
///
/// Returns `None` if the array is null but the count is not zero, or if it would be larger than
/// half of the address space.
///
/// # Safety
///
/// If it is not null, it refers to `count` elements that do not change while the result is used:
/// until the call of the caller ends.
const unsafe fn all<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if first.is_null() {
        return if count == 0 { Some(&[]) } else { None };
    }
    if count > isize::MAX.unsigned_abs() / size_of::<T>() {
        return None;
    }
    // SAFETY: there are `count` elements, and they fit in memory.
    Some(unsafe { slice::from_raw_parts(first, count) })
}
