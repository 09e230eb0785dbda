//! Which keys a query has to read, from what its filter says about the id and the partition key.

use std::sync::Arc;

use millstream_core::{
    EffectiveKey, HashKind, ItemId, KeyRange, PartitionKey, PartitionKeyComponent,
    PartitionKeyDefinition, ScanScope,
};

use crate::ast::{BinaryOperator, Collection, Expression, Select, Step, UnaryOperator};
use crate::error::{Error, Result};
use crate::value::Value;
use crate::{Parameters, Scope};

/// Most combinations of keys that are looked up one by one; beyond, the scope is scanned.
const ALTERNATIVES_MAX: usize = 1000;

/// One read of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// One item.
    Point(PartitionKey, ItemId),
    /// A logical partition or a range.
    Scan(ScanScope),
}

/// What an item must have for the filter to hold: this, or another alternative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    /// The values at the paths of the partition key, where they are known.
    pub(crate) components: Vec<Option<PartitionKeyComponent>>,
    pub(crate) id: Option<Arc<str>>,
}

/// The reads that find every item the query can return, in key order and without overlap.
pub(crate) fn accesses(
    select: &Select,
    definition: &PartitionKeyDefinition,
    parameters: &Parameters,
    scope: &Scope,
) -> Result<Vec<Access>> {
    check_scope(definition, scope)?;
    let free = Alternative::free(definition);
    let alternatives = alternatives(select, definition, parameters).unwrap_or_else(|| vec![free]);
    let mut found: Vec<(EffectiveKey, Access)> = Vec::new();
    for alternative in alternatives {
        let Some(alternative) = alternative.within(scope) else { continue };
        if let Some(access) = alternative.access(definition, &scope.keys)? {
            found.push(access);
        }
    }
    Ok(without_overlap(found, definition))
}

/// The ranges that hold every item the query can return, for plans.
pub(crate) fn ranges(
    select: &Select,
    definition: &PartitionKeyDefinition,
    parameters: &Parameters,
) -> Result<Vec<KeyRange>> {
    let accesses = accesses(select, definition, parameters, &Scope::all())?;
    let mut ranges: Vec<KeyRange> = Vec::new();
    for access in accesses {
        let range = match access {
            Access::Point(key, _) | Access::Scan(ScanScope::Partition(key)) => {
                definition.range_of(&key)?
            }
            Access::Scan(ScanScope::Keys(keys)) => keys,
        };
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    Ok(ranges)
}

/// Whether all items the query can return are of one logical partition.
pub(crate) fn is_within_one_partition(
    select: &Select,
    definition: &PartitionKeyDefinition,
    parameters: &Parameters,
) -> Result<bool> {
    let accesses = accesses(select, definition, parameters, &Scope::all())?;
    let mut keys = accesses.iter().map(|access| match access {
        Access::Point(key, _) | Access::Scan(ScanScope::Partition(key)) => Some(key),
        Access::Scan(ScanScope::Keys(_)) => None,
    });
    let Some(first) = keys.next() else { return Ok(true) };
    Ok(first.is_some() && keys.all(|key| key == first))
}

fn check_scope(definition: &PartitionKeyDefinition, scope: &Scope) -> Result<()> {
    let Some(key) = &scope.partition else { return Ok(()) };
    definition
        .range_of(key)
        .map(|_| ())
        .map_err(|error| Error::invalid("query the logical partition", error))
}

fn alternatives(
    select: &Select,
    definition: &PartitionKeyDefinition,
    parameters: &Parameters,
) -> Option<Vec<Alternative>> {
    let mut innermost = select;
    while let Some(Collection::Select(inner)) = innermost.sources.first().map(|it| &it.collection) {
        innermost = inner;
    }
    let first = innermost.sources.first()?;
    let is_item = match &first.collection {
        Collection::Root { steps, .. } => steps.is_empty() && !first.is_iterated,
        Collection::Expression(_) | Collection::Select(_) => false,
    };
    let filter = innermost.filter.as_ref().filter(|_| is_item)?;
    Analysis { definition, parameters }.alternatives(filter)
}

struct Analysis<'a> {
    definition: &'a PartitionKeyDefinition,
    parameters: &'a Parameters,
}

