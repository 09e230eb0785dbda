//! A query as a tree.

pub(crate) mod walk;

use std::sync::Arc;

use crate::error::Position;
use crate::value::Value;

/// `SELECT … FROM … WHERE … GROUP BY … ORDER BY … OFFSET … LIMIT …`.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) position: Position,
    pub(crate) is_distinct: bool,
    pub(crate) top: Option<Count>,
    pub(crate) projection: Projection,
    /// The names of the properties of a list; filled when names are resolved.
    pub(crate) names: Vec<Arc<str>>,
    /// The first source and those joined to it; empty without FROM.
    pub(crate) sources: Vec<Source>,
    pub(crate) filter: Option<Expression>,
    pub(crate) group_by: Vec<Expression>,
    pub(crate) order_by: Vec<OrderItem>,
    pub(crate) window: Option<Window>,
    /// The aggregates of the projection, in the order of their numbers; filled when names are
    /// resolved. Shared with it: copies of what contains others would double with every level.
    pub(crate) aggregates: Vec<Arc<Aggregate>>,
    /// Whether SELECT or ORDER BY looks at the first row of a group, in a query of its own, besides
    /// what is grouped by; known when names are resolved.
    pub(crate) looks_at_rows: bool,
    /// Whether RAND stands anywhere in it.
    pub(crate) is_random: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Projection {
    /// `*`: the only source.
    Star,
    /// `VALUE expression`: rows are the values themselves.
    Value(Expression),
    /// Rows are objects.
    List(Vec<ListItem>),
}

#[derive(Clone, Debug)]
pub(crate) struct ListItem {
    pub(crate) expression: Expression,
    pub(crate) alias: Option<Arc<str>>,
}

/// Most rows that TOP, OFFSET or LIMIT can ask for, as in Azure Cosmos DB.
pub(crate) const ROWS_MAX: u64 = 4_294_967_295;
pub(crate) const TOO_MANY_ROWS: &str = "a number of rows is at most 4294967295; it is more";

/// How many rows: written out, or a parameter.
#[derive(Clone, Debug)]
pub(crate) enum Count {
    /// At most [`ROWS_MAX`].
    Literal(u64),
    Parameter(Arc<str>, Position),
}

/// `OFFSET … LIMIT …`.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) offset: Count,
    pub(crate) limit: Count,
}

#[derive(Clone, Debug)]
pub(crate) struct OrderItem {
    pub(crate) expression: Expression,
    pub(crate) is_descending: bool,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) position: Position,
    pub(crate) alias: Arc<str>,
    /// Whether the alias was written, and not taken from the collection.
    pub(crate) is_alias_written: bool,
    /// Whether the elements of an array are the rows (`alias IN collection`); see
    /// [`Source::elements`].
    pub(crate) is_iterated: bool,
    pub(crate) collection: Collection,
}

#[derive(Clone, Debug)]
pub(crate) enum Collection {
    /// The items of the container, or what lies at a path in each.
    Root { name: Arc<str>, steps: Vec<Step> },
    /// A value that depends on the sources before.
    Expression(Expression),
    /// The rows of another query.
    Select(Box<Select>),
}

#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Literal(Value),
    Parameter(Arc<str>, Position),
    /// A name of a source. `slot` is its place among those in scope, once names are resolved.
    Name {
        name: Arc<str>,
        slot: usize,
        position: Position,
    },
    /// Properties and elements within a value, outermost first.
    Path {
        base: Box<Expression>,
        steps: Vec<Step>,
    },
    Not(Box<Expression>),
    /// `-` or `+` or `~`.
    Unary(UnaryOperator, Box<Expression>),
    /// Operators of one strength from left to right; a list, so that thousands of them do not nest.
    Chain {
        first: Box<Expression>,
        rest: Vec<(BinaryOperator, Expression)>,
    },
    /// Two or more operands.
    And(Vec<Expression>),
    /// Two or more operands.
    Or(Vec<Expression>),
    Between {
        value: Box<Expression>,
        low: Box<Expression>,
        high: Box<Expression>,
        is_not: bool,
    },
    In {
        value: Box<Expression>,
        list: Vec<Expression>,
        is_not: bool,
    },
    Like {
        value: Box<Expression>,
        pattern: Box<Expression>,
        escape: Option<Box<Expression>>,
        is_not: bool,
    },
    Conditional(Box<Expression>, Box<Expression>, Box<Expression>),
    Array(Vec<Expression>),
    Object(Vec<(Arc<str>, Expression)>),
    Call {
        function: &'static crate::functions::Function,
        arguments: Vec<Expression>,
    },
    /// The value with this number in the aggregates of the innermost query.
    Aggregate {
        aggregate: Arc<Aggregate>,
        number: usize,
    },
    /// What stands in GROUP BY, too: the value with this number among those of the group, which
    /// come behind the aggregates.
    Grouped {
        expression: Box<Expression>,
        number: usize,
    },
    /// A query whose only row is the value.
    Scalar(Box<Select>),
    /// `ARRAY(query)`: all rows.
    Gathered(Box<Select>),
    /// `EXISTS(query)`: whether there are rows.
    Exists(Box<Select>),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Property(Arc<str>),
    /// `[expression]`: a number for an array, a string for an object.
    Index(Box<Expression>),
}

