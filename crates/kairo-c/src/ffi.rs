#![expect(unsafe_code, reason = "the border to C is made of raw pointers")]
//! The border to C: the structures and functions of `include/shunt_kairo.h`, which says what they do.
//!
//! Pointers are the caller's word: what is not null points to what the header says, as many as are
//! counted, for as long as the call takes. They are turned into references and slices in three helper
//! functions, but for places that are only written to, which may hold anything before; all else is the
//! module `engine`. A panic ends the process, as Rust does at such a border.

use std::{
    ffi::{CStr, c_char, c_int},
    slice,
};

use shunt_pipeline::{Delta, EntryId, OwnerId, Traversal, Visit};

use crate::engine::{self, CacheEngine, HeaderWords, RuleEvent, RuleText, WORDS};

/// Words of the headers of a packet: `KAIRO_WORDS`.
pub const KAIRO_WORDS: usize = WORDS;

/// An engine: `kairo`.
pub struct Kairo(CacheEngine);

/// The name of an entry: `kairo_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KairoEntry {
    /// The number of the cache, of those that the engine watches.
    pub owner: u16,
    /// A place in it.
    pub slot: u32,
    /// How often the place was used before.
    pub generation: u32,
}

/// A rule: `kairo_rule`.
#[repr(C)]
pub struct KairoRule {
    /// Its name, not `UINT64_MAX`; of two of one priority, the lesser is the older, which wins.
    pub id: u64,
    /// How often it was modified.
    pub revision: u32,
    /// Its priority.
    pub priority: u16,
    /// Its table.
    pub table: u8,
    /// What it matches.
    pub key: *const HeaderWords,
    /// The bits that it looks at.
    pub mask: *const HeaderWords,
}

/// A lookup: `kairo_visit`.
#[repr(C)]
pub struct KairoVisit {
    /// The table.
    pub table: u8,
    /// The packet as it entered the table.
    pub packet: *const HeaderWords,
    /// The bits of it that the lookup consulted.
    pub consulted: *const HeaderWords,
    /// The rule that decided; null: none did.
    pub rule: *const KairoRule,
}

/// What made an entry: `kairo_traversal`.
#[repr(C)]
pub struct KairoTraversal {
    /// The version of the rules that it saw.
    pub version: u64,
    /// The packet as it came in.
    pub packet: *const HeaderWords,
    /// The bits of it that anything depended on.
    pub consulted: *const HeaderWords,
    /// The lookups, in order.
    pub visits: *const KairoVisit,
    /// How many.
    pub visits_count: usize,
    /// What else was consulted, by names of the caller's.
    pub reads: *const u64,
    /// How much.
    pub reads_count: usize,
}

/// A rule or an object that changed: `kairo_delta`.
#[repr(C)]
pub struct KairoDelta {
    /// What happened: [`KAIRO_ADDED`] and so on.
    pub change: c_int,
    /// The rule, as it is or was; not looked at if an object changed.
    pub rule: *const KairoRule,
    /// The object, if one changed.
    pub object: u64,
}

/// No rule has this id: to the index it says that no rule decided.
const ID_RESERVED: u64 = u64::MAX;

/// The rule is new.
pub const KAIRO_ADDED: c_int = 0;
/// The rule is gone.
pub const KAIRO_REMOVED: c_int = 1;
/// What the rule does has changed; its revision is a new one.
pub const KAIRO_MODIFIED: c_int = 2;
/// An object has changed.
pub const KAIRO_OBJECT: c_int = 3;

impl KairoEntry {
    const fn id(self) -> EntryId {
        let Self { owner, slot, generation } = self;
        EntryId { owner: OwnerId(owner), slot, generation }
    }
}

/// An engine without entries, at a version; to be freed with [`kairo_free`]. The seed goes into every
/// hash: one that nobody can guess keeps peers from choosing collisions.
#[unsafe(no_mangle)]
pub extern "C" fn kairo_new(version: u64, seed: u64) -> *mut Kairo {
    Box::into_raw(Box::new(Kairo(CacheEngine::new(version, seed))))
}

/// Frees an engine. Null is nothing.
///
/// # Safety
///
/// It is of [`kairo_new`], and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_free(engine: *mut Kairo) {
    if !engine.is_null() {
        // SAFETY: it was a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(engine) });
    }
}

