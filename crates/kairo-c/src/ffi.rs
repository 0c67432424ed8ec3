#![expect(unsafe_code, reason = "the C interface passes raw pointers")]
//! The C interface: the structures and functions of `include/shunt_kairo.h`, which documents them.
//!
//! The caller guarantees its pointers: a pointer that is not null refers to what the header says,
//! to as many elements as counted, during the call. `as_ref`, `as_mut` and one
//! helper for arrays turn them into references and slices. Memory that is only written is accessed
//! through the pointer, because it may be uninitialised. All other code is in the module `engine`. A panic ends the process, as
//! Rust requires at a C interface.

use std::{
    ffi::{CStr, c_char, c_int},
    slice,
};

use shunt_pipeline::{Delta, EntryId, OwnerId, Traversal, Visit};

use crate::engine::{self, CacheEngine, HeaderWords, RuleEvent, RuleText, WORDS};

/// Words of the headers of a packet: `KAIRO_WORDS`.
pub const KAIRO_WORDS: usize = WORDS;

/// An engine with its entries: `kairo` of the header.
pub struct Kairo(CacheEngine);

/// The id of an entry: `kairo_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KairoEntry {
    /// Number of the cache, if the engine watches several.
    pub owner: u16,
    /// Slot in the cache.
    pub slot: u32,
    /// Number of times that the slot was used before.
    pub generation: u32,
}

/// A rule of a table: `kairo_rule` of the header.
#[repr(C)]
pub struct KairoRule {
    /// The id of the rule, not `UINT64_MAX`.
    /// Of two rules of one priority, the smaller id is older and wins.
    pub id: u64,
    /// Number of times that the rule was modified.
    pub revision: u32,
    /// Priority of the rule.
    pub priority: u16,
    /// Table of the rule.
    pub table: u8,
    /// Value of the match.
    pub key: *const HeaderWords,
    /// Mask of the match.
    pub mask: *const HeaderWords,
}

/// A table lookup of a traversal: `kairo_visit` of the header.
#[repr(C)]
pub struct KairoVisit {
    /// The table that the lookup searched.
    pub table: u8,
    /// The packet as it entered the table.
    pub packet: *const HeaderWords,
    /// The bits that the lookup consulted.
    pub consulted: *const HeaderWords,
    /// The rule that decided, or null for a table miss.
    pub rule: *const KairoRule,
}

/// The traversal that made an entry: `kairo_traversal`.
#[repr(C)]
pub struct KairoTraversal {
    /// The version of the rules that the traversal used.
    pub version: u64,
    /// The packet as it arrived.
    pub packet: *const HeaderWords,
    /// The bits that any decision depended on.
    pub consulted: *const HeaderWords,
    /// The lookups, in order.
    pub visits: *const KairoVisit,
    /// Number of table lookups of the traversal.
    pub visits_count: usize,
    /// Other objects that were consulted, by numbers of the caller.
    pub reads: *const u64,
    /// Number of objects that the traversal consulted.
    pub reads_count: usize,
}

/// A rule or an object that changed: `kairo_delta`.
#[repr(C)]
pub struct KairoDelta {
    /// The kind of change: [`KAIRO_ADDED`] and so on.
    pub change: c_int,
    /// The rule as it is, or as it was if removed; ignored if an object changed.
    pub rule: *const KairoRule,
    /// The object, if one changed.
    pub object: u64,
}

/// An id that no rule may have: the index uses it for table misses.
const ID_RESERVED: u64 = u64::MAX;

/// The rule is new.
pub const KAIRO_ADDED: c_int = 0;
/// The rule was removed.
pub const KAIRO_REMOVED: c_int = 1;
/// The actions of the rule changed, and its revision is new.
pub const KAIRO_MODIFIED: c_int = 2;
/// The kind of a delta: an object changed.
pub const KAIRO_OBJECT: c_int = 3;

impl KairoEntry {
    /// Returns the id of the entry in the engine.
    const fn id(self) -> EntryId {
        let Self { owner, slot, generation } = self;
        EntryId { owner: OwnerId(owner), slot, generation }
    }
}

/// Creates an engine without entries, at a version; free it with [`kairo_free`].
///
/// The seed is part of every hash. With a secret seed, senders cannot choose packets that collide.
#[unsafe(no_mangle)]
pub extern "C" fn kairo_new(version: u64, seed: u64) -> *mut Kairo {
    Box::into_raw(Box::new(Kairo(CacheEngine::new(version, seed))))
}

