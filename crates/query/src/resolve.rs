//! Gives every name its place, every aggregate its number, and refuses what means nothing.

mod group;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::walk::Part;
use crate::ast::{Aggregate, Collection, Count, Expression, Projection, Select, Step, names};
use crate::error::{Error, ErrorKind, Position, Result};
use crate::value::Value;
use crate::{ComputedProperties, QUERY_BYTES_MAX};

/// Most sources of one FROM; each JOIN multiplies the rows.
const SOURCES_MAX: usize = 16;

/// The parameters of a query, each at the first place where it is named.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) all: BTreeMap<Arc<str>, Position>,
    /// Those that say how many rows.
    pub(crate) rows: BTreeMap<Arc<str>, Position>,
}

/// Resolves a whole query; returns its parameters.
pub(crate) fn query(select: &mut Select, computed: &ComputedProperties) -> Result<Named> {
    let mut resolver = Resolver {
        names: Vec::new(),
        items: Vec::new(),
        computed,
        computed_bytes: 0,
        aggregates: None,
        named: Named::default(),
    };
    resolver.select(select)?;
    Ok(resolver.named)
}

struct Resolver<'a> {
    /// The sources in scope, outermost first; the place is the slot.
    names: Vec<Arc<str>>,
    /// Whether each of them is an item of the container.
    items: Vec<bool>,
    computed: &'a ComputedProperties,
    /// Of the text of computed properties that were written out so far.
    computed_bytes: usize,
    /// Where aggregates go, if they may stand here.
    aggregates: Option<Vec<Arc<Aggregate>>>,
    named: Named,
}