/// Reads a match as `ovs-ofctl` spells it. Answers 1, or 0 if it is none or a pointer is null.
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
    // SAFETY: it is not null, and ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    let Some(parsed) = text.to_str().ok().and_then(engine::parse) else { return 0 };
    if key.is_null() || mask.is_null() {
        return 0;
    }
    // Nobody has promised here that they are two places, or that anything was there before.
    for (place, words) in [(key, parsed.0), (mask, parsed.1)] {
        // SAFETY: it is not null, and there is room for the words.
        unsafe { place.write(words) };
    }
    1
}

/// The cache has made an entry. Answers 1 if it is watched from now on; 0 if it was made under an
/// older version than the engine's, and must go; -1 if what made it makes no sense.
///
/// # Safety
///
/// All that is pointed to is as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_installed(
    engine: *mut Kairo,
    entry: KairoEntry,
    traversal: *const KairoTraversal,
) -> c_int {
    // SAFETY: the caller's word.
    let Some(engine) = (unsafe { write(engine) }) else { return -1 };
    // SAFETY: the caller's word.
    let Some(traversal) = (unsafe { read(traversal) }) else { return -1 };
    // SAFETY: the caller's word is of all that it points to.
    let Some(traversal) = (unsafe { traversal_of(&mut engine.0, traversal) }) else { return -1 };
    c_int::from(engine.0.installed(entry.id(), traversal))
}

/// The cache has lost an entry by itself.
///
/// # Safety
///
/// The engine is of [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_removed(engine: *mut Kairo, entry: KairoEntry) {
    // SAFETY: the caller's word.
    if let Some(engine) = unsafe { write(engine) } {
        engine.0.removed(entry.id());
    }
}

/// A cache is gone, with all of its entries.
///
/// # Safety
///
/// The engine is of [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_forget(engine: *mut Kairo, owner: u16) {
    // SAFETY: the caller's word.
    if let Some(engine) = unsafe { write(engine) } {
        engine.0.forget(owner);
    }
}

/// A version changed these things. Answers with the number of entries that must go, which
/// [`kairo_evicted`] names; -1 if a change makes no sense or the version is less than the engine's, and
/// then nothing was done.
///
/// # Safety
///
/// All that is pointed to is as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_apply(
    engine: *mut Kairo,
    deltas: *const KairoDelta,
    count: usize,
    version: u64,
) -> i64 {
    // SAFETY: the caller's word.
    let Some(engine) = (unsafe { write(engine) }) else { return -1 };
    // SAFETY: the caller's word.
    let Some(deltas) = (unsafe { all(deltas, count) }) else { return -1 };
    // SAFETY: the caller's word is of all that they point to.
    let deltas = deltas.iter().map(|delta| unsafe { delta_of(delta) });
    let deltas: Option<Vec<Delta>> = deltas.collect();
    let Some(deltas) = deltas else { return -1 };
    let Some(evicted) = engine.0.apply(&deltas, version) else { return -1 };
    i64::try_from(evicted).unwrap_or(i64::MAX)
}

/// Writes the names of the first `count` of the entries that the last change ended; answers how many
/// it wrote.
///
/// # Safety
///
/// There is room for as many, and the engine is of [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_evicted(
    engine: *const Kairo,
    entries: *mut KairoEntry,
    count: usize,
) -> usize {
    // SAFETY: the caller's word.
    let engine = unsafe { read(engine) };
    let Some(engine) = engine.filter(|_| !entries.is_null()) else { return 0 };
    let mut written = 0;
    for id in engine.0.evicted.iter().take(count) {
        let EntryId { owner: OwnerId(owner), slot, generation } = *id;
        // SAFETY: there is room for `count` of them, whatever was there before.
        let place = unsafe { entries.add(written) };
        // SAFETY: as above.
        unsafe { place.write(KairoEntry { owner, slot, generation }) };
        written += 1;
    }
    written
}

/// Does some of the work that was put off. Answers 1 if there is more.
///
/// # Safety
///
/// The engine is of [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_tidy(engine: *mut Kairo) -> c_int {
    // SAFETY: the caller's word.
    let engine = unsafe { write(engine) };
    engine.map_or(0, |engine| c_int::from(engine.0.run_maintenance()))
}

