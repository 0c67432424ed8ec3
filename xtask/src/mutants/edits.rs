//! Edits of a text, and the position of each mutant in the new text.

use std::ops::Range;

/// A replacement of text; both texts may be empty.
#[derive(Default)]
pub(super) struct Edit {
    /// The bytes that are replaced.
    pub(super) bytes: Range<usize>,
    pub(super) text: String,
    /// Mutants with a region that begins or ends with this edit.
    pub(super) begins: Vec<usize>,
    pub(super) ends: Vec<usize>,
    /// Alternative code of mutants, as ranges of the new text.
    pub(super) variants: Vec<(Range<usize>, usize)>,
}

impl Edit {
    pub(super) fn at(byte: usize, text: impl Into<String>) -> Self {
        Self { bytes: byte..byte, text: text.into(), ..Self::default() }
    }

    pub(super) fn instead(bytes: Range<usize>, text: impl Into<String>) -> Self {
        Self { bytes, text: text.into(), ..Self::default() }
    }

    /// Appends a mutant's alternative code between two other texts.
    pub(super) fn push_variant(&mut self, before: &str, variant: &str, after: &str, id: usize) {
        self.text.push_str(before);
        let start = self.text.len();
        self.text.push_str(variant);
        self.variants.push((start..self.text.len(), id));
        self.text.push_str(after);
    }
}

/// A source text that contains mutants.
#[derive(Default)]
pub(super) struct Edited {
    pub(super) text: String,
    /// Ranges of the new text, and the mutant of each range.
    regions: Vec<(Range<usize>, usize)>,
}

impl Edited {
    /// Applies the edits, which must be in text order.
    pub(super) fn new(source: &str, mut edits: Vec<Edit>) -> Self {
        edits.sort_by_key(|edit| edit.bytes.start);
        let mut edited = Self::default();
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut copied = 0;
        for edit in edits {
            edited.text.push_str(source.get(copied..edit.bytes.start).unwrap_or_default());
            let start = edited.text.len();
            edited.text.push_str(&edit.text);
            let end = edited.text.len();
            let own = edit.variants.into_iter();
            edited.regions.extend(own.map(|(at, id)| (start + at.start..start + at.end, id)));
            open.extend(edit.begins.into_iter().map(|id| (id, start)));
            for id in edit.ends {
                let begun = open.iter().rposition(|(other, _)| *other == id);
                let begun = begun.map(|place| open.remove(place).1);
                edited.regions.extend(begun.map(|begun| (begun..end, id)));
            }
            copied = edit.bytes.end;
        }
        edited.text.push_str(source.get(copied..).unwrap_or_default());
        edited
    }

    /// Returns the mutants of the smallest region that contains `bytes`.
    pub(super) fn mutants_at(&self, bytes: &Range<usize>) -> Vec<usize> {
        let holds = |at: &Range<usize>| at.start <= bytes.start && bytes.end <= at.end;
        let around = || self.regions.iter().filter(|(at, _)| holds(at));
        let least = around().map(|(at, _)| at.len()).min();
        around().filter(|(at, _)| Some(at.len()) == least).map(|(_, id)| *id).collect()
    }
}
