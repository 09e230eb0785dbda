//! Gives every name its place, every aggregate its number, and refuses what means nothing.

mod group;

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_core::JSON_DEPTH_MAX;

use crate::ast::walk::Part;
use crate::ast::{
    Aggregate, Collection, Count, Expression, Projection, Select, Source, Step, names,
};
use crate::error::{Error, ErrorKind, Position, Result};
use crate::parser::DEPTH_MAX;
use crate::value::Value;
use crate::{ComputedProperties, QUERY_BYTES_MAX};

/// Most sources of one FROM; each JOIN multiplies the rows.
const SOURCES_MAX: usize = 16;
/// How deep a value can nest that a query makes. An expression adds no more levels than it has
/// itself, but sources that are made of each other add up, and whoever writes or compares a value
/// calls itself for every level.
pub(crate) const VALUE_DEPTH_MAX: u32 = 1024;

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
        scope: Vec::new(),
        deepest: 0,
        computed,
        computed_bytes: 0,
        aggregates: None,
        randoms: 0,
        named: Named::default(),
    };
    resolver.select(select)?;
    Ok(resolver.named)
}

struct Resolver<'a> {
    /// The sources in scope, outermost first; the place is the slot.
    scope: Vec<InScope>,
    /// How deep any value can nest that was found so far.
    deepest: u32,
    computed: &'a ComputedProperties,
    /// Of the text of computed properties that were written out so far.
    computed_bytes: usize,
    /// Where aggregates go, if they may stand here.
    aggregates: Option<Vec<Arc<Aggregate>>>,
    /// Calls of RAND that were found so far.
    randoms: usize,
    named: Named,
}

struct InScope {
    name: Arc<str>,
    /// Whether it is an item of the container.
    is_item: bool,
    /// How deep its values can nest.
    depth: u32,
}

