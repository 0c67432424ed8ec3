//! Prose in sources and pages: comments, strings and paragraphs, as sentences with their lines.
//!
//! Strings are read from Rust sources only; comments are read from other languages, too.

/// A passage of prose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The line on which the passage begins, counted from 1.
    pub line: usize,
    /// The kind of text, such as a comment.
    pub kind: PassageKind,
    /// Text of the passage, without markers of comments.
    pub text: String,
}

/// The kind of place of a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassageKind {
    /// The documentation of a module (`//!`).
    ModuleDoc,
    /// The documentation of an item (`///`).
    ItemDoc,
    /// A comment that is not documentation (`//`).
    Comment,
    /// A string of code that contains a space.
    Text,
    /// A paragraph, list item or table cell of a page.
    Page,
}

impl PassageKind {
    /// Returns whether readers see the passage as documentation.
    #[must_use]
    pub const fn is_documentation(self) -> bool {
        matches!(self, Self::ModuleDoc | Self::ItemDoc | Self::Page)
    }
}

/// Returns the passages of a Rust source.
///
/// The passages are comments without their code blocks, and strings.
#[must_use]
pub fn of_source(source: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut is_fenced = false;
    for token in Tokens::new(source) {
        let Some(marker) = token.comment_marker() else {
            if token.is_string() && token.text.contains(' ') {
                let text = token.string_body().replace("\\n", "\n");
                passages.push(Passage { line: token.line, kind: PassageKind::Text, text });
            }
            continue;
        };
        let kind = match marker {
            "///" => PassageKind::ItemDoc,
            "//!" => PassageKind::ModuleDoc,
            _ => PassageKind::Comment,
        };
        let mut text = token.text[marker.len()..].trim();
        if text.starts_with("```") {
            is_fenced = !is_fenced;
            text = "";
        } else if is_fenced && kind != PassageKind::Comment {
            text = "";
        }
        match passages.last_mut() {
            Some(last) if last.kind == kind && last.line + lines(&last.text) == token.line => {
                last.text.push('\n');
                last.text.push_str(text);
            }
            _ => passages.push(Passage { line: token.line, kind, text: text.to_owned() }),
        }
    }
    passages
}

/// Returns the passages of a Markdown page.
///
/// Each line is a paragraph, and each cell of a table is a passage.
#[must_use]
pub fn of_page(page: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut is_fenced = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let cells: Vec<&str> = match line.strip_prefix('|') {
                Some(row) => row.split('|').collect(),
                None => vec![line.trim_start_matches(['#', '*', '-', ' '])],
            };
            let passage = |text: &str| Passage {
                line: index + 1,
                kind: PassageKind::Page,
                text: text.trim().to_owned(),
            };
            passages.extend(cells.into_iter().filter(|cell| !cell.is_empty()).map(passage));
        }
    }
    passages
}

/// Returns the comments of a file in C, P4, protobuf, Python, shell or TOML.
///
/// Docstrings of Python are comments, too.
#[must_use]
pub fn of_comments(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut open = None;
    for (index, line) in text.lines().enumerate() {
        let body = match open {
            Some(end) => Some((line, end)),
            None => BLOCKS.iter().find_map(|(begin, end)| Some((line.split_once(begin)?.1, *end))),
        };
        let comment = match body {
            Some((body, end)) => {
                open = (!body.contains(end)).then_some(end);
                body.split(end).next()
            }
            None => ["// ", "# "].iter().find_map(|marker| Some(line.split_once(marker)?.1)),
        };
        let Some(comment) = comment else { continue };
        let comment = comment.trim_start_matches([' ', '*']).trim_end();
        match passages.last_mut() {
            Some(last) if last.line + lines(&last.text) == index + 1 => {
                last.text.push('\n');
                last.text.push_str(comment);
            }
            _ => passages.push(Passage {
                line: index + 1,
                kind: PassageKind::Comment,
                text: comment.to_owned(),
            }),
        }
    }
    passages
}

/// Markers of comments over several lines.
const BLOCKS: [(&str, &str); 2] = [("/*", "*/"), ("\"\"\"", "\"\"\"")];

/// Returns the sentences of a passage.
///
/// `X` replaces code, and the words of a link replace the link.
#[must_use]
pub fn sentences(text: &str) -> Vec<String> {
    let text = without_code(text);
    let mut sentences = Vec::new();
    let mut sentence = String::new();
    for block in text.split("\n\n") {
        for line in block.lines() {
            let begins_item = line.starts_with(['-', '*', '|', '#']);
            if begins_item {
                flush(&mut sentence, &mut sentences);
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            for (index, word) in words.iter().enumerate() {
                if ends_sentence(&sentence) && begins_sentence(word) {
                    flush(&mut sentence, &mut sentences);
                }
                if !sentence.is_empty() {
                    sentence.push(' ');
                }
                let is_bullet =
                    index == 0 && begins_item && word.chars().all(|c| "-*|#".contains(c));
                sentence.push_str(if is_bullet { "" } else { word });
            }
        }
        flush(&mut sentence, &mut sentences);
    }
    sentences
}

/// Returns the number of words of a sentence.
#[must_use]
pub fn words_count(sentence: &str) -> usize {
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    sentence.split_whitespace().filter(is_word).count()
}

fn flush(sentence: &mut String, sentences: &mut Vec<String>) {
    let whole = sentence.trim();
    if !whole.is_empty() {
        sentences.push(whole.to_owned());
    }
    sentence.clear();
}

fn ends_sentence(sentence: &str) -> bool {
    sentence.trim_end_matches([')', '*', '_', '"']).ends_with(['.', '!', '?', ':', ';'])
}

fn begins_sentence(word: &str) -> bool {
    let first = word.trim_start_matches(['(', '*', '_', '[', '"']).chars().next();
    first.is_some_and(|first| first.is_uppercase() || first.is_ascii_digit())
}

/// Replaces `code` by `X`, and `[words](link)` by the words of the link.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let plain: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { "X" }).collect();
    let mut result = String::new();
    let mut rest = plain.as_str();
    while let Some(at) = rest.find("](") {
        result.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        rest = rest.find(')').map_or("", |end| &rest[end + 1..]);
    }
    result.push_str(rest);
    result.replace(['[', ']'], "")
}

