use std::vec;

use crate::filter::expression::{
    ArithmeticOperator, Comparison, Expression, Like, Literal, Property, SystemProperty,
    is_reserved,
};
use crate::filter::lexer::{Token, TokenKind, tokens};
use crate::filter::like::LikePattern;
use crate::filter::sql::SqlFilter;

/// Reads a condition; or says what is wrong with it and where.
pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    let end = Token { kind: TokenKind::End, column: 1 };
    let mut parser = Parser { rest: tokens(text)?.into_iter(), current: end, depth: 0 };
    parser.advance();
    let condition = parser.condition(Parser::disjunction)?;
    if parser.current.kind != TokenKind::End {
        return Err(parser.unexpected("an operator or the end"));
    }
    Ok(condition)
}

struct Parser {
    current: Token,
    rest: vec::IntoIter<Token>,
    depth: usize,
}

type Reading<T = Expression> = Result<T, String>;

/// One method per level, the loosest first. Each may return a value or a condition, since both can
/// stand in parentheses; `condition` and `value` insist on one.
impl Parser {
    fn disjunction(&mut self) -> Reading {
        self.repeated("OR", Self::conjunction, Expression::Or)
    }

    fn conjunction(&mut self) -> Reading {
        self.repeated("AND", Self::negation, Expression::And)
    }

    fn repeated(
        &mut self,
        word: &str,
        part: fn(&mut Self) -> Reading,
        all: fn(Vec<Expression>) -> Expression,
    ) -> Reading {
        let column = self.current.column;
        let first = part(self)?;
        if !self.is_word(word) {
            return Ok(first);
        }
        let mut parts = vec![as_condition(first, column)?];
        while self.take_word(word) {
            parts.push(self.condition(part)?);
        }
        Ok(all(parts))
    }

    fn negation(&mut self) -> Reading {
        if !self.take_word("NOT") {
            return self.predicate();
        }
        let operand = self.nested(|parser| parser.condition(Self::negation))?;
        Ok(Expression::Not(Box::new(operand)))
    }

    fn predicate(&mut self) -> Reading {
        let column = self.current.column;
        let operand = self.sum()?;
        for operator in Comparison::ALL {
            if self.take_symbol(operator.symbol()) {
                let left = Box::new(as_value(operand, column)?);
                let right = Box::new(self.value(Self::sum)?);
                return Ok(Expression::Compare { operator, left, right });
            }
        }
        if self.take_word("IS") {
            return self.is_null(operand, column);
        }
        let negated = self.take_word("NOT");
        if self.take_word("IN") {
            let operand = Box::new(as_value(operand, column)?);
            return Ok(Expression::In { operand, values: self.list()?, negated });
        }
        if self.take_word("LIKE") {
            return self.like(as_value(operand, column)?, negated);
        }
        if negated {
            return Err(self.unexpected("IN or LIKE"));
        }
        Ok(operand)
    }

    fn is_null(&mut self, operand: Expression, column: usize) -> Reading {
        let negated = self.take_word("NOT");
        if !self.take_word("NULL") {
            return Err(self.unexpected(if negated { "NULL" } else { "NULL or NOT NULL" }));
        }
        if !matches!(operand, Expression::Property(_) | Expression::Lookup(_)) {
            return Err(format!("expected a property before IS at column {column}"));
        }
        Ok(Expression::IsNull { operand: Box::new(operand), negated })
    }

    fn list(&mut self) -> Reading<Vec<Expression>> {
        self.expect_symbol("(")?;
        let mut values = Vec::new();
        loop {
            if values.len() == SqlFilter::LIST_VALUES_MAX {
                let (most, column) = (SqlFilter::LIST_VALUES_MAX, self.current.column);
                return Err(format!("the list has more than {most} values at column {column}"));
            }
            values.push(self.nested(|parser| parser.value(Self::sum))?);
            if !self.take_symbol(",") {
                break;
            }
        }
        if !self.take_symbol(")") {
            return Err(self.unexpected("\",\" or \")\""));
        }
        Ok(values)
    }

