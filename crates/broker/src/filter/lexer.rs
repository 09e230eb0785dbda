use std::fmt;

use crate::filter::expression::{begins_name, continues_name};

/// A word, name, text, number or symbol of an expression, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    /// The place of its first character, from 1.
    pub(crate) column: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// A word of the language or a name.
    Word(String),
    /// A name in brackets or double quotes.
    Name(String),
    Text(String),
    /// The sign is a symbol of its own, so that the smallest number needs one bit more.
    Integer(u64),
    Double(f64),
    Symbol(&'static str),
    End,
}

struct Lexer {
    characters: Vec<char>,
    next: usize,
}

/// Longer ones first, so that `<=` is not read as `<`.
const SYMBOLS: [(&str, &str); 17] = [
    ("<>", "<>"),
    ("!=", "<>"),
    ("<=", "<="),
    (">=", ">="),
    ("<", "<"),
    (">", ">"),
    ("=", "="),
    ("+", "+"),
    ("-", "-"),
    ("*", "*"),
    ("/", "/"),
    ("%", "%"),
    ("(", "("),
    (")", ")"),
    (",", ","),
    (".", "."),
    (";", ";"),
];

/// The smallest number has this size.
const INTEGER_SIZE_MAX: u64 = i64::MIN.unsigned_abs();

/// Splits an expression; the last token is `End`. Or says what is wrong with it.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut lexer = Lexer { characters: text.chars().collect(), next: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip(char::is_whitespace);
        let column = lexer.column();
        let kind = lexer.token()?;
        let ended = kind == TokenKind::End;
        tokens.push(Token { kind, column });
        if ended {
            return Ok(tokens);
        }
    }
}

impl Lexer {
    fn token(&mut self) -> Result<TokenKind, String> {
        let column = self.column();
        let Some(first) = self.peek(0) else { return Ok(TokenKind::End) };
        if begins_name(first) {
            return Ok(TokenKind::Word(self.take(continues_name)));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        match first {
            '\'' => return self.quoted('\'', "'").map(TokenKind::Text),
            '"' => return self.name('"', "\""),
            '[' => return self.name(']', "]"),
            '@' => return Err(format!("parameters are not supported, see column {column}")),
            _ => (),
        }
        for (spelling, symbol) in SYMBOLS {
            if spelling.chars().enumerate().all(|(index, it)| self.peek(index) == Some(it)) {
                self.next += spelling.len();
                return Ok(TokenKind::Symbol(symbol));
            }
        }
        Err(format!(
            "expected a word, number, text or operator at column {column}, found {first:?}"
        ))
    }

    fn name(&mut self, end: char, end_shown: &str) -> Result<TokenKind, String> {
        let column = self.column();
        let name = self.quoted(end, end_shown)?;
        if name.is_empty() {
            return Err(format!("expected the name of a property at column {column}, found none"));
        }
        Ok(TokenKind::Name(name))
    }

    /// Reads up to `end`; twice `end` stands for itself.
    fn quoted(&mut self, end: char, end_shown: &str) -> Result<String, String> {
        let column = self.column();
        self.next += 1;
        let mut content = String::new();
        while let Some(character) = self.peek(0) {
            self.next += 1;
            if character == end {
                if self.peek(0) != Some(end) {
                    return Ok(content);
                }
                self.next += 1;
            }
            content.push(character);
        }
        Err(format!("expected {end_shown} to end what begins at column {column}, found the end"))
    }

    fn number(&mut self) -> Result<TokenKind, String> {
        let column = self.column();
        let is_digit = |character: char| character.is_ascii_digit();
        let mut digits = self.take(is_digit);
        let mut is_whole = true;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(is_digit) {
            is_whole = false;
            self.next += 1;
            digits = format!("{digits}.{}", self.take(is_digit));
        }
        if self.peek(0).is_some_and(|it| it.eq_ignore_ascii_case(&'e')) {
            let sign = self.peek(1).filter(|it| ['+', '-'].contains(it));
            if self.peek(1 + usize::from(sign.is_some())).is_some_and(is_digit) {
                is_whole = false;
                self.next += 1 + usize::from(sign.is_some());
                digits = format!("{digits}e{}{}", sign.unwrap_or('+'), self.take(is_digit));
            }
        }
        let too_large = || format!("the number at column {column} is too large");
        if is_whole {
            let number = digits.parse().ok().filter(|number| *number <= INTEGER_SIZE_MAX);
            return number.map(TokenKind::Integer).ok_or_else(too_large);
        }
        let number = digits.parse().ok().filter(|number: &f64| number.is_finite());
        number.map(TokenKind::Double).ok_or_else(too_large)
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.next;
        self.skip(wanted);
        self.characters.iter().take(self.next).skip(start).collect()
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.next += 1;
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.next + ahead).copied()
    }

    fn column(&self) -> usize {
        self.next + 1
    }
}

/// Shows a token in an error.
impl fmt::Display for TokenKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// How much of a long text is shown.
        const SHOWN_CHARACTERS_MAX: usize = 32;
        match self {
            Self::Word(text) | Self::Name(text) | Self::Text(text) => {
                let shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
                write!(to, "{shown:?}")
            }
            Self::Integer(number) => write!(to, "{number}"),
            Self::Double(number) => write!(to, "{number:?}"),
            Self::Symbol(symbol) => write!(to, "{symbol:?}"),
            Self::End => to.write_str("the end"),
        }
    }
}