fn lines(text: &str) -> usize {
    text.matches('\n').count() + 1
}

/// A token of a Rust source.
///
/// There are only three kinds: comments, strings and code.
struct Token<'a> {
    line: usize,
    text: &'a str,
}

impl<'a> Token<'a> {
    fn comment_marker(&self) -> Option<&'a str> {
        let markers = ["////", "///", "//!", "//"];
        markers
            .into_iter()
            .find(|marker| self.text.starts_with(marker))
            .map(|marker| &self.text[..marker.len()])
    }

    /// Returns the text between the first and the last quote.
    fn string_body(&self) -> &'a str {
        let (begin, end) = (self.text.find('"'), self.text.rfind('"'));
        begin.zip(end).and_then(|(begin, end)| self.text.get(begin + 1..end)).unwrap_or_default()
    }

    fn is_string(&self) -> bool {
        self.text.ends_with(['"', '#']) && self.text.contains('"')
    }
}

/// Iterates over comments, literals and single characters of code.
struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    const fn new(source: &'a str) -> Self {
        Self { rest: source, line: 1 }
    }

    /// Returns the length of the token at the head.
    fn length(&self) -> usize {
        let rest = self.rest;
        let first = rest.chars().next().unwrap_or(' ');
        if rest.starts_with("//") {
            return rest.find('\n').unwrap_or(rest.len());
        }
        if rest.starts_with("/*") {
            return rest.find("*/").map_or(rest.len(), |end| end + 2);
        }
        if let Some(length) = raw_string(rest).or_else(|| string(rest)).or_else(|| character(rest))
        {
            return length;
        }
        if first.is_alphabetic() || first == '_' {
            let is_inside = |c: char| c.is_alphanumeric() || c == '_';
            return rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        }
        first.len_utf8()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (text, rest) = self.rest.split_at(self.length());
        let token = Token { line: self.line, text };
        self.line += text.matches('\n').count();
        self.rest = rest;
        Some(token)
    }
}

/// Returns the length of a raw string at the head, if there is such a string.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(rest.len() - body.len() + length)
}

/// Returns the length of a string at the head, if there is such a string.
fn string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('"')?;
    let mut is_escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            '"' if !is_escaped => return Some(rest.len() - body.len() + at + 1),
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    Some(rest.len())
}

/// Returns the length of a character literal at the head.
/// A lifetime is no such literal.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('\'')?;
    let before = rest.len() - body.len();
    let mut signs = body.char_indices();
    let (_, first) = signs.next()?;
    let end = if first == '\\' {
        body[2..].find('\'').map(|at| at + 2)?
    } else {
        let (at, second) = signs.next()?;
        (second == '\'').then_some(at)?
    };
    Some(before + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_become_passages() {
        let source = "//! Module page.\n\n/// An item's\n/// two lines.\nfn f<'a>(c: &'a str) {\n    // Why.\n    g('\"', b'\\'', \"a \\\" text\", r#\"raw \"x\" text\"#);\n}\n";
        let found: Vec<(usize, PassageKind, String)> =
            of_source(source).into_iter().map(|p| (p.line, p.kind, p.text)).collect();
        let expected = [
            (1, PassageKind::ModuleDoc, "Module page."),
            (3, PassageKind::ItemDoc, "An item's\ntwo lines."),
            (6, PassageKind::Comment, "Why."),
            (7, PassageKind::Text, "a \\\" text"),
            (7, PassageKind::Text, "raw \"x\" text"),
        ];
        let expected: Vec<_> =
            expected.map(|(line, kind, text)| (line, kind, text.to_owned())).into();
        assert_eq!(found, expected);
    }

    #[test]
    fn comments_of_other_languages_become_passages() {
        let source = "/* A page\n * of C. */\nint x; // One\nint y; // two.\n\"\"\"Says.\n\nMore.\n\"\"\"\nx = 1\n# Why.\n#define X\n";
        let found: Vec<(usize, String)> =
            of_comments(source).into_iter().map(|passage| (passage.line, passage.text)).collect();
        let expected = [(1, "A page\nof C.\nOne\ntwo.\nSays.\n\nMore.\n"), (10, "Why.")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn code_blocks_are_no_prose() {
        let source = "/// One.\n///\n/// ```\n/// let whoever = 1;\n/// ```\n/// Two.\nfn f() {}\n";
        let found = of_source(source);
        assert_eq!(found.len(), 1);
        assert_eq!(sentences(&found[0].text), ["One.", "Two."]);
        assert_eq!(of_page("One.\n\n```\nwhoever\n```\n| a | b c |\n").len(), 3);
    }

    #[test]
    fn sentences_end_where_the_next_begins() {
        let text = "Reads `a.b` of [the key](x.md), e.g. one.\nThe rest: Some. - no\n\n- First item\n- Second";
        let expected =
            ["Reads X of the key, e.g. one.", "The rest:", "Some. - no", "First item", "Second"];
        assert_eq!(sentences(text), expected);
        assert_eq!(words_count("A key - of `X` bits."), 5);
    }
}