/// Frees an engine; null is ignored.
///
/// # Safety
///
/// The engine is from [`kairo_new`], and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_free(engine: *mut Kairo) {
    if !engine.is_null() {
        // SAFETY: `kairo_new` made the engine from a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(engine) });
    }
}

/// Parses a match in the syntax of `ovs-ofctl`.
///
/// Returns 1, or 0 if the text is not a match or a pointer is null.
///
/// # Safety
///
/// `text` ends with a zero byte, and the others point to [`KAIRO_WORDS`] words each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_parse(
    text: *const c_char,
    key: *mut HeaderWords,
    mask: *mut HeaderWords,
) -> c_int {
    if text.is_null() {
        return 0;
    }
    // SAFETY: the pointer is not null, and ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    let Some(parsed) = text.to_str().ok().and_then(engine::parse) else { return 0 };
    if key.is_null() || mask.is_null() {
        return 0;
    }
    // The header does not promise that the two are different, or that they are initialised.
    for (place, words) in [(key, parsed.0), (mask, parsed.1)] {
        // SAFETY: the pointer is not null, and has room for the words.
        unsafe { place.write(words) };
    }
    1
}

/// Records that the cache has installed an entry.
///
/// Returns 1 if the engine watches the entry from now on, and -1 if its traversal is invalid.
/// Returns 0 if its version is older than that of the engine: then the entry must be dropped.
///
/// # Safety
///
/// All pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_installed(
    engine: *mut Kairo,
    entry: KairoEntry,
    traversal: *const KairoTraversal,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(engine) = (unsafe { engine.as_mut() }) else { return -1 };
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(traversal) = (unsafe { traversal.as_ref() }) else { return -1 };
    // SAFETY: the caller guarantees that the pointers inside are valid.
    let Some(traversal) = (unsafe { traversal_of(&mut engine.0, traversal) }) else { return -1 };
    c_int::from(engine.0.installed(entry.id(), traversal))
}

/// Records that the cache has dropped an entry itself.
///
/// # Safety
///
/// The engine is from [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_removed(engine: *mut Kairo, entry: KairoEntry) {
    // SAFETY: the caller guarantees that the pointer is valid.
    if let Some(engine) = unsafe { engine.as_mut() } {
        engine.0.removed(entry.id());
    }
}

/// Forgets a cache with all its entries.
///
/// # Safety
///
/// The engine is from [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_forget(engine: *mut Kairo, owner: u16) {
    // SAFETY: the caller guarantees that the pointer is valid.
    if let Some(engine) = unsafe { engine.as_mut() } {
        engine.0.forget(owner);
    }
}

/// Applies the changes of a version, and returns the number of evicted entries.
///
/// [`kairo_evicted`] lists the evicted entries. Returns -1, and does nothing, if a change is
/// invalid or the version must not follow the last one.
///
/// # Safety
///
/// All pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_apply(
    engine: *mut Kairo,
    deltas: *const KairoDelta,
    count: usize,
    version: u64,
) -> i64 {
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(engine) = (unsafe { engine.as_mut() }) else { return -1 };
    // SAFETY: the caller guarantees that the pointer is valid.
    let Some(deltas) = (unsafe { all(deltas, count) }) else { return -1 };
    // SAFETY: the caller guarantees that the pointers inside are valid.
    let deltas = deltas.iter().map(|delta| unsafe { delta_of(delta) });
    let deltas: Option<Vec<Delta>> = deltas.collect();
    let Some(deltas) = deltas else { return -1 };
    let Some(evicted) = engine.0.apply(&deltas, version) else { return -1 };
    // The count is at most the number of entries in memory.
    i64::try_from(evicted).unwrap_or(i64::MAX)
}

/// Writes up to `count` of the entries that the last change evicted.
/// Returns the number written.
///
/// # Safety
///
/// There is room for `count` entries, and the engine is from [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_evicted(
    engine: *const Kairo,
    entries: *mut KairoEntry,
    count: usize,
) -> usize {
    // SAFETY: the caller guarantees that the pointer is valid.
    let engine = unsafe { engine.as_ref() };
    let Some(engine) = engine.filter(|_| !entries.is_null()) else { return 0 };
    let mut written = 0;
    for id in engine.0.evicted.iter().take(count) {
        let EntryId { owner: OwnerId(owner), slot, generation } = *id;
        // SAFETY: there is room for `count` entries, initialised or not.
        let place = unsafe { entries.add(written) };
        // SAFETY: `place` is in the room that the caller guarantees.
        unsafe { place.write(KairoEntry { owner, slot, generation }) };
        written += 1;
    }
    written
}

