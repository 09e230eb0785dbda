//! Which properties of an item a query looks at, so that the others need not be parsed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::{Collection, Expression, Projection, Select, Step};

/// What a query needs of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Nothing but that it is there, as for a count.
    Nothing,
    /// All of it.
    Whole,
    /// These properties; besides, it may be copied as text.
    Properties(BTreeSet<Arc<str>>),
}

/// What the query needs of an item.
pub(crate) fn usage(select: &Select) -> Usage {
    let Some(first) = select.sources.first() else { return Usage::Whole };
    let Collection::Root { steps, .. } = &first.collection else { return Usage::Whole };
    let mut finder = Finder { properties: BTreeSet::new(), is_whole: false, is_copied: false };
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
        Projection::Star => finder.is_copied = true,
        Projection::Value(expression) => finder.output(expression),
        Projection::List(list) => list.iter().for_each(|item| finder.output(&item.expression)),
    }
    let is_looked_into = finder.is_whole || finder.is_copied || !finder.properties.is_empty();
    if !is_looked_into && select.order_by.is_empty() {
        return Usage::Nothing;
    }
    finder.usage()
}

struct Finder {
    properties: BTreeSet<Arc<str>>,
    is_whole: bool,
    /// Whether it is written out.
    is_copied: bool,
}

impl Finder {
    fn usage(mut self) -> Usage {
        if self.is_whole {
            return Usage::Whole;
        }
        // Rows with equal keys are sorted by it.
        self.properties.insert("_rid".into());
        Usage::Properties(self.properties)
    }

    /// What is written out and not looked at.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other expression looks at its parts")]
    fn output(&mut self, expression: &Expression) {
        match expression {
            Expression::Name { slot: 0, .. } => self.is_copied = true,
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
            // Its query has it among its clauses.
            Expression::Aggregate { .. } => (),
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
    use crate::{ComputedProperties, parser, resolve};

    /// The properties but `_rid`, or `*` for all, or `-` for none and no copy either.
    #[track_caller]
    fn check(query: &str, expected: &str) {
        let mut select = parser::query(query).unwrap();
        resolve::query(&mut select, &ComputedProperties::default()).unwrap();
        let found = match usage(&select) {
            Usage::Nothing => "-".to_owned(),
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
    fn a_count_needs_nothing_of_an_item() {
        check("SELECT VALUE COUNT(1) FROM c", "-");
        check("SELECT COUNT(1) AS n, 'x' AS x FROM c", "-");
        check("SELECT VALUE COUNT(c) FROM c", "*");
        check("SELECT VALUE 1 FROM c ORDER BY 1", "");
        check("SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c.a)", "a");
        check("SELECT VALUE COUNT(1) FROM c WHERE c._rid = ''", "");
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
