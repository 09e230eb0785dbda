//! The clauses of a query.

use std::sync::Arc;

use crate::ast::{
    Collection, Count, Expression, ListItem, OrderItem, Projection, ROWS_MAX, Select, Source, Step,
    TOO_MANY_ROWS, Window,
};
use crate::error::{Error, Position, Result};
use crate::lexer::Token;
use crate::parser::{FULL_TEXT, Parser, SELECT_LEVELS};
use crate::value::Value;

impl Parser<'_> {
    /// `SELECT …`, up to whatever cannot belong to it.
    pub(crate) fn select(&mut self) -> Result<Select> {
        self.nested_by(SELECT_LEVELS, |parser| {
            let position = parser.position();
            parser.want_keyword("SELECT")?;
            let mut is_distinct = parser.eat_keyword("DISTINCT");
            let top = match parser.eat_keyword("TOP") {
                true => Some(parser.count("a number of rows or a parameter after TOP")?),
                false => None,
            };
            is_distinct |= parser.eat_keyword("DISTINCT");
            let projection = parser.projection()?;
            let select = parser.after_projection(position, projection)?;
            Ok(Select { is_distinct, top, ..select })
        })
    }

    /// The clauses that follow the projection.
    pub(crate) fn after_projection(
        &mut self,
        position: Position,
        projection: Projection,
    ) -> Result<Select> {
        let sources = if self.eat_keyword("FROM") { self.sources()? } else { Vec::new() };
        let filter = match self.eat_keyword("WHERE") {
            true => Some(self.expression()?),
            false => None,
        };
        let mut group_by = Vec::new();
        if self.eat_keyword("GROUP") {
            self.want_keyword("BY")?;
            group_by = self.expressions()?;
        }
        let mut order_by = Vec::new();
        if self.eat_keyword("ORDER") {
            self.want_keyword("BY")?;
            self.check_rank()?;
            order_by = self.order_items()?;
        }
        let window = match self.eat_keyword("OFFSET") {
            true => {
                let offset = self.count("a number of rows or a parameter after OFFSET")?;
                self.want_keyword("LIMIT")?;
                let limit = self.count("a number of rows or a parameter after LIMIT")?;
                Some(Window { offset, limit })
            }
            false => None,
        };
        Ok(Select {
            position,
            is_distinct: false,
            top: None,
            projection,
            names: Vec::new(),
            sources,
            filter,
            group_by,
            order_by,
            window,
            aggregates: Vec::new(),
            looks_at_rows: false,
            is_random: false,
        })
    }

    fn count(&mut self, expected: &str) -> Result<Count> {
        let count = match self.token() {
            Token::Parameter(name) => Some(Count::Parameter(name.clone(), self.position())),
            Token::Number(number) => {
                let whole = Value::Number(number.clone()).as_integer();
                whole.and_then(|it| u64::try_from(it).ok()).map(Count::Literal)
            }
            Token::Word(_) | Token::String(_) | Token::Symbol(_) | Token::End => None,
        };
        let count = count.ok_or_else(|| self.fault(expected))?;
        if matches!(count, Count::Literal(rows) if ROWS_MAX < rows) {
            return Err(Error::meaningless(self.position(), TOO_MANY_ROWS));
        }
        self.advance();
        Ok(count)
    }

    fn projection(&mut self) -> Result<Projection> {
        if self.eat_symbol("*") {
            return Ok(Projection::Star);
        }
        if self.eat_keyword("VALUE") {
            return Ok(Projection::Value(self.expression()?));
        }
        let mut list = Vec::new();
        loop {
            let expression = self.expression()?;
            let alias = match self.eat_keyword("AS") {
                true => Some(self.alias()?),
                false => self.name(),
            };
            list.push(ListItem { expression, alias });
            if !self.eat_symbol(",") {
                return Ok(Projection::List(list));
            }
        }
    }

    /// The name after AS; any word will do, since nothing else can stand there.
    fn alias(&mut self) -> Result<Arc<str>> {
        let name = match self.token() {
            Token::Word(word) => Some(word.clone()),
            Token::String(text) => Some(text.clone()),
            Token::Parameter(_) | Token::Number(_) | Token::Symbol(_) | Token::End => None,
        };
        let name = name.ok_or_else(|| self.fault("a name after AS"))?;
        self.advance();
        Ok(name)
    }

    fn sources(&mut self) -> Result<Vec<Source>> {
        let mut sources = vec![self.source()?];
        while self.eat_keyword("JOIN") {
            sources.push(self.source()?);
        }
        Ok(sources)
    }

    fn source(&mut self) -> Result<Source> {
        let position = self.position();
        let is_in = matches!(self.following(), Token::Word(it) if it.eq_ignore_ascii_case("IN"));
        if is_in {
            let Some(alias) = self.name() else { return Err(self.fault("a name")) };
            self.want_keyword("IN")?;
            let collection = self.collection()?;
            return Ok(Source {
                position,
                alias,
                is_alias_written: true,
                is_iterated: true,
                collection,
            });
        }
        let collection = self.collection()?;
        let written = match self.eat_keyword("AS") {
            true => Some(self.alias()?),
            false => self.name(),
        };
        let is_alias_written = written.is_some();
        // A query or a constant without a name can still be counted.
        let alias = written.or_else(|| last_name(&collection)).unwrap_or_else(|| "".into());
        Ok(Source { position, alias, is_alias_written, is_iterated: false, collection })
    }

    fn collection(&mut self) -> Result<Collection> {
        if self.is_symbol("(") && self.is_select_next() {
            self.advance();
            let select = self.select()?;
            self.want_symbol(")")?;
            return Ok(Collection::Select(Box::new(select)));
        }
        Ok(Collection::Expression(self.nested(Self::operand)?))
    }

    pub(crate) fn is_select_next(&self) -> bool {
        matches!(self.following(), Token::Word(it) if it.eq_ignore_ascii_case("SELECT"))
    }

    /// ORDER BY RANK, which only full-text and vector search have; a source may have that name.
    fn check_rank(&self) -> Result<()> {
        let behind = self.tokens.get(self.at + 2).map(|it| &it.token);
        let is_call =
            matches!((self.following(), behind), (Token::Word(_), Some(Token::Symbol("("))));
        if self.is_keyword("RANK") && is_call {
            return Err(Error::unsupported(self.position(), FULL_TEXT));
        }
        Ok(())
    }

    fn order_items(&mut self) -> Result<Vec<OrderItem>> {
        let mut items = Vec::new();
        loop {
            let expression = self.expression()?;
            let is_descending = self.eat_keyword("DESC");
            if !is_descending {
                self.eat_keyword("ASC");
            }
            items.push(OrderItem { expression, is_descending });
            if !self.eat_symbol(",") {
                return Ok(items);
            }
        }
    }
}

fn last_name(collection: &Collection) -> Option<Arc<str>> {
    match collection {
        Collection::Expression(Expression::Name { name, .. }) => Some(name.clone()),
        Collection::Expression(Expression::Path { steps, .. }) => match steps.last()? {
            Step::Property(name) => Some(name.clone()),
            Step::Index(_) => None,
        },
        Collection::Expression(_) | Collection::Root { .. } | Collection::Select(_) => None,
    }
}
