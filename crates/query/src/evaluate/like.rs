//! The patterns of LIKE.

use crate::error::Result;
use crate::functions::Context;
use crate::value::Value;

/// A piece of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// `%`: any characters, also none.
    Any,
    /// `_`: one character.
    One,
    Character(char),
    /// `[a-f]` or `[^a-f]`: one character within, or not within, these ranges.
    Set {
        ranges: Vec<(char, char)>,
        is_not: bool,
    },
}

/// Whether the text is like the pattern; none if an operand is not a string, or the escape not one
/// character.
pub(crate) fn matches(
    context: &mut Context,
    value: &Value,
    pattern: &Value,
    escape: Option<&Value>,
) -> Result<Option<bool>> {
    let (Some(text), Some(pattern)) = (value.as_str(), pattern.as_str()) else {
        return Ok(None);
    };
    let escape = match escape {
        None => None,
        Some(escape) => {
            let mut characters = escape.as_str().unwrap_or_default().chars();
            match (characters.next(), characters.next()) {
                (Some(only), None) => Some(only),
                (None, _) | (Some(_), Some(_)) => return Ok(None),
            }
        }
    };
    context.spend(text.len() + pattern.len())?;
    let of_pattern = pattern.len().saturating_mul(size_of::<Piece>() + size_of::<char>());
    context.hold(of_pattern.saturating_add(size_of_val(text) * size_of::<char>()))?;
    let pieces = pieces(pattern, escape);
    let characters: Vec<char> = text.chars().collect();
    run(context, &pieces, &characters).map(Some)
}

/// Follows the pattern, and goes back to the last `%` where it does not fit: no worse than the
/// length of the text times that of the pattern.
fn run(context: &mut Context, pieces: &[Piece], text: &[char]) -> Result<bool> {
    let (mut piece, mut place) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while place < text.len() {
        let piece_at = pieces.get(piece);
        context.spend(piece_at.map_or(1, Piece::steps))?;
        match piece_at {
            Some(Piece::Any) => {
                retry = Some((piece + 1, place));
                piece += 1;
            }
            Some(other) if other.fits(text[place]) => {
                piece += 1;
                place += 1;
            }
            Some(_) | None => {
                let Some((after, from)) = retry else { return Ok(false) };
                retry = Some((after, from + 1));
                (piece, place) = (after, from + 1);
            }
        }
    }
    Ok(pieces[piece..].iter().all(|it| *it == Piece::Any))
}

impl Piece {
    /// What it takes to see whether a character fits.
    fn steps(&self) -> usize {
        match self {
            Self::Any | Self::One | Self::Character(_) => 1,
            Self::Set { ranges, .. } => 1 + ranges.len() / 16,
        }
    }

    fn fits(&self, character: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Character(it) => *it == character,
            Self::Set { ranges, is_not } => {
                let is_in = ranges.iter().any(|(from, to)| (*from..=*to).contains(&character));
                is_in != *is_not
            }
        }
    }
}

fn pieces(pattern: &str, escape: Option<char>) -> Vec<Piece> {
    let characters: Vec<char> = pattern.chars().collect();
    // Nothing is looked for again and again that is not there.
    let last_closing = characters.iter().rposition(|it| *it == ']').unwrap_or_default();
    let mut pieces = Vec::with_capacity(characters.len());
    let mut at = 0;
    while let Some(character) = characters.get(at) {
        at += 1;
        let piece = match character {
            it if Some(*it) == escape && at < characters.len() => {
                at += 1;
                Piece::Character(characters[at - 1])
            }
            '%' => Piece::Any,
            '_' => Piece::One,
            '[' if at <= last_closing => match set(&characters[at..]) {
                Some((set, length)) => {
                    at += length;
                    set
                }
                None => Piece::Character('['),
            },
            other => Piece::Character(*other),
        };
        pieces.push(piece);
    }
    pieces
}

/// The set after an opening bracket and its length with the closing one; none if nothing closes it.
fn set(characters: &[char]) -> Option<(Piece, usize)> {
    let is_not = characters.first() == Some(&'^');
    let start = usize::from(is_not);
    let length = characters.get(start + 1..)?.iter().position(|it| *it == ']')? + 1;
    let inner = &characters[start..start + length];
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < inner.len() {
        if inner.get(at + 1) == Some(&'-') && at + 2 < inner.len() {
            ranges.push((inner[at], inner[at + 2]));
            at += 3;
        } else {
            ranges.push((inner[at], inner[at]));
            at += 1;
        }
    }
    Some((Piece::Set { ranges, is_not }, start + length + 1))
}
