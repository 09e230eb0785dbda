//! From the text of a query to words, numbers, strings and symbols.

use std::sync::Arc;

use crate::error::{Error, Position, Result};
use crate::value::Number;

/// What SDKs replace in a rewritten query before they send it; whoever does not means "all".
pub(crate) const FILTER_PLACEHOLDER: &str = "{documentdb-formattableorderbyquery-filter}";

/// A piece of a query.
#[derive(Clone, Debug)]
pub(crate) enum Token {
    /// A keyword or a name.
    Word(Arc<str>),
    /// `@name`, with the sign.
    Parameter(Arc<str>),
    Number(Number),
    String(Arc<str>),
    Symbol(&'static str),
    End,
}

/// All symbols; of two that begin alike the longer comes first.
const SYMBOLS: &[&str] = &[
    ">>>", "??", "||", "<<", ">>", "<=", ">=", "<>", "!=", "(", ")", "[", "]", "{", "}", ",", ".",
    ":", "?", "*", "/", "%", "+", "-", "|", "^", "&", "<", ">", "=", "~",
];

/// A token and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    /// The byte it begins at.
    pub(crate) start: usize,
    pub(crate) position: Position,
}

/// Divides a text; the last token is `End`.
pub(crate) fn tokens(text: &str) -> Result<Vec<Placed>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    let mut position = Position { line: 1, column: 1 };
    let mut counted = 0;
    loop {
        lexer.skip()?;
        let start = lexer.at;
        position = after(position, &text[counted..start]);
        counted = start;
        let token = lexer.token()?;
        let is_end = matches!(token, Token::End);
        tokens.push(Placed { token, start, position });
        if is_end {
            return Ok(tokens);
        }
    }
}