/// Does some deferred work; returns 1 if more is left.
///
/// # Safety
///
/// The engine is from [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_run_maintenance(engine: *mut Kairo) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let engine = unsafe { engine.as_mut() };
    engine.map_or(0, |engine| c_int::from(engine.0.run_maintenance()))
}

/// Returns the number of watched entries.
///
/// # Safety
///
/// The engine is from [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_len(engine: *const Kairo) -> usize {
    // SAFETY: the caller guarantees that the pointer is valid.
    let engine = unsafe { engine.as_ref() };
    engine.map_or(0, |engine| engine.0.len())
}

/// Reads a traversal of the caller; `None` if a part of it is not valid.
///
/// # Safety
///
/// All pointers are as the header says.
unsafe fn traversal_of(engine: &mut CacheEngine, own: &KairoTraversal) -> Option<Traversal> {
    // SAFETY: the caller guarantees that the pointer is valid.
    let visits = unsafe { all(own.visits, own.visits_count) }?;
    // SAFETY: the caller guarantees that the pointers inside are valid.
    let visits = visits.iter().map(|visit| unsafe { visit_of(engine, visit) });
    let visits: Option<Vec<Visit>> = visits.collect();
    // SAFETY: the caller guarantees that the pointer is valid.
    let packet = unsafe { own.packet.as_ref() }?;
    // SAFETY: the caller guarantees that the pointer is valid.
    let consulted = unsafe { own.consulted.as_ref() }?;
    // SAFETY: the caller guarantees that the pointer is valid.
    let reads = unsafe { all(own.reads, own.reads_count) }?;
    Some(engine::traversal(own.version, packet, consulted, visits?, reads))
}

/// Reads a table lookup of the caller; `None` if a part of it is not valid.
///
/// # Safety
///
/// All pointers are as the header says.
unsafe fn visit_of(engine: &mut CacheEngine, own: &KairoVisit) -> Option<Visit> {
    // SAFETY: the caller guarantees that the pointer is valid.
    let rule = match unsafe { own.rule.as_ref() } {
        // SAFETY: the caller guarantees that the pointers inside are valid.
        Some(rule) => Some(unsafe { rule_of(rule) }?),
        None => None,
    };
    // SAFETY: the caller guarantees that the pointer is valid.
    let packet = unsafe { own.packet.as_ref() }?;
    // SAFETY: the caller guarantees that the pointer is valid.
    let consulted = unsafe { own.consulted.as_ref() }?;
    engine.visit(own.table, packet, consulted, rule.as_ref())
}

/// Reads a rule of the caller; `None` if a part of it is not valid.
///
/// # Safety
///
/// All pointers are as the header says.
unsafe fn rule_of(own: &KairoRule) -> Option<RuleText<'_>> {
    let KairoRule { id, revision, priority, table, key, mask } = *own;
    if id == ID_RESERVED {
        return None;
    }
    // SAFETY: the caller guarantees that the pointer is valid.
    let key = unsafe { key.as_ref() }?;
    // SAFETY: the caller guarantees that the pointer is valid.
    let mask = unsafe { mask.as_ref() }?;
    Some(RuleText { id, revision, priority, table, key, mask })
}

/// Reads a change of the caller; `None` if a part of it is not valid.
///
/// # Safety
///
/// All pointers are as the header says.
unsafe fn delta_of(own: &KairoDelta) -> Option<Delta> {
    let event = match own.change {
        KAIRO_OBJECT => return Some(engine::object_delta(own.object)),
        KAIRO_ADDED => RuleEvent::Added,
        KAIRO_REMOVED => RuleEvent::Removed,
        KAIRO_MODIFIED => RuleEvent::Modified,
        _ => return None,
    };
    // SAFETY: the caller guarantees that the pointer is valid.
    let rule = unsafe { own.rule.as_ref() }?;
    // SAFETY: the caller guarantees that the pointers inside are valid.
    let rule = unsafe { rule_of(rule) }?;
    engine::rule_delta(&rule, event)
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
