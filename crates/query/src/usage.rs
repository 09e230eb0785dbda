//! Which properties of an item a query looks at, so that the others need not be parsed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::{Collection, Expression, Projection, Select, Step};

/// What a query needs of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// All of it.
    Whole,
    /// These properties; besides, it may be copied as text.
    Properties(BTreeSet<Arc<str>>),
}

/// What the query needs of an item.
pub(crate) fn usage(select: &Select) -> Usage {
    let Some(first) = select.sources.first() else { return Usage::Whole };
    let Collection::Root { steps, .. } = &first.collection else { return Usage::Whole };
    // Rows with equal keys are sorted by it.
    let mut finder = Finder { properties: BTreeSet::from(["_rid".into()]), is_whole: false };
    match steps.first() {
        // The alias stands for what lies at the path, not for the item.
        Some(Step::Property(name)) => {
            finder.properties.insert(name.clone());
            return finder.usage();
        }
        Some(Step::Index(_)) => return Usage::Whole,
        None if first.is_iterated => return Usage::Whole,
        None => (),
    }
    // What tells rows apart looks at all of them.
    if select.is_distinct {
        return Usage::Whole;
    }
    for source in &select.sources[1..] {
        finder.collection(&source.collection);
    }
    finder.clauses(select);
    match &select.projection {
        Projection::Star => (),
        Projection::Value(expression) => finder.output(expression),
        Projection::List(list) => list.iter().for_each(|item| finder.output(&item.expression)),
    }
    finder.usage()
}

struct Finder {
    properties: BTreeSet<Arc<str>>,
    is_whole: bool,
}

impl Finder {
    fn usage(self) -> Usage {
        if self.is_whole { Usage::Whole } else { Usage::Properties(self.properties) }
    }

    /// What is written out and not looked at.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other expression looks at its parts")]
    fn output(&mut self, expression: &Expression) {
        match expression {
            Expression::Name { slot: 0, .. } => (),
            Expression::Object(properties) => {
                properties.iter().for_each(|(_, value)| self.output(value));
            }
            other => self.expression(other),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the others have parts and nothing else")]
    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Name { slot, .. } => self.is_whole |= *slot == 0,
            Expression::Path { base, steps } => self.path(base, steps),
            Expression::Scalar(select)
            | Expression::Gathered(select)
            | Expression::Exists(select) => self.select(select),
            other => other.each_child(&mut |child| self.expression(child)),
        }
    }

    fn path(&mut self, base: &Expression, steps: &[Step]) {
        match (base, steps.first()) {
            (Expression::Name { slot: 0, .. }, Some(Step::Property(name))) => {
                self.properties.insert(name.clone());
            }
            _ => self.expression(base),
        }
        for step in steps {
            if let Step::Index(index) = step {
                self.expression(index);
            }
        }
    }

    /// A query within the item. What it returns may be looked at.
    fn select(&mut self, select: &Select) {
        for source in &select.sources {
            self.collection(&source.collection);
        }
        self.clauses(select);
        match &select.projection {
            Projection::Star => (),
            Projection::Value(expression) => self.expression(expression),
            Projection::List(list) => {
                list.iter().for_each(|item| self.expression(&item.expression));
            }
        }
    }

    fn collection(&mut self, collection: &Collection) {
        match collection {
            Collection::Root { .. } => self.is_whole = true,
            Collection::Expression(expression) => self.expression(expression),
            Collection::Select(select) => self.select(select),
        }
    }

    fn clauses(&mut self, select: &Select) {
        select.filter.iter().for_each(|it| self.expression(it));
        select.group_by.iter().for_each(|it| self.expression(it));
        select.order_by.iter().for_each(|it| self.expression(&it.expression));
        select.aggregates.iter().for_each(|it| self.expression(&it.argument));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parser, resolve};

    /// The properties but `_rid`, or `*` for all.
    #[track_caller]
    fn check(query: &str, expected: &str) {
        let mut select = parser::query(query).unwrap();
        resolve::query(&mut select).unwrap();
        let found = match usage(&select) {
            Usage::Whole => "*".to_owned(),
            Usage::Properties(names) => {
                let names: Vec<&str> =
                    names.iter().map(|it| &**it).filter(|it| *it != "_rid").collect();
                names.join(" ")
            }
        };
        assert_eq!(found, expected, "{query}");
    }

    #[test]
    fn what_is_named_is_needed() {
        check("SELECT * FROM c", "");
        check("SELECT c FROM c WHERE c.a.b = 1 AND c['d'] IN (c.e)", "a d e");
        check("SELECT VALUE {x: c, y: c.z} FROM c ORDER BY c.a", "a z");
        check("SELECT COUNT(1), SUM(c.n) FROM c GROUP BY c.g", "g n");
        check("SELECT VALUE t FROM c JOIN t IN c.tags WHERE t.x = c.y[c.i]", "i tags y");
        check("SELECT VALUE t.x FROM t IN c.tags.inner", "tags");
        check("SELECT VALUE EXISTS(SELECT 1 FROM t IN c.l WHERE t = c.m) FROM c", "l m");
        check("SELECT VALUE a.b FROM c.d AS a", "d");
    }

    #[test]
    fn an_item_that_is_looked_into_is_needed_whole() {
        check("SELECT DISTINCT * FROM c", "*");
        check("SELECT VALUE ObjectToArray(c) FROM c", "*");
        check("SELECT * FROM c WHERE c = {}", "*");
        check("SELECT VALUE c[@name] FROM c", "*");
        check("SELECT * FROM c ORDER BY c", "*");
        check("SELECT VALUE c.a FROM (SELECT VALUE c FROM c) c", "*");
        check("SELECT VALUE ARRAY(SELECT VALUE c FROM t IN c.l) FROM c", "*");
        check("SELECT VALUE [c] FROM c", "*");
        check("SELECT VALUE x.b FROM c JOIN x IN [c]", "*");
    }
}