/// The place behind some more text.
fn after(position: Position, text: &str) -> Position {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let lines = count(text.matches('\n').count());
    let last = text.rsplit('\n').next().unwrap_or_default();
    let columns = count(last.chars().count());
    let before = if lines == 0 { position.column } else { 1 };
    Position { line: position.line.saturating_add(lines), column: before.saturating_add(columns) }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fault(&self, at: usize, reason: &str) -> Error {
        let start = Position { line: 1, column: 1 };
        Error::syntax(after(start, &self.text[..at.min(self.text.len())]), reason)
    }

    /// Passes over white space and comments.
    fn skip(&mut self) -> Result<()> {
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            if rest.starts_with("--") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let Some(length) = comment.find("*/") else {
                    return Err(self.fault(self.at, "expected the end of the comment begun"));
                };
                self.at += length + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Token::End);
        };
        if rest.starts_with(FILTER_PLACEHOLDER) {
            self.at += FILTER_PLACEHOLDER.len();
            return Ok(Token::Word("true".into()));
        }
        match first {
            '"' | '\'' => self.string(first),
            '@' => {
                let length = word_length(&rest[1..]);
                if length == 0 {
                    return Err(self.fault(self.at, "expected a name after \"@\""));
                }
                self.at += 1 + length;
                Ok(Token::Parameter(rest[..=length].into()))
            }
            '0' if rest[1..].starts_with(['x', 'X']) => self.hexadecimal(),
            '0'..='9' => self.number(),
            '.' if rest[1..].starts_with(|it: char| it.is_ascii_digit()) => self.number(),
            it if it == '_' || it == '$' || it.is_alphabetic() => {
                let length = word_length(rest);
                self.at += length;
                Ok(Token::Word(rest[..length].into()))
            }
            other => match SYMBOLS.iter().find(|it| rest.starts_with(**it)) {
                Some(symbol) => {
                    self.at += symbol.len();
                    Ok(Token::Symbol(symbol))
                }
                None => Err(self.fault(self.at, &format!("{other:?} means nothing here"))),
            },
        }
    }

    /// `0x` and the digits behind it.
    fn hexadecimal(&mut self) -> Result<Token> {
        let start = self.at;
        let digits = &self.rest()[2..word_length(self.rest())];
        self.at += 2 + digits.len();
        let number = u128::from_str_radix(digits, 16).ok();
        let number = number.and_then(|it| Number::parse(&it.to_string()));
        let fault = || self.fault(start, "expected up to 32 hexadecimal digits after \"0x\"");
        number.map(Token::Number).ok_or_else(fault)
    }

    fn number(&mut self) -> Result<Token> {
        let (start, bytes) = (self.at, self.text.as_bytes());
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut end = digits(start);
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if end + 1 + sign < exponent {
                end = exponent;
            }
        }
        self.at = end;
        if 0 < word_length(self.rest()) {
            return Err(self.fault(end, "expected the number to end"));
        }
        let text = &self.text[start..end];
        let digits = text.find(['.', 'e', 'E']).map_or(text, |end| &text[..end]);
        // The spelling comes back in results, so it must be one of JSON.
        let plain = match digits.trim_start_matches('0') {
            "" => format!("0{}", &text[digits.len()..]),
            kept => format!("{kept}{}", &text[digits.len()..]),
        };
        let number = Number::parse(&plain);
        number.map(Token::Number).ok_or_else(|| self.fault(start, "expected a number"))
    }

    fn string(&mut self, quote: char) -> Result<Token> {
        let start = self.at;
        let mut decoded = String::new();
        let mut characters = self.rest().char_indices().skip(1).peekable();
        while let Some((offset, character)) = characters.next() {
            match character {
                '\\' => {
                    let escape = self.escape(start + offset, &mut characters)?;
                    decoded.push(escape);
                }
                it if it == quote => {
                    // A quote twice is a quote, as in other languages of this family.
                    if characters.next_if(|(_, next)| *next == quote).is_none() {
                        self.at = start + offset + 1;
                        return Ok(Token::String(decoded.into()));
                    }
                    decoded.push(quote);
                }
                it => decoded.push(it),
            }
        }
        Err(self.fault(start, "expected the end of the string begun"))
    }

    fn escape(
        &self,
        at: usize,
        characters: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    ) -> Result<char> {
        let mut next = || characters.next().map(|(_, character)| character);
        let fault = || self.fault(at, "expected an escape as in JSON");
        Ok(match next().ok_or_else(fault)? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let mut unit = || {
                    let digits: Option<Vec<u32>> =
                        (0..4).map(|_| next().and_then(|it| it.to_digit(16))).collect();
                    digits.map(|digits| digits.iter().fold(0, |sum, digit| sum * 16 + digit))
                };
                let first = unit().ok_or_else(fault)?;
                match first {
                    0xD800..0xDC00 => {
                        let is_pair = (next(), next()) == (Some('\\'), Some('u'));
                        let mut unit = || {
                            let digits: Option<Vec<u32>> =
                                (0..4).map(|_| next().and_then(|it| it.to_digit(16))).collect();
                            digits.map(|it| it.iter().fold(0, |sum, digit| sum * 16 + digit))
                        };
                        let low = if is_pair { unit() } else { None };
                        let low = low.filter(|it| (0xDC00..0xE000).contains(it));
                        let low = low.ok_or_else(fault)?;
                        let code = 0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00);
                        char::from_u32(code).ok_or_else(fault)?
                    }
                    _ => char::from_u32(first).ok_or_else(fault)?,
                }
            }
            other @ ('"' | '\'' | '\\' | '/') => other,
            // Patterns and regular expressions are written with backslashes that mean nothing to
            // JSON; guessing would change them silently.
            _ => return Err(fault()),
        })
    }
}

/// The bytes of the word that the text begins with.
fn word_length(text: &str) -> usize {
    let is_part = |it: char| it == '_' || it == '$' || it.is_alphanumeric();
    text.find(|it| !is_part(it)).unwrap_or(text.len())
}