impl Analysis<'_> {
    /// What must hold for the expression to be true; none if nothing is known.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression names a key")]
    fn alternatives(&self, expression: &Expression) -> Option<Vec<Alternative>> {
        match expression {
            Expression::And(operands) => {
                let known = operands.iter().filter_map(|it| self.alternatives(it));
                known.reduce(|one, two| both(&one, &two))
            }
            Expression::Or(operands) => {
                let mut all = Vec::new();
                for operand in operands {
                    all.extend(self.alternatives(operand)?);
                    if ALTERNATIVES_MAX < all.len() {
                        return None;
                    }
                }
                Some(all)
            }
            Expression::Chain { first, rest } => match &rest[..] {
                [(BinaryOperator::Equal, second)] => self
                    .equality(first, std::slice::from_ref(second))
                    .or_else(|| self.equality(second, std::slice::from_ref(&**first))),
                _ => None,
            },
            Expression::In { value, list, is_not: false } => self.equality(value, list),
            _ => None,
        }
    }

    /// The path is equal to one of the constants.
    fn equality(&self, path: &Expression, constants: &[Expression]) -> Option<Vec<Alternative>> {
        let names = names(path)?;
        let is_id = names == ["id"];
        let places: Vec<usize> = (self.definition.segments().iter().enumerate())
            .filter(|(_, segments)| segments.iter().map(|it| &**it).eq(names.iter().copied()))
            .map(|(place, _)| place)
            .collect();
        if (!is_id && places.is_empty()) || ALTERNATIVES_MAX < constants.len() {
            return None;
        }
        let mut found = Vec::new();
        for constant in constants {
            let value = self.constant(constant)?;
            let mut alternative = Alternative::free(self.definition);
            if is_id {
                // An id is a string; nothing else can be equal to it.
                let Value::String(id) = &value else { continue };
                alternative.id = Some(id.clone());
            }
            if !places.is_empty() {
                let Some(component) = component(&value) else { continue };
                for place in &places {
                    alternative.components[*place] = Some(component.clone());
                }
            }
            found.push(alternative);
        }
        Some(found)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression is constant")]
    fn constant(&self, expression: &Expression) -> Option<Value> {
        match expression {
            Expression::Literal(value) => Some(value.clone()),
            Expression::Parameter(name, _) => Some(self.parameters.get(name).clone()),
            Expression::Unary(UnaryOperator::Minus, operand) => match &**operand {
                Expression::Literal(value) => value.as_double().map(|it| Value::number(-it)),
                _ => None,
            },
            // Whatever is in them, they count as no value in a key.
            Expression::Array(_) | Expression::Object(_) => Some(Value::array(Vec::new())),
            _ => None,
        }
    }
}

/// The names along a path that begins at the item.
pub(crate) fn names(expression: &Expression) -> Option<Vec<&str>> {
    let Expression::Path { base, steps } = expression else { return None };
    let Expression::Name { slot: 0, .. } = &**base else { return None };
    let mut names = Vec::with_capacity(steps.len());
    for step in steps {
        match step {
            Step::Property(name) => names.push(&**name),
            Step::Index(_) => return None,
        }
    }
    Some(names)
}

/// The value as part of a partition key; none if no item can have it there.
fn component(value: &Value) -> Option<PartitionKeyComponent> {
    match value {
        Value::Null => Some(PartitionKeyComponent::Null),
        Value::Bool(value) => Some(PartitionKeyComponent::Bool(*value)),
        Value::Number(number) => {
            let double = number.as_double();
            // Adding zero turns a negative zero into zero, as in the keys of items.
            double.is_finite().then_some(PartitionKeyComponent::Number(double + 0.0))
        }
        Value::String(text) => Some(PartitionKeyComponent::String(text.to_string())),
        // Such items lie where those without a value lie.
        Value::Array(_) | Value::Object(_) => Some(PartitionKeyComponent::Undefined),
        Value::Undefined => None,
    }
}

/// Every way in which one of each can hold. If these are too many, either is enough.
fn both(one: &[Alternative], two: &[Alternative]) -> Vec<Alternative> {
    if ALTERNATIVES_MAX < one.len().saturating_mul(two.len()) {
        return if one.len() < two.len() { one } else { two }.to_vec();
    }
    one.iter().flat_map(|one| two.iter().filter_map(|two| one.and(two))).collect()
}

impl Alternative {
    fn free(definition: &PartitionKeyDefinition) -> Self {
        Self { components: vec![None; definition.paths().len()], id: None }
    }

