//! Expressions, by strength of their operators.

use std::sync::Arc;

use crate::ast::{Aggregate, AggregateKind, BinaryOperator, Expression, Step, UnaryOperator};
use crate::error::{Error, Result};
use crate::functions;
use crate::lexer::Token;
use crate::parser::{FULL_TEXT, Parser};
use crate::value::Value;

/// Strength of `=` and its like, of IN, BETWEEN and LIKE.
const COMPARISON: u8 = 5;
/// Strength of `??`, the weakest operator with two operands.
const WEAKEST: u8 = 4;
/// Most of IN, BETWEEN and LIKE after each other, since each contains the one before.
const SETS_MAX: u32 = 8;

impl Parser<'_> {
    /// An expression of any kind.
    pub(crate) fn expression(&mut self) -> Result<Expression> {
        self.nested(|parser| {
            let first = parser.conjunction()?;
            parser.alternatives_after(first)
        })
    }

    /// The rest of an expression that begins with what stood in parentheses.
    fn expression_after(&mut self, parenthesis: Expression) -> Result<Expression> {
        let operand = self.steps_after(parenthesis)?;
        let operand = self.binary_after(operand, WEAKEST)?;
        let first = self.conjunction_after(operand)?;
        self.alternatives_after(first)
    }

    /// One or more expressions with commas between them.
    pub(crate) fn expressions(&mut self) -> Result<Vec<Expression>> {
        let mut list = vec![self.expression()?];
        while self.eat_symbol(",") {
            list.push(self.expression()?);
        }
        Ok(list)
    }

    /// OR and what is weaker.
    fn alternatives_after(&mut self, first: Expression) -> Result<Expression> {
        if !self.is_keyword("OR") {
            return self.conditional_after(first);
        }
        let mut operands = if let Expression::Or(operands) = first {
            operands
        } else {
            self.lift()?;
            vec![first]
        };
        while self.is_keyword("OR") {
            self.advance();
            let operand = self.nested(Self::conjunction)?;
            if let Expression::Or(several) = operand {
                operands.extend(several);
            } else {
                operands.push(operand);
            }
        }
        self.conditional_after(Expression::Or(operands))
    }

    fn conditional_after(&mut self, condition: Expression) -> Result<Expression> {
        if !self.eat_symbol("?") {
            return Ok(condition);
        }
        self.lift()?;
        let positive = self.expression()?;
        self.want_symbol(":")?;
        let negative = self.expression()?;
        Ok(Expression::Conditional(condition.into(), positive.into(), negative.into()))
    }

    fn conjunction(&mut self) -> Result<Expression> {
        let first = self.negation()?;
        self.conjunction_after(first)
    }

    fn conjunction_after(&mut self, first: Expression) -> Result<Expression> {
        if !self.is_keyword("AND") {
            return Ok(first);
        }
        let mut operands = if let Expression::And(operands) = first {
            operands
        } else {
            self.lift()?;
            vec![first]
        };
        while self.is_keyword("AND") {
            self.advance();
            let operand = self.nested(Self::negation)?;
            if let Expression::And(several) = operand {
                operands.extend(several);
            } else {
                operands.push(operand);
            }
        }
        Ok(Expression::And(operands))
    }

    /// NOT before parentheses is an operator of one operand like minus, as in the grammar of the
    /// SDK for .NET: `NOT (a) = b` compares. Before anything else it is about all up to AND and OR,
    /// which is what `NOT a = b` is meant for.
    fn negation(&mut self) -> Result<Expression> {
        let is_operator = matches!(self.following(), Token::Symbol("("));
        if !self.is_keyword("NOT") || is_operator {
            return self.binary(WEAKEST);
        }
        self.advance();
        let operand = self.nested(Self::negation)?;
        Ok(Expression::Not(operand.into()))
    }

    /// Operators of at least this strength.
    fn binary(&mut self, strength_min: u8) -> Result<Expression> {
        let first = self.operand()?;
        self.binary_after(first, strength_min)
    }

    fn binary_after(&mut self, first: Expression, strength_min: u8) -> Result<Expression> {
        let mut left = first;
        let mut sets = 0;
        loop {
            if strength_min <= COMPARISON
                && let Some(is_not) = self.set_operator()
            {
                sets += 1;
                if SETS_MAX < sets {
                    let reason =
                        format!("it has more than {SETS_MAX} of IN, BETWEEN and LIKE in a row");
                    return Err(Error::syntax(self.position(), reason));
                }
                self.lift()?;
                left = self.after_set_operator(left, is_not)?;
                continue;
            }
            let Some(operator) = self.operator().filter(|it| strength_min <= it.strength()) else {
                return Ok(left);
            };
            self.advance();
            if !continues(&left, operator) {
                self.lift()?;
            }
            let right = self.nested(|parser| parser.binary(operator.strength() + 1))?;
            left = chained(left, operator, right);
        }
    }

    fn operator(&self) -> Option<BinaryOperator> {
        let Token::Symbol(symbol) = self.token() else { return None };
        Some(match *symbol {
            "??" => BinaryOperator::Coalesce,
            "=" => BinaryOperator::Equal,
            "!=" | "<>" => BinaryOperator::NotEqual,
            "<" => BinaryOperator::Less,
            "<=" => BinaryOperator::LessOrEqual,
            ">" => BinaryOperator::Greater,
            ">=" => BinaryOperator::GreaterOrEqual,
            "||" => BinaryOperator::Concatenate,
            "|" => BinaryOperator::BitOr,
            "^" => BinaryOperator::BitXor,
            "&" => BinaryOperator::BitAnd,
            "<<" => BinaryOperator::ShiftLeft,
            ">>" => BinaryOperator::ShiftRight,
            ">>>" => BinaryOperator::ShiftRightUnsigned,
            "+" => BinaryOperator::Add,
            "-" => BinaryOperator::Subtract,
            "*" => BinaryOperator::Multiply,
            "/" => BinaryOperator::Divide,
            "%" => BinaryOperator::Remainder,
            _ => return None,
        })
    }

    /// Whether IN, BETWEEN or LIKE is next, and whether NOT stands before it.
    fn set_operator(&self) -> Option<bool> {
        let is_set = |token: &Token| {
            let Token::Word(word) = token else { return false };
            ["IN", "BETWEEN", "LIKE"].iter().any(|name| word.eq_ignore_ascii_case(name))
        };
        if is_set(self.token()) {
            return Some(false);
        }
        (self.is_keyword("NOT") && is_set(self.following())).then_some(true)
    }

    fn after_set_operator(&mut self, value: Expression, is_not: bool) -> Result<Expression> {
        if is_not {
            self.advance();
        }
        let value = Box::new(value);
        if self.eat_keyword("IN") {
            self.want_symbol("(")?;
            let list = self.expressions()?;
            self.want_symbol(")")?;
            return Ok(Expression::In { value, list, is_not });
        }
        if self.eat_keyword("BETWEEN") {
            let low = self.nested(|parser| parser.binary(COMPARISON + 1))?.into();
            self.want_keyword("AND")?;
            let high = self.nested(|parser| parser.binary(COMPARISON + 1))?.into();
            return Ok(Expression::Between { value, low, high, is_not });
        }
        self.want_keyword("LIKE")?;
        let pattern = self.nested(|parser| parser.binary(COMPARISON + 1))?.into();
        let escape = match self.is_keyword("ESCAPE") {
            true => {
                self.advance();
                Some(self.nested(|parser| parser.binary(COMPARISON + 1))?.into())
            }
            false => None,
        };
        Ok(Expression::Like { value, pattern, escape, is_not })
    }

    /// An expression without operators but for those before it, and what lies within it.
    pub(crate) fn operand(&mut self) -> Result<Expression> {
        if self.is_keyword("NOT") {
            self.advance();
            let operand = self.nested(Self::operand)?;
            return Ok(Expression::Not(operand.into()));
        }
        let operator = match self.token() {
            Token::Symbol("-") => Some(UnaryOperator::Minus),
            Token::Symbol("+") => Some(UnaryOperator::Plus),
            Token::Symbol("~") => Some(UnaryOperator::BitNot),
            Token::Symbol(_)
            | Token::Word(_)
            | Token::Parameter(_)
            | Token::Number(_)
            | Token::String(_)
            | Token::End => None,
        };
        if let Some(operator) = operator {
            self.advance();
            let operand = self.nested(Self::operand)?;
            return Ok(Expression::Unary(operator, operand.into()));
        }
        let base = self.primary()?;
        self.steps_after(base)
    }

    /// The properties and elements that are named after a value.
    fn steps_after(&mut self, base: Expression) -> Result<Expression> {
        let mut steps = Vec::new();
        loop {
            if self.eat_symbol(".") {
                let Token::Word(name) = self.token() else {
                    return Err(self.fault("a property name after \".\""));
                };
                steps.push(Step::Property(name.clone()));
                self.advance();
            } else if self.eat_symbol("[") {
                let index = self.expression()?;
                self.want_symbol("]")?;
                let name = if let Expression::Literal(Value::String(name)) = &index {
                    Some(name.clone())
                } else {
                    None
                };
                steps.push(name.map_or_else(|| Step::Index(index.into()), Step::Property));
            } else if steps.is_empty() {
                return Ok(base);
            } else {
                self.lift()?;
                return Ok(Expression::Path { base: base.into(), steps });
            }
        }
    }

    fn primary(&mut self) -> Result<Expression> {
        let position = self.position();
        match self.token().clone() {
            Token::Number(number) => {
                self.advance();
                Ok(Expression::Literal(Value::Number(number)))
            }
            Token::String(text) => {
                self.advance();
                Ok(Expression::Literal(Value::String(text)))
            }
            Token::Parameter(name) => {
                self.advance();
                Ok(Expression::Parameter(name, position))
            }
            Token::Symbol("(") => self.parenthesis(),
            Token::Symbol("[") => {
                self.advance();
                let items = self.until("]", Self::expression)?;
                Ok(Expression::Array(items))
            }
            Token::Symbol("{") => {
                self.advance();
                let properties = self.until("}", Self::object_property)?;
                Ok(Expression::Object(properties))
            }
            Token::Word(word) => self.word(&word),
            Token::Symbol(_) | Token::End => Err(self.fault("an expression")),
        }
    }

    /// Parentheses that open right after each other are closed in a loop: SDKs put every operator
    /// into its own, so that the last of a thousand alternatives ends the outermost of a thousand.
    fn parenthesis(&mut self) -> Result<Expression> {
        if self.is_select_next() {
            self.advance();
            let select = self.select()?;
            self.want_symbol(")")?;
            return Ok(Expression::Scalar(select.into()));
        }
        let mut open = 0_usize;
        while self.is_symbol("(") && !self.is_select_next() {
            self.advance();
            open += 1;
        }
        let mut inner = self.expression()?;
        self.want_symbol(")")?;
        for _ in 1..open {
            inner = self.expression_after(inner)?;
            self.want_symbol(")")?;
        }
        Ok(inner)
    }

    /// Parts with commas between them, and the symbol that ends them.
    fn until<T>(
        &mut self,
        end: &'static str,
        part: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut parts = Vec::new();
        if self.eat_symbol(end) {
            return Ok(parts);
        }
        loop {
            parts.push(part(self)?);
            if self.eat_symbol(end) {
                return Ok(parts);
            }
            if !self.eat_symbol(",") {
                return Err(self.fault(&format!("\",\" or {end:?}")));
            }
        }
    }

    fn object_property(&mut self) -> Result<(Arc<str>, Expression)> {
        let (Token::String(name) | Token::Word(name)) = self.token().clone() else {
            return Err(self.fault("a property name"));
        };
        self.advance();
        self.want_symbol(":")?;
        Ok((name, self.expression()?))
    }

    fn word(&mut self, word: &Arc<str>) -> Result<Expression> {
        let constant = match word.to_ascii_lowercase().as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            "undefined" => Some(Value::Undefined),
            _ => None,
        };
        if let Some(constant) = constant {
            self.advance();
            return Ok(Expression::Literal(constant));
        }
        let is_call = matches!(self.following(), Token::Symbol("("));
        if is_call && (self.is_keyword("EXISTS") || self.is_keyword("ARRAY")) {
            return self.query_function();
        }
        let position = self.position();
        if self.is_keyword("UDF") && matches!(self.following(), Token::Symbol(".")) {
            return Err(Error::unsupported(position, "user-defined functions are not supported"));
        }
        if is_call {
            return self.call(word);
        }
        let name = self.name().ok_or_else(|| self.fault("an expression"))?;
        Ok(Expression::Name { name, slot: 0, position })
    }

    fn query_function(&mut self) -> Result<Expression> {
        let is_exists = self.is_keyword("EXISTS");
        self.advance();
        self.want_symbol("(")?;
        let select = Box::new(self.select()?);
        self.want_symbol(")")?;
        Ok(if is_exists { Expression::Exists(select) } else { Expression::Gathered(select) })
    }

    fn call(&mut self, name: &str) -> Result<Expression> {
        let position = self.position();
        self.advance();
        self.advance();
        if let Some(kind) = AggregateKind::named(name) {
            let argument = match self.eat_symbol("*") {
                true => Expression::Literal(Value::count(1)),
                false => self.expression()?,
            };
            self.want_symbol(")")?;
            let aggregate = Arc::new(Aggregate { kind, argument, position });
            return Ok(Expression::Aggregate { aggregate, number: 0 });
        }
        let arguments = self.until(")", Self::expression)?;
        let function = functions::named(name).ok_or_else(|| {
            let is_search = name.to_ascii_lowercase().starts_with("fulltext");
            let unknown = format!("there is no function {name:?}");
            Error::unsupported(position, if is_search { FULL_TEXT } else { &unknown })
        })?;
        if !function.takes(arguments.len()) {
            let reason =
                format!("{} takes {}, not {},", function.name, function.arity(), arguments.len());
            return Err(Error::meaningless(position, reason));
        }
        Ok(Expression::Call { function, arguments })
    }
}

/// Whether this is a chain of operators as strong as the next one.
fn continues(left: &Expression, operator: BinaryOperator) -> bool {
    let Expression::Chain { rest, .. } = left else { return false };
    rest.last().is_some_and(|(last, _)| last.strength() == operator.strength())
}

/// Adds an operator to a chain of the same strength, or begins one.
fn chained(left: Expression, operator: BinaryOperator, right: Expression) -> Expression {
    let is_chain = continues(&left, operator);
    let mut left = left;
    if let Expression::Chain { rest, .. } = &mut left
        && is_chain
    {
        rest.push((operator, right));
        return left;
    }
    Expression::Chain { first: left.into(), rest: vec![(operator, right)] }
}