/// Number of entries that are watched.
///
/// # Safety
///
/// The engine is of [`kairo_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kairo_len(engine: *const Kairo) -> usize {
    // SAFETY: the caller's word.
    let engine = unsafe { read(engine) };
    engine.map_or(0, |engine| engine.0.len())
}

/// # Safety
///
/// All that it points to is as the header says.
unsafe fn traversal_of(engine: &mut CacheEngine, own: &KairoTraversal) -> Option<Traversal> {
    // SAFETY: the caller's word.
    let visits = unsafe { all(own.visits, own.visits_count) }?;
    // SAFETY: the caller's word is of all that they point to.
    let visits = visits.iter().map(|visit| unsafe { visit_of(engine, visit) });
    let visits: Option<Vec<Visit>> = visits.collect();
    // SAFETY: the caller's word.
    let packet = unsafe { read(own.packet) }?;
    // SAFETY: the caller's word.
    let consulted = unsafe { read(own.consulted) }?;
    // SAFETY: the caller's word.
    let reads = unsafe { all(own.reads, own.reads_count) }?;
    Some(engine::traversal(own.version, packet, consulted, visits?, reads))
}

/// # Safety
///
/// All that it points to is as the header says.
unsafe fn visit_of(engine: &mut CacheEngine, own: &KairoVisit) -> Option<Visit> {
    // SAFETY: the caller's word.
    let rule = match unsafe { read(own.rule) } {
        // SAFETY: the caller's word is of all that it points to.
        Some(rule) => Some(unsafe { rule_of(rule) }?),
        None => None,
    };
    // SAFETY: the caller's word.
    let packet = unsafe { read(own.packet) }?;
    // SAFETY: the caller's word.
    let consulted = unsafe { read(own.consulted) }?;
    engine.visit(own.table, packet, consulted, rule.as_ref())
}

/// # Safety
///
/// All that it points to is as the header says.
unsafe fn rule_of(own: &KairoRule) -> Option<RuleText<'_>> {
    let KairoRule { id, revision, priority, table, key, mask } = *own;
    if id == ID_RESERVED {
        return None;
    }
    // SAFETY: the caller's word.
    let key = unsafe { read(key) }?;
    // SAFETY: the caller's word.
    let mask = unsafe { read(mask) }?;
    Some(RuleText { id, revision, priority, table, key, mask })
}

/// # Safety
///
/// All that it points to is as the header says.
unsafe fn delta_of(own: &KairoDelta) -> Option<Delta> {
    let event = match own.change {
        KAIRO_OBJECT => return Some(engine::object_delta(own.object)),
        KAIRO_ADDED => RuleEvent::Added,
        KAIRO_REMOVED => RuleEvent::Removed,
        KAIRO_MODIFIED => RuleEvent::Modified,
        _ => return None,
    };
    // SAFETY: the caller's word.
    let rule = unsafe { read(own.rule) }?;
    // SAFETY: the caller's word is of all that it points to.
    let rule = unsafe { rule_of(rule) }?;
    engine::rule_delta(&rule, event)
}

/// What a pointer of the caller's points to; `None` if it is null.
///
/// # Safety
///
/// If it is not null, it points to a `T` that nobody changes as long as the answer is used, which is
/// until the call of the caller's ends.
const unsafe fn read<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: as said above.
    unsafe { pointer.as_ref() }
}

/// The same, to be changed.
///
/// # Safety
///
/// As of [`read`]; and nobody else looks at it meanwhile.
const unsafe fn write<'a, T>(pointer: *mut T) -> Option<&'a mut T> {
    // SAFETY: as said above.
    unsafe { pointer.as_mut() }
}

/// The elements of an array of the caller's; `None` if there cannot be as many: where it is null there
/// are none, and no array is larger than half of the memory that there could be.
///
/// # Safety
///
/// If it is not null, as of [`read`], for so many of them.
const unsafe fn all<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if first.is_null() {
        return if count == 0 { Some(&[]) } else { None };
    }
    if count > isize::MAX.unsigned_abs() / size_of::<T>() {
        return None;
    }
    // SAFETY: there are as many, and they can be in memory.
    Some(unsafe { slice::from_raw_parts(first, count) })
}