    /// Both at once; none if they contradict each other.
    fn and(&self, other: &Self) -> Option<Self> {
        let mut result = self.clone();
        for (known, other) in result.components.iter_mut().zip(&other.components) {
            match (&known, other) {
                (Some(one), Some(two)) if one != two => return None,
                (None, Some(_)) => known.clone_from(other),
                (Some(_) | None, _) => (),
            }
        }
        match (&result.id, &other.id) {
            (Some(one), Some(two)) if one != two => return None,
            (None, Some(_)) => result.id.clone_from(&other.id),
            (Some(_) | None, _) => (),
        }
        Some(result)
    }

    fn within(&self, scope: &Scope) -> Option<Self> {
        let Some(key) = &scope.partition else { return Some(self.clone()) };
        let mut of_scope = Self { components: vec![None; self.components.len()], id: None };
        for (place, component) in of_scope.components.iter_mut().zip(key.components()) {
            *place = Some(component.clone());
        }
        self.and(&of_scope)
    }

    /// The read that finds the items, and where they are; none if there can be no such items.
    fn access(
        &self,
        definition: &PartitionKeyDefinition,
        keys: &KeyRange,
    ) -> Result<Option<(EffectiveKey, Access)>> {
        let known: Vec<PartitionKeyComponent> =
            self.components.iter().map_while(Clone::clone).collect();
        if known.is_empty() {
            let access = Access::Scan(ScanScope::Keys(keys.clone()));
            return Ok(Some((keys.min().clone(), access)));
        }
        // A key that is too long is the key of no item.
        let is_whole = known.len() == self.components.len();
        let Ok(key) = PartitionKey::of(known) else { return Ok(None) };
        if is_whole {
            let effective = definition.effective(&key)?;
            if !keys.contains(&effective) {
                return Ok(None);
            }
            let access = match &self.id {
                None => Access::Scan(ScanScope::Partition(key)),
                Some(id) => match ItemId::new(id) {
                    Ok(id) => Access::Point(key, id),
                    Err(_) => return Ok(None),
                },
            };
            return Ok(Some((effective, access)));
        }
        debug_assert_eq!(definition.kind(), HashKind::MultiHash);
        let range = definition.range_of(&key)?.intersect(keys);
        Ok(range.map(|it| (it.min().clone(), Access::Scan(ScanScope::Keys(it)))))
    }
}

/// Sorts reads, and drops those of items that another read finds as well.
fn without_overlap(
    found: Vec<(EffectiveKey, Access)>,
    definition: &PartitionKeyDefinition,
) -> Vec<Access> {
    let mut ranges: Vec<KeyRange> = Vec::new();
    for (_, access) in &found {
        if let Access::Scan(ScanScope::Keys(keys)) = access
            && !ranges.iter().any(|it| it.covers(keys))
        {
            ranges.retain(|it| !keys.covers(it));
            ranges.push(keys.clone());
        }
    }
    let mut kept: Vec<(Vec<u8>, String, Access)> = Vec::new();
    for range in &ranges {
        let access = Access::Scan(ScanScope::Keys(range.clone()));
        kept.push((range.min().trimmed().to_vec(), String::new(), access));
    }
    for (effective, access) in found {
        let is_in_range = |key: &PartitionKey| {
            definition.effective(key).is_ok_and(|it| ranges.iter().any(|range| range.contains(&it)))
        };
        let (key, id) = match &access {
            Access::Scan(ScanScope::Keys(_)) => continue,
            Access::Scan(ScanScope::Partition(key)) => (key, ""),
            Access::Point(key, id) => (key, id.as_str()),
        };
        if !is_in_range(key) {
            kept.push((effective.as_bytes().to_vec(), format!("{key}\n{id}"), access));
        }
    }
    kept.sort_by(|one, two| (&one.0, &one.1).cmp(&(&two.0, &two.1)));
    kept.dedup_by(|later, earlier| later.2 == earlier.2);
    // A partition sorts right before its own items.
    let mut whole: Option<PartitionKey> = None;
    kept.retain(|(_, _, access)| match access {
        Access::Scan(ScanScope::Partition(key)) => {
            whole = Some(key.clone());
            true
        }
        Access::Point(key, _) => whole.as_ref() != Some(key),
        Access::Scan(ScanScope::Keys(_)) => true,
    });
    kept.into_iter().map(|(_, _, access)| access).collect()
}