impl Resolver<'_> {
    fn select(&mut self, select: &mut Select) -> Result<()> {
        let outer_names = self.names.len();
        let outer_aggregates = self.aggregates.take();
        if SOURCES_MAX < select.sources.len() {
            let reason = format!("FROM has more than {SOURCES_MAX} sources");
            return Err(Error::meaningless(select.position, reason));
        }
        let window = select.window.iter().flat_map(|it| [&it.offset, &it.limit]);
        for count in select.top.iter().chain(window) {
            if let Count::Parameter(name, position) = count {
                self.named.all.entry(name.clone()).or_insert(*position);
                self.named.rows.entry(name.clone()).or_insert(*position);
            }
        }
        for source in &mut select.sources {
            let written_out = self.computed_bytes;
            self.collection(&mut source.collection)?;
            // A computed property that was written out no longer says how the source is called.
            source.is_alias_written |= written_out != self.computed_bytes;
            if self.names[outer_names..].contains(&source.alias) && !source.alias.is_empty() {
                let reason = format!("the name {:?} is taken;", source.alias);
                return Err(Error::meaningless(source.position, reason));
            }
            self.names.push(source.alias.clone());
            self.items.push(source.is_item());
        }
        if let Some(filter) = &mut select.filter {
            self.expression(filter)?;
        }
        for expression in &mut select.group_by {
            self.expression(expression)?;
        }
        self.aggregates = Some(Vec::new());
        match &mut select.projection {
            Projection::Star => (),
            Projection::Value(expression) => self.expression(expression)?,
            Projection::List(list) => {
                select.names = names(list);
                for (item, name) in list.iter_mut().zip(&select.names) {
                    let was_named = item.name().is_some();
                    self.expression(&mut item.expression)?;
                    // A computed property is called as before it was written out.
                    if was_named && item.name().as_ref() != Some(name) {
                        item.alias = Some(name.clone());
                    }
                }
            }
        }
        select.aggregates = self.aggregates.take().unwrap_or_default();
        let of_projection = select.aggregates.len();
        // Groups may be sorted by aggregates, rows may not.
        self.aggregates = select.is_grouped().then(|| std::mem::take(&mut select.aggregates));
        for item in &mut select.order_by {
            self.expression(&mut item.expression)?;
        }
        select.aggregates = self.aggregates.take().unwrap_or_default();
        // The one row of aggregates over everything is in order anyway.
        if select.is_grouped() && select.group_by.is_empty() {
            select.order_by.clear();
            select.aggregates.truncate(of_projection);
        }
        self.names.truncate(outer_names);
        self.items.truncate(outer_names);
        self.aggregates = outer_aggregates;
        check(select)?;
        group::resolve(select, outer_names)
    }

    fn collection(&mut self, collection: &mut Collection) -> Result<()> {
        match collection {
            root @ Collection::Root { .. } => self.check_root(root),
            Collection::Select(inner) => self.select(inner),
            Collection::Expression(expression) => {
                // Where no name is known yet, a name is that of the container.
                if self.names.is_empty()
                    && let Some(root) = root(expression)
                {
                    self.check_root(&root)?;
                    *collection = root;
                    return Ok(());
                }
                self.expression(expression)
            }
        }
    }

    /// What lies at a path in each item is stored.
    fn check_root(&self, collection: &Collection) -> Result<()> {
        let Collection::Root { name, steps } = collection else { return Ok(()) };
        let first = steps.first().and_then(Step::constant);
        match first.filter(|it| self.computed.has(it)) {
            None => Ok(()),
            Some(first) => {
                let reason = format!(
                    "FROM cannot begin with the computed property {first:?}; write FROM {name} \
                     JOIN x IN {name}.{first}"
                );
                Err(Error::new(ErrorKind::Invalid, "read the query", reason))
            }
        }
    }

    fn expression(&mut self, expression: &mut Expression) -> Result<()> {
        if let Expression::Parameter(name, position) = expression {
            self.named.all.entry(name.clone()).or_insert(*position);
            return Ok(());
        }
        if let Expression::Name { name, slot, position } = expression {
            let found = self.names.iter().rposition(|it| it == name);
            *slot = found.ok_or_else(|| {
                let known: Vec<&str> = self.names.iter().map(|it| &**it).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let reason = format!("the name {name:?} is not known; known: {known};");
                Error::meaningless(*position, reason)
            })?;
            return Ok(());
        }
        if let Expression::Aggregate { aggregate, number } = expression {
            let Some(mut aggregates) = self.aggregates.take() else {
                let reason = "an aggregate cannot stand in FROM, WHERE, GROUP BY or another one";
                return Err(Error::meaningless(aggregate.position, reason));
            };
            self.expression(&mut Arc::make_mut(aggregate).argument)?;
            *number = aggregates.len();
            aggregates.push(Arc::clone(aggregate));
            self.aggregates = Some(aggregates);
            return Ok(());
        }
        expression.each_child_mut(&mut |part| match part {
            Part::Expression(child) => self.expression(child),
            Part::Select(inner) => self.select(inner),
        })?;
        self.write_out(expression)
    }

    /// Puts what a computed property stands for in its place.
    fn write_out(&mut self, expression: &mut Expression) -> Result<()> {
        let Expression::Path { base, steps } = expression else { return Ok(()) };
        let Expression::Name { name, slot, .. } = &**base else { return Ok(()) };
        let Some(property) = steps.first().and_then(Step::constant) else { return Ok(()) };
        if !self.items[*slot] {
            return Ok(());
        }
        let Some((computed, bytes)) = self.computed.get(property, name, *slot) else {
            return Ok(());
        };
        self.computed_bytes += bytes;
        if QUERY_BYTES_MAX < self.computed_bytes {
            let reason = format!("its computed properties take more than {QUERY_BYTES_MAX} bytes");
            return Err(Error::too_large(reason));
        }
        if steps.len() == 1 {
            *expression = computed;
        } else {
            **base = computed;
            steps.remove(0);
        }
        Ok(())
    }
}

/// The container, or a path in its items.
fn root(expression: &Expression) -> Option<Collection> {
    let (base, steps): (&Expression, &[Step]) = if let Expression::Path { base, steps } = expression
    {
        (base, steps)
    } else {
        (expression, &[])
    };
    let Expression::Name { name, .. } = base else { return None };
    let is_constant = |step: &Step| match step {
        Step::Property(_) => true,
        Step::Index(index) => matches!(**index, Expression::Literal(Value::Number(_))),
    };
    let is_path = steps.iter().all(is_constant);
    is_path.then(|| Collection::Root { name: name.clone(), steps: steps.to_vec() })
}

fn check(select: &Select) -> Result<()> {
    let refused = |reason: &str| Err(Error::meaningless(select.position, reason));
    let is_star = matches!(select.projection, Projection::Star);
    if is_star && select.sources.len() != 1 {
        return refused("SELECT * needs exactly one source, name what to select;");
    }
    if is_star && select.is_grouped() {
        return refused("SELECT * does not go with GROUP BY;");
    }
    if select.top.is_some() && select.window.is_some() {
        return refused("TOP does not go with OFFSET and LIMIT;");
    }
    Ok(())
}
