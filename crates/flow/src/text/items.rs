//! Splitting of a list into its items.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The items of a list, separated by commas or white space.
///
/// An item is `name` or `name=value`. A comma inside parentheses or quotes belongs to the value:
/// `packet_type=(1,0x800)`.
///
/// ```
/// use shunt_flow::text::items;
///
/// let items: Vec<_> = items("tcp, packet_type=(1,0x800)").collect();
/// assert_eq!(items, [("tcp", None), ("packet_type", Some("(1,0x800)"))]);
/// ```
pub fn items(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(is_separator);
        if rest.is_empty() {
            return None;
        }
        let (item, after) = rest.split_at(item_len(rest));
        rest = after;
        Some(match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        })
    })
}

/// Returns the length of the first item of a text.
fn item_len(text: &str) -> usize {
    let (mut depth, mut quoted) = (0_usize, false);
    for (index, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth = depth.saturating_add(1),
            ')' if !quoted => depth = depth.saturating_sub(1),
            _ if is_separator(c) && !quoted && depth == 0 => return index,
            _ => {}
        }
    }
    text.len()
}

/// Returns whether a character separates two items.
const fn is_separator(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
}
