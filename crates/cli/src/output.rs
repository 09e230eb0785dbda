//! Writing to people and to other programs.

use std::io::{self, Write, stdout};

use serde::Serialize;

use crate::failure::Result;

/// Writes to standard output.
pub(crate) fn say(text: &str) {
    // Nobody listens any more: then there is nobody to tell either.
    let _ = try_say(text);
}

/// Writes to standard output; an error means that nobody listens any more.
pub(crate) fn try_say(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a value as JSON.
pub(crate) fn say_json(value: &impl Serialize) -> Result<()> {
    say(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

/// Rows under their headings, each column as wide as its widest cell.
pub(crate) fn table<const COLUMNS: usize>(
    headings: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    let mut widths = headings.map(|it| it.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&headings.map(str::to_owned)).chain(rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A number with the words that go with it.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A sentence of at most so many characters.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    let line = text.replace('\n', " ");
    if line.chars().count() <= characters_max {
        return line;
    }
    let kept: String = line.chars().take(characters_max.saturating_sub(3)).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long name".to_owned(), "23".to_owned()]];
        let expected = "NAME       N\na          1\nlong name  23\n";
        assert_eq!(table(["NAME", "N"], &rows), expected);
    }

    #[test]
    fn long_sentences_are_cut() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abc...");
    }
}