    fn like(&mut self, operand: Expression, negated: bool) -> Reading {
        let column = self.current.column;
        let pattern = self.value(Self::sum)?;
        let mut escape = None;
        if self.take_word("ESCAPE") {
            let column = self.current.column;
            let value = self.value(Self::sum)?;
            if literal_text(&value).is_some_and(|text| text.chars().count() != 1) {
                return Err(format!("expected one character at column {column}"));
            }
            escape = Some(value);
        }
        let is_fixed = escape.as_ref().is_none_or(|it| literal_text(it).is_some());
        let mut compiled = None;
        if let Some(text) = literal_text(&pattern).filter(|_| is_fixed) {
            let character = escape.as_ref().and_then(literal_text).and_then(|it| it.chars().next());
            let wrong = |what| format!("expected {what} at column {column}");
            compiled = Some(LikePattern::new(text, character).map_err(wrong)?);
        }
        Ok(Expression::Like(Box::new(Like { operand, pattern, escape, negated, compiled })))
    }

    fn sum(&mut self) -> Reading {
        self.arithmetic(&ArithmeticOperator::SUM, Self::product)
    }

    fn product(&mut self) -> Reading {
        self.arithmetic(&ArithmeticOperator::PRODUCT, Self::signed)
    }

    fn arithmetic(
        &mut self,
        operators: &[ArithmeticOperator],
        part: fn(&mut Self) -> Reading,
    ) -> Reading {
        let column = self.current.column;
        let first = part(self)?;
        let mut rest = Vec::new();
        while let Some(operator) = operators.iter().find(|it| self.take_symbol(it.symbol())) {
            rest.push((*operator, self.value(part)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expression::Arithmetic { first: Box::new(as_value(first, column)?), rest })
    }

    fn signed(&mut self) -> Reading {
        if self.take_symbol("+") {
            return self.nested(|parser| parser.value(Self::signed));
        }
        if !self.take_symbol("-") {
            return self.primary();
        }
        if let TokenKind::Integer(size) = self.current.kind {
            self.advance();
            let number = 0_i64.checked_sub_unsigned(size);
            let number = number.ok_or("expected a number of 64 bits".to_owned())?;
            return Ok(Expression::Literal(Literal::Integer(number)));
        }
        let operand = self.nested(|parser| parser.value(Self::signed))?;
        // A sign before a literal is part of it, so that every number has one form.
        if let Expression::Literal(Literal::Double(number)) = operand {
            return Ok(Expression::Literal(Literal::Double(-number)));
        }
        if let Expression::Literal(Literal::Integer(number)) = operand
            && let Some(negated) = number.checked_neg()
        {
            return Ok(Expression::Literal(Literal::Integer(negated)));
        }
        Ok(Expression::Negate(Box::new(operand)))
    }

    fn primary(&mut self) -> Reading {
        if self.take_symbol("(") {
            let inner = self.nested(Self::disjunction)?;
            self.expect_symbol(")")?;
            return Ok(inner);
        }
        let literals = [
            ("NULL", Literal::Null),
            ("TRUE", Literal::Bool(true)),
            ("FALSE", Literal::Bool(false)),
        ];
        for (word, literal) in literals {
            if self.take_word(word) {
                return Ok(Expression::Literal(literal));
            }
        }
        if self.take_word("EXISTS") {
            self.expect_symbol("(")?;
            let property = self.property()?;
            self.expect_symbol(")")?;
            return Ok(Expression::Exists(property));
        }
        let literal = match &self.current.kind {
            TokenKind::Text(text) => Literal::Text(text.clone()),
            TokenKind::Double(number) => Literal::Double(*number),
            TokenKind::Integer(size) => {
                let too_large =
                    |_| format!("the number at column {} is too large", self.current.column);
                Literal::Integer(i64::try_from(*size).map_err(too_large)?)
            }
            TokenKind::Word(_) | TokenKind::Name(_) => return self.property_or_function(),
            TokenKind::Symbol(_) | TokenKind::End => return Err(self.unexpected("a value")),
        };
        self.advance();
        Ok(Expression::Literal(literal))
    }

    fn property_or_function(&mut self) -> Reading {
        let TokenKind::Word(word) = &self.current.kind else {
            return self.property().map(Expression::Property);
        };
        let next = self.rest.as_slice().first().map(|token| &token.kind);
        if next != Some(&TokenKind::Symbol("(")) || is_reserved(word) {
            return self.property().map(Expression::Property);
        }
        if !["p", "property"].iter().any(|it| it.eq_ignore_ascii_case(word)) {
            return Err(self.unexpected("one of the functions p and property"));
        }
        self.advance();
        self.expect_symbol("(")?;
        let name = self.nested(|parser| parser.value(Self::sum))?;
        self.expect_symbol(")")?;
        Ok(Expression::Lookup(Box::new(name)))
    }

    fn property(&mut self) -> Reading<Property> {
        let column = self.current.column;
        let may_be_scope = matches!(self.current.kind, TokenKind::Word(_));
        let name = self.name()?;
        if !may_be_scope || !self.take_symbol(".") {
            return Ok(Property::User(name));
        }
        if name.eq_ignore_ascii_case("user") {
            return self.name().map(Property::User);
        }
        if !name.eq_ignore_ascii_case("sys") {
            return Err(format!("expected sys or user at column {column}, found {name:?}"));
        }
        let column = self.current.column;
        let name = self.name()?;
        SystemProperty::named(&name).map(Property::System).ok_or_else(|| {
            format!("expected a property of the system at column {column}, found {name:?}")
        })
    }

    fn name(&mut self) -> Reading<String> {
        let name = match &self.current.kind {
            TokenKind::Word(word) if is_reserved(word) => {
                let what = format!("a property (write [{word}] for the one with this name)");
                return Err(self.unexpected(&what));
            }
            TokenKind::Word(name) | TokenKind::Name(name) => name.clone(),
            TokenKind::Text(_)
            | TokenKind::Integer(_)
            | TokenKind::Double(_)
            | TokenKind::Symbol(_)
            | TokenKind::End => return Err(self.unexpected("a property")),
        };
        self.advance();
        Ok(name)
    }
}

/// What the levels have in common.
impl Parser {
    fn condition(&mut self, part: impl FnOnce(&mut Self) -> Reading) -> Reading {
        let column = self.current.column;
        as_condition(part(self)?, column)
    }

    fn value(&mut self, part: impl FnOnce(&mut Self) -> Reading) -> Reading {
        let column = self.current.column;
        as_value(part(self)?, column)
    }

    fn nested(&mut self, part: impl FnOnce(&mut Self) -> Reading) -> Reading {
        if self.depth == SqlFilter::DEPTH_MAX {
            let (most, column) = (SqlFilter::DEPTH_MAX, self.current.column);
            return Err(format!("it is nested more than {most} deep at column {column}"));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    fn advance(&mut self) {
        if let Some(next) = self.rest.next() {
            self.current = next;
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.current.kind, TokenKind::Word(it) if it.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let taken = self.is_word(word);
        if taken {
            self.advance();
        }
        taken
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let taken = matches!(&self.current.kind, TokenKind::Symbol(it) if *it == symbol);
        if taken {
            self.advance();
        }
        taken
    }

    fn expect_symbol(&mut self, symbol: &str) -> Reading<()> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("{symbol:?}"))) }
    }

    fn unexpected(&self, expected: &str) -> String {
        let Token { kind, column } = &self.current;
        format!("expected {expected} at column {column}, found {kind}")
    }
}

fn as_condition(expression: Expression, column: usize) -> Reading {
    if expression.is_value() {
        return Err(format!("expected a condition at column {column}, found a value"));
    }
    Ok(expression)
}

fn as_value(expression: Expression, column: usize) -> Reading {
    if expression.is_condition() {
        return Err(format!("expected a value at column {column}, found a condition"));
    }
    Ok(expression)
}

fn literal_text(expression: &Expression) -> Option<&str> {
    if let Expression::Literal(Literal::Text(text)) = expression { Some(text) } else { None }
}
