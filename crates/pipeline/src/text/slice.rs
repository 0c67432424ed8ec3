//! Slices of a rule's text, each with its position in the whole text.
//!
//! Items are separated by commas or white space. A name ends at `:`, `=` or `(`. After `:` and `=`
//! the argument runs to the next separator outside parentheses, and after `(` to its `)`. Text in
//! double quotes, such as the name of a port, has no separators or parentheses. An arrow after a
//! `)`, as in `check_pkt_larger(1500)->reg0[0]`, makes the text after it part of the argument:
//! `1500)->reg0[0]`.

use std::ops::Range;

use super::{RuleTextError, RuleTextProblem};

/// A slice of the text, with its position in the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextSlice<'a> {
    /// The characters of the slice.
    text: &'a str,
    /// Offset of the slice in the whole text.
    start: usize,
}

/// An item of the text: a name and its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// The text before the delimiter.
    pub(super) name: TextSlice<'a>,
    /// The text after the delimiter; `None` without a delimiter.
    pub(super) argument: Option<TextSlice<'a>>,
}

impl<'a> TextSlice<'a> {
    /// Returns the whole text as a slice.
    pub(super) const fn whole(text: &'a str) -> Self {
        Self { text, start: 0 }
    }

    /// Returns the characters of the slice.
    pub(super) const fn text(self) -> &'a str {
        self.text
    }

    /// Returns whether the slice has no characters.
    pub(super) const fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// Returns the byte range of the slice in the whole text.
    pub(super) const fn span(self) -> Range<usize> {
        self.start..self.end()
    }

    /// Returns the problem as an error at this position.
    pub(super) fn error(self, problem: RuleTextProblem) -> RuleTextError {
        RuleTextError { span: self.span(), problem }
    }

    /// Returns the error that this is no argument of `action`, with the right `form`.
    pub(super) fn bad(self, action: &'static str, form: &'static str) -> RuleTextError {
        let text = self.text.to_owned();
        self.error(RuleTextProblem::BadArgument { action, text, form })
    }

    /// Returns the slice without white space around it.
    pub(super) fn trimmed(self) -> Self {
        let text = self.text.trim_start();
        let start = self.end().saturating_sub(text.len());
        Self { text: text.trim_end(), start }
    }

    /// Splits the text at the first `mark`.
    pub(super) fn split_once(self, mark: &str) -> Option<(Self, Self)> {
        let (before, behind) = self.text.split_once(mark)?;
        let start = self.end().saturating_sub(behind.len());
        Some((Self { text: before, start: self.start }, Self { text: behind, start }))
    }

    /// Returns the items of the slice.
    /// An item with unclosed parentheses is an error.
    pub(super) const fn items(self) -> Items<'a> {
        Items { rest: self }
    }

    /// Splits the text at the commas outside quotes.
    pub(super) fn list(self) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let slice = rest?;
            let comma = unquoted(slice.text).find(|(_, c)| *c == ',');
            let (first, behind) = slice.split_at(comma.map_or(slice.text.len(), |(at, _)| at));
            rest = comma.map(|_| behind.split_first().1);
            Some(first)
        })
    }

    /// Returns the empty slice at the end of this slice.
    pub(super) fn tail(self) -> Self {
        self.split_at(self.text.len()).1
    }

    /// Returns the first `length` bytes of the slice, and the following bytes.
    fn split_at(self, length: usize) -> (Self, Self) {
        let (head, tail) = self.text.split_at_checked(length).unwrap_or((self.text, ""));
        let start = self.end().saturating_sub(tail.len());
        (Self { text: head, start: self.start }, Self { text: tail, start })
    }

    /// Returns the first character of the slice, and the slice after it.
    fn split_first(self) -> (Option<char>, Self) {
        let first = self.text.chars().next();
        (first, self.split_at(first.map_or(0, char::len_utf8)).1)
    }

    /// Returns the slice without the separators at its ends.
    fn without_separators(self) -> Self {
        let text = self.text.trim_start_matches(is_separator);
        self.split_at(self.text.len().saturating_sub(text.len())).1
    }

    /// Returns the offset of the end of the slice.
    const fn end(self) -> usize {
        self.start.saturating_add(self.text.len())
    }
}

impl<'a> Item<'a> {
    /// Returns the argument, or the empty slice after the name if there is none.
    pub(super) fn argument_or_end(self) -> TextSlice<'a> {
        self.argument.unwrap_or_else(|| self.name.tail())
    }

    /// Returns an error if the item has an argument.
    pub(super) fn no_argument(self, name: &'static str) -> Result<(), RuleTextError> {
        match self.argument {
            Some(argument) if !argument.is_empty() => {
                Err(argument.error(RuleTextProblem::NoArgument { name }))
            }
            _ => Ok(()),
        }
    }
}