#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) kind: AggregateKind,
    pub(crate) argument: Expression,
    pub(crate) position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Average,
    Count,
    CountIf,
    MakeList,
    MakeSet,
    Max,
    Min,
    Sum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryOperator {
    Minus,
    Plus,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Coalesce,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Concatenate,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl AggregateKind {
    /// The function of this name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        const NAMES: [(&str, AggregateKind); 8] = [
            ("AVG", AggregateKind::Average),
            ("COUNT", AggregateKind::Count),
            ("COUNTIF", AggregateKind::CountIf),
            ("MAKELIST", AggregateKind::MakeList),
            ("MAKESET", AggregateKind::MakeSet),
            ("MAX", AggregateKind::Max),
            ("MIN", AggregateKind::Min),
            ("SUM", AggregateKind::Sum),
        ];
        NAMES.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }

    /// How it is called in a query.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Average => "AVG",
            Self::Count => "COUNT",
            Self::CountIf => "COUNTIF",
            Self::MakeList => "MAKELIST",
            Self::MakeSet => "MAKESET",
            Self::Max => "MAX",
            Self::Min => "MIN",
            Self::Sum => "SUM",
        }
    }

    /// How plans call it.
    pub(crate) fn plan_name(self) -> &'static str {
        match self {
            Self::Average => "Average",
            // Not all SDKs know that one has a condition, and none needs to.
            Self::Count | Self::CountIf => "Count",
            Self::MakeList => "MakeList",
            Self::MakeSet => "MakeSet",
            Self::Max => "Max",
            Self::Min => "Min",
            Self::Sum => "Sum",
        }
    }

    /// Whether its value has values of many rows.
    pub(crate) fn is_collection(self) -> bool {
        matches!(self, Self::MakeList | Self::MakeSet)
    }
}

impl BinaryOperator {
    /// How it is written.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Coalesce => "??",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Concatenate => "||",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::BitAnd => "&",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::ShiftRightUnsigned => ">>>",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }

    /// How tightly it binds; larger binds tighter. AND is 3, OR is 2, `? :` is 1.
    pub(crate) fn strength(self) -> u8 {
        match self {
            Self::Coalesce => 4,
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual => 5,
            Self::Concatenate => 6,
            Self::BitOr => 7,
            Self::BitXor => 8,
            Self::BitAnd => 9,
            Self::ShiftLeft | Self::ShiftRight | Self::ShiftRightUnsigned => 10,
            Self::Add | Self::Subtract => 11,
            Self::Multiply | Self::Divide | Self::Remainder => 12,
        }
    }
}

impl Select {
    /// Whether one row can depend on several rows of the sources.
    pub(crate) fn is_blocking(&self) -> bool {
        self.is_distinct
            || self.is_grouped()
            || !self.order_by.is_empty()
            || self.sources.first().is_some_and(|first| match &first.collection {
                Collection::Select(inner) => inner.is_blocking() || inner.is_limited(),
                Collection::Root { .. } | Collection::Expression(_) => false,
            })
    }

    /// Whether rows are groups of rows.
    pub(crate) fn is_grouped(&self) -> bool {
        !self.group_by.is_empty() || !self.aggregates.is_empty()
    }

    /// Whether an aggregate has values of many rows.
    pub(crate) fn has_collections(&self) -> bool {
        self.aggregates.iter().any(|it| it.kind.is_collection())
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.top.is_some() || self.window.is_some()
    }
}

impl Step {
    /// The name of a property, however it is written.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression is a constant name")]
    pub(crate) fn constant(&self) -> Option<&Arc<str>> {
        match self {
            Self::Property(name) => Some(name),
            Self::Index(index) => match &**index {
                Expression::Literal(Value::String(name)) => Some(name),
                _ => None,
            },
        }
    }
}

impl Source {
    /// Whether its rows are the items of the container.
    pub(crate) fn is_item(&self) -> bool {
        let is_whole =
            matches!(&self.collection, Collection::Root { steps, .. } if steps.is_empty());
        is_whole && !self.is_iterated
    }

    /// The rows that one value of the collection gives.
    ///
    /// After IN the elements of an array are the rows. What is no array gives none, unless it is a
    /// row of a query: Microsoft's pages write both `JOIN m IN (SELECT VALUE [1, 2])`, whose one
    /// row is an array to go through, and `JOIN t IN (SELECT VALUE t FROM t IN c.tags)`, whose
    /// rows are to be taken as they are.
    pub(crate) fn elements<'v>(&self, value: &'v Value) -> &'v [Value] {
        let itself = if value.is_undefined() { &[] } else { std::slice::from_ref(value) };
        match (value.as_array(), &self.collection) {
            (Some(items), _) if self.is_iterated => items,
            (None, Collection::Root { .. } | Collection::Expression(_)) if self.is_iterated => &[],
            (Some(_) | None, _) => itself,
        }
    }
}

impl ListItem {
    /// The name of the property: the alias, or the last name of the path.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression has a name")]
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        if let Some(alias) = &self.alias {
            return Some(alias.clone());
        }
        match self.expression.written() {
            Expression::Name { name, .. } => Some(name.clone()),
            Expression::Path { steps, .. } => steps.last()?.constant().cloned(),
            _ => None,
        }
    }
}

/// The names of the properties of a list: `$1`, `$2` and so on where there is none.
pub(crate) fn names(list: &[ListItem]) -> Vec<Arc<str>> {
    let mut unnamed = 0;
    let name = |item: &ListItem| {
        item.name().unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}").into()
        })
    };
    list.iter().map(name).collect()
}

impl Expression {
    /// The expression as it was written.
    pub(crate) fn written(&self) -> &Self {
        if let Self::Grouped { expression, .. } = self { expression } else { self }
    }

    pub(crate) fn as_aggregate(&self) -> Option<&Aggregate> {
        if let Self::Aggregate { aggregate, .. } = self { Some(aggregate) } else { None }
    }
}
