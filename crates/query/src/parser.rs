//! From tokens to a tree, with errors that say what was expected and where.
//!
//! Read `select` for the clauses and `expression` for the rest. Nothing here recurses deeper than
//! [`DEPTH_MAX`], and no tree that comes out is deeper.

mod expression;
mod select;

use std::sync::Arc;

use crate::ast::{Projection, Select};
use crate::error::{Error, Position, Result};
use crate::lexer::{self, Placed, Token};

/// Most levels of expressions and queries within each other. Whoever goes through a tree calls
/// itself for every level; `tests/it/depth.rs` does so on a small stack.
pub(crate) const DEPTH_MAX: u32 = 256;

/// What a query within another counts for: to run one takes more of the stack than to find the
/// value of an expression.
const SELECT_LEVELS: u32 = 3;

/// Why ORDER BY RANK and the functions of that kind are refused.
const FULL_TEXT: &str = "full-text search is not supported";

/// Words that are never names, unless they follow a dot.
const RESERVED: &[&str] = &[
    "AND",
    "ARRAY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "DESC",
    "DISTINCT",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "IN",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "TOP",
    "TRUE",
    "UDF",
    "UNDEFINED",
    "VALUE",
    "WHERE",
];

/// Reads a query.
pub(crate) fn query(text: &str) -> Result<Select> {
    let mut parser = Parser::new(text)?;
    let select = parser.select()?;
    parser.end()?;
    Ok(select)
}

/// Reads the condition of a patch: `FROM c WHERE …`.
pub(crate) fn condition(text: &str) -> Result<Select> {
    let mut parser = Parser::new(text)?;
    let position = parser.position();
    let mut select = parser.after_projection(position, Projection::Star)?;
    if select.sources.is_empty() {
        return Err(Error::syntax(position, "expected FROM"));
    }
    select.projection = Projection::Star;
    parser.end()?;
    Ok(select)
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Placed>,
    at: usize,
    depth: u32,
    /// The deepest level of what was read at this depth.
    reach: u32,
    /// What would have been accepted at this place.
    expected: Vec<&'static str>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self> {
        Ok(Self {
            text,
            tokens: lexer::tokens(text)?,
            at: 0,
            depth: 0,
            reach: 0,
            expected: Vec::new(),
        })
    }

    fn token(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn following(&self) -> &Token {
        let next = (self.at + 1).min(self.tokens.len() - 1);
        &self.tokens[next].token
    }

    fn position(&self) -> Position {
        self.tokens[self.at].position
    }

    fn advance(&mut self) {
        self.expected.clear();
        // The last token is the end; nobody goes beyond.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.token(), Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.token(), Token::Symbol(it) if *it == symbol)
    }

    fn eat_keyword(&mut self, keyword: &'static str) -> bool {
        if !self.is_keyword(keyword) {
            self.expected.push(keyword);
            return false;
        }
        self.advance();
        true
    }

    fn eat_symbol(&mut self, symbol: &str) -> bool {
        if !self.is_symbol(symbol) {
            return false;
        }
        self.advance();
        true
    }

    fn want_keyword(&mut self, keyword: &'static str) -> Result<()> {
        if self.eat_keyword(keyword) { Ok(()) } else { Err(self.fault(keyword)) }
    }

    fn want_symbol(&mut self, symbol: &'static str) -> Result<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.fault(&format!("{symbol:?}"))) }
    }

    /// A name that is not reserved.
    fn name(&mut self) -> Option<Arc<str>> {
        let Token::Word(word) = self.token() else { return None };
        if RESERVED.iter().any(|it| it.eq_ignore_ascii_case(word)) {
            return None;
        }
        let word = word.clone();
        self.advance();
        Some(word)
    }

    fn end(&mut self) -> Result<()> {
        if matches!(self.token(), Token::End) {
            return Ok(());
        }
        let mut expected: Vec<&str> = Vec::new();
        for it in &self.expected {
            if !expected.contains(it) {
                expected.push(it);
            }
        }
        expected.push("end of query");
        let last = expected.len() - 1;
        let text = match last {
            0 => expected[0].to_owned(),
            _ => format!("{} or {}", expected[..last].join(", "), expected[last]),
        };
        Err(self.fault(&text))
    }

    fn fault(&self, expected: &str) -> Error {
        const SHOWN_MAX: usize = 40;
        let (start, end) = (self.tokens[self.at].start, self.tokens.get(self.at + 1));
        let found = self.text[start..end.map_or(self.text.len(), |it| it.start)].trim_end();
        let found = match found.char_indices().nth(SHOWN_MAX) {
            Some((cut, _)) => format!("{:?}…", &found[..cut]),
            None if found.is_empty() => "the end".to_owned(),
            None => format!("{found:?}"),
        };
        Error::syntax(self.position(), format!("expected {expected}, found {found}"))
    }

    /// Runs a part of the grammar that may contain itself.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nested_by(1, part)
    }

    fn nested_by<T>(
        &mut self,
        levels: u32,
        part: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.check_depth(self.depth + levels)?;
        self.depth += levels;
        let outer = std::mem::replace(&mut self.reach, self.depth);
        let result = part(self);
        self.depth -= levels;
        self.reach = self.reach.max(outer);
        result
    }

    /// Puts what was read at this depth one level deeper: it turned out to be the left operand of
    /// something.
    fn lift(&mut self) -> Result<()> {
        self.reach += 1;
        self.check_depth(self.reach)
    }

    fn check_depth(&self, depth: u32) -> Result<()> {
        if DEPTH_MAX < depth {
            let reason = format!("it nests more than {DEPTH_MAX} levels");
            return Err(Error::syntax(self.position(), reason));
        }
        Ok(())
    }
}