/// Iterator over the items of a [`TextSlice`].
#[derive(Debug)]
pub(super) struct Items<'a> {
    /// The part after the returned items.
    rest: TextSlice<'a>,
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, RuleTextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.rest.without_separators();
        if item.is_empty() {
            return None;
        }
        let ends_name = |c| matches!(c, ':' | '=' | '(') || is_separator(c);
        let name_end = unquoted(item.text).find(|(_, c)| ends_name(*c));
        let (name, behind) = item.split_at(name_end.map_or(item.text.len(), |(at, _)| at));
        let (delimiter, behind) = behind.split_first();
        let Some(opening) = delimiter.filter(|c| !is_separator(*c)) else {
            self.rest = behind;
            return Some(Ok(Item { name, argument: None }));
        };
        let Some(length) = length_with_arrow(behind.text, opening) else {
            self.rest = behind.tail();
            return Some(Err(item.error(RuleTextProblem::Unclosed)));
        };
        let (argument, behind) = behind.split_at(length);
        self.rest = behind.split_first().1;
        Some(Ok(Item { name, argument: Some(argument) }))
    }
}

/// Returns the bytes of an argument, including a following `->` and its target.
fn length_with_arrow(text: &str, opening: char) -> Option<usize> {
    let length = argument_length(text, opening)?;
    let behind = text.get(length..).and_then(|behind| behind.strip_prefix(ARROW));
    match behind.filter(|_| opening == '(') {
        Some(target) => {
            let behind = argument_length(target, ':')?;
            Some(length.saturating_add(ARROW.len()).saturating_add(behind))
        }
        None => Some(length),
    }
}

/// Returns the bytes up to the end of the argument that `opening` begins.
/// `None` if a parenthesis is not closed.
fn argument_length(text: &str, opening: char) -> Option<usize> {
    let parenthesized = opening == '(';
    let mut depth = usize::from(parenthesized);
    for (at, c) in unquoted(text) {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends = if parenthesized { c == ')' } else { is_separator(c) };
        if depth == 0 && ends {
            return Some(at);
        }
    }
    (depth == 0).then_some(text.len())
}

/// Returns the characters outside of double quotes, with their positions.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quoted = false;
    text.char_indices().filter(move |(_, c)| {
        quoted ^= *c == '"';
        !quoted
    })
}

/// Returns whether a character separates two items.
fn is_separator(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
}

/// An arrow after a parenthesis.
pub(super) const ARROW: &str = ")->";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names and arguments of items.
    fn items(text: &str) -> Vec<(&str, Option<&str>)> {
        let items = TextSlice::whole(text).items().map(Result::unwrap);
        items.map(|item| (item.name.text(), item.argument.map(TextSlice::text))).collect()
    }

    #[test]
    fn items_end_at_separators_outside_parentheses() {
        let text = " a, b=1\tc:2=3 d(e(f),g=h),i:j(k,l)m,,n,o:\"p,(\",\"q: r\"";
        let expected = [
            ("a", None),
            ("b", Some("1")),
            ("c", Some("2=3")),
            ("d", Some("e(f),g=h")),
            ("i", Some("j(k,l)m")),
            ("n", None),
            ("o", Some("\"p,(\"")),
            ("\"q: r\"", None),
        ];
        assert_eq!(items(text), expected);
    }

    #[test]
    fn an_arrow_after_a_parenthesis_is_an_argument() {
        let expected = [
            ("a", Some("b)->c(d,e)f")),
            ("g", None),
            ("h", Some("i")),
            ("->", None),
            ("j", Some("k->l")),
        ];
        assert_eq!(items("a(b)->c(d,e)f,g,h(i) ->,j:k->l"), expected);
        assert!(TextSlice::whole("a(b)->c(d").items().next().unwrap().is_err());
    }

    #[test]
    fn lists_end_at_commas_outside_quotes() {
        let slices: Vec<_> =
            TextSlice::whole("a,,\"b,c\" d,").list().map(TextSlice::text).collect();
        assert_eq!(slices, ["a", "", "\"b,c\" d", ""]);
    }

    #[test]
    fn an_unclosed_parenthesis_is_reported() {
        for text in ["a(b", "a:(b,c", "a((b)"] {
            let error = TextSlice::whole(text).items().next().unwrap().unwrap_err();
            assert_eq!(error.problem, RuleTextProblem::Unclosed, "{text}");
        }
    }

    #[test]
    fn every_slice_has_its_position() {
        let text = "ä=1, bc(d->e)";
        for item in TextSlice::whole(text).items() {
            let item = item.unwrap();
            assert_eq!(&text[item.name.span()], item.name.text());
            let argument = item.argument.unwrap();
            assert_eq!(&text[argument.span()], argument.text());
            if let Some((before, behind)) = argument.split_once("->") {
                assert_eq!((&text[before.span()], &text[behind.span()]), ("d", "e"));
            }
        }
    }
}