impl Resolver<'_> {
    /// Returns how deep its rows can nest, as the methods after it do of what they resolve.
    fn select(&mut self, select: &mut Select) -> Result<u32> {
        let outer = self.scope.len();
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
        let randoms = self.randoms;
        self.sources(&mut select.sources)?;
        let are_sources_random = randoms < self.randoms;
        if let Some(filter) = &mut select.filter {
            self.expression(filter)?;
        }
        for expression in &mut select.group_by {
            self.expression(expression)?;
        }
        self.aggregates = Some(Vec::new());
        let depth = self.projection(select)?;
        select.aggregates = self.aggregates.take().unwrap_or_default();
        let of_projection = select.aggregates.len();
        // Groups may be sorted by aggregates, rows may not.
        self.aggregates = select.is_grouped().then(|| std::mem::take(&mut select.aggregates));
        let unordered = self.randoms;
        for item in &mut select.order_by {
            self.expression(&mut item.expression)?;
        }
        select.is_random = randoms < self.randoms;
        check_random(select, unordered < self.randoms || are_sources_random)?;
        select.aggregates = self.aggregates.take().unwrap_or_default();
        // The one row of aggregates over everything is in order anyway.
        if select.is_grouped() && select.group_by.is_empty() {
            select.order_by.clear();
            select.aggregates.truncate(of_projection);
        }
        self.scope.truncate(outer);
        self.aggregates = outer_aggregates;
        self.deepest = self.deepest.max(depth);
        if VALUE_DEPTH_MAX < self.deepest {
            let reason = format!("its values nest deeper than {VALUE_DEPTH_MAX} levels");
            return Err(Error::meaningless(select.position, reason));
        }
        check(select)?;
        group::resolve(select, outer)?;
        Ok(depth)
    }

    fn sources(&mut self, sources: &mut [Source]) -> Result<()> {
        let outer = self.scope.len();
        for source in sources {
            let written_out = self.computed_bytes;
            let depth = self.collection(&mut source.collection)?;
            // A computed property that was written out no longer says how the source is called.
            source.is_alias_written |= written_out != self.computed_bytes;
            let is_taken = self.scope[outer..].iter().any(|it| it.name == source.alias);
            if is_taken && !source.alias.is_empty() {
                let reason = format!("the name {:?} is taken;", source.alias);
                return Err(Error::meaningless(source.position, reason));
            }
            let (name, is_item) = (source.alias.clone(), source.is_item());
            self.scope.push(InScope { name, is_item, depth });
        }
        Ok(())
    }

    fn projection(&mut self, select: &mut Select) -> Result<u32> {
        let mut depth = 0;
        match &mut select.projection {
            Projection::Star => depth = self.scope.last().map_or(0, |it| it.depth),
            Projection::Value(expression) => depth = self.expression(expression)?,
            Projection::List(list) => {
                select.names = names(list);
                for (item, name) in list.iter_mut().zip(&select.names) {
                    let was_named = item.name().is_some();
                    depth = depth.max(self.expression(&mut item.expression)? + 1);
                    // A computed property is called as before it was written out.
                    if was_named && item.name().as_ref() != Some(name) {
                        item.alias = Some(name.clone());
                    }
                }
            }
        }
        Ok(depth)
    }

    fn collection(&mut self, collection: &mut Collection) -> Result<u32> {
        match collection {
            root @ Collection::Root { .. } => {
                self.check_root(root)?;
                Ok(JSON_DEPTH_MAX)
            }
            Collection::Select(inner) => self.select(inner),
            Collection::Expression(expression) => {
                // Where no name is known yet, a name is that of the container.
                if self.scope.is_empty()
                    && let Some(root) = root(expression)
                {
                    self.check_root(&root)?;
                    *collection = root;
                    return Ok(JSON_DEPTH_MAX);
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

    fn expression(&mut self, expression: &mut Expression) -> Result<u32> {
        if let Expression::Parameter(name, position) = expression {
            self.named.all.entry(name.clone()).or_insert(*position);
            return Ok(JSON_DEPTH_MAX);
        }
        if let Expression::Name { name, slot, position } = expression {
            let found = self.scope.iter().rposition(|it| it.name == *name);
            *slot = found.ok_or_else(|| {
                let known: Vec<&str> = self.scope.iter().map(|it| &*it.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let reason = format!("the name {name:?} is not known; known: {known};");
                Error::meaningless(*position, reason)
            })?;
            return Ok(self.scope[*slot].depth);
        }
        if let Expression::Aggregate { aggregate, number } = expression {
            let Some(mut aggregates) = self.aggregates.take() else {
                let reason = "an aggregate cannot stand in FROM, WHERE, GROUP BY or another one";
                return Err(Error::meaningless(aggregate.position, reason));
            };
            let depth = self.expression(&mut Arc::make_mut(aggregate).argument)?;
            *number = aggregates.len();
            aggregates.push(Arc::clone(aggregate));
            self.aggregates = Some(aggregates);
            return Ok(depth + 1);
        }
        let mut depth = 0;
        expression.each_child_mut(&mut |part| {
            let of_part = match part {
                Part::Expression(child) => self.expression(child)?,
                Part::Select(inner) => self.select(inner)?,
            };
            depth = depth.max(of_part);
            Ok::<_, Error>(())
        })?;
        if self.write_out(expression)? {
            depth = JSON_DEPTH_MAX + DEPTH_MAX;
        }
        if let Expression::Call { function, .. } = expression {
            self.randoms += usize::from(function.is_random());
            // Some read what is in a string, one puts objects around values.
            depth = depth.max(JSON_DEPTH_MAX) + 1;
        }
        if let Expression::Array(_) | Expression::Object(_) | Expression::Gathered(_) = expression {
            depth += 1;
        }
        self.deepest = self.deepest.max(depth);
        Ok(depth)
    }

    /// Puts what a computed property stands for in its place; false if it is none.
    fn write_out(&mut self, expression: &mut Expression) -> Result<bool> {
        let Expression::Path { base, steps } = expression else { return Ok(false) };
        let Expression::Name { name, slot, .. } = &**base else { return Ok(false) };
        let Some(property) = steps.first().and_then(Step::constant) else { return Ok(false) };
        if !self.scope[*slot].is_item {
            return Ok(false);
        }
        let Some((computed, bytes)) = self.computed.get(property, name, *slot) else {
            return Ok(false);
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
        Ok(true)
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

/// A page leaves out what does not belong to it before all of it is known, so that the numbers of
/// the rest would be others than on the page before.
fn check_random(select: &Select, is_order_random: bool) -> Result<()> {
    let has_sets = select.is_distinct || !select.group_by.is_empty();
    if (select.is_random && has_sets) || (is_order_random && !select.order_by.is_empty()) {
        let reason =
            "RAND cannot stand beside DISTINCT or GROUP BY, nor in what ORDER BY sorts by;";
        return Err(Error::meaningless(select.position, reason));
    }
    Ok(())
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
