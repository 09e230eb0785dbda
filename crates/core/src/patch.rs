//! Changes to parts of an item, as Azure Cosmos DB defines them.
//!
//! Read [`Patch`] first; `apply` says what each operation does to the text, `wire` how a patch
//! travels.

mod apply;
#[cfg(test)]
mod model_tests;
pub(crate) mod path;
#[cfg(test)]
mod tests;
mod wire;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::Item;
use crate::error::{Error, Result};
use crate::json::{RawJson, check_object, utf8};
use crate::patch::path::PatchPath;

/// Up to ten operations on one item that happen together or not at all, perhaps under a condition.
///
/// What no operation names stays as it was, byte for byte: spaces, the order of properties, the
/// spelling of numbers.
///
/// ```
/// use millstream_core::{Patch, PatchOperation};
///
/// let patch = Patch::new(vec![
///     PatchOperation::set("/price", &355.45)?,
///     PatchOperation::increment("/stock/count", 10)?,
///     PatchOperation::add("/tags/-", "new")?,
///     PatchOperation::remove("/used")?,
/// ])?;
/// let body = br#"{"id": "1", "price": 1, "used": true, "stock": {"count": 5}, "tags": []}"#;
/// let expected = br#"{"id": "1", "price": 355.45, "stock": {"count": 15}, "tags": ["new"]}"#;
/// assert_eq!(patch.apply(body)?, expected);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Patch {
    operations: Vec<PatchOperation>,
    condition: Option<PatchCondition>,
}

/// One change to an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchOperation {
    /// Creates or overwrites a property, or inserts into an array.
    Add {
        /// Where; the end of an array is `-` or its length.
        path: PatchPath,
        /// What.
        value: RawJson,
    },
    /// Creates or overwrites a property or an array element.
    Set {
        /// Where; the end of an array is `-` or its length.
        path: PatchPath,
        /// What.
        value: RawJson,
    },
    /// Overwrites what exists.
    Replace {
        /// Where; must exist.
        path: PatchPath,
        /// What.
        value: RawJson,
    },
    /// Takes a property or an array element away.
    Remove {
        /// Where; must exist.
        path: PatchPath,
    },
    /// Adds to a number, or creates a property with it.
    ///
    /// Integers stay integers as long as the sum fits 64 bits; everything else becomes a double.
    Increment {
        /// Where; must be a number or a property that does not exist.
        path: PatchPath,
        /// How much; must be a number.
        by: RawJson,
    },
    /// Removes a value and adds it (see [`PatchOperation::Add`]) elsewhere.
    Move {
        /// Where it is; must exist.
        from: PatchPath,
        /// Where it goes, as the item looks after the removal; not within `from`.
        path: PatchPath,
    },
}

/// Decides by the current item whether a patch may happen.
#[derive(Clone)]
pub struct PatchCondition {
    text: String,
    predicate: Arc<Predicate>,
}

type Predicate = dyn Fn(&[u8], Option<&Item>, &mut u64) -> Result<bool> + Send + Sync;

impl Patch {
    /// Most operations of one patch.
    pub const OPERATIONS_MAX: usize = 10;

    /// A patch without condition.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no operation or more than [`Self::OPERATIONS_MAX`], if a path names
    /// the id or a system property, if an increment is not a finite number, or if a value is to be
    /// moved into itself.
    pub fn new(operations: Vec<PatchOperation>) -> Result<Self> {
        if operations.is_empty() {
            return Err(Error::invalid("make a patch", "it has no operations"));
        }
        if Self::OPERATIONS_MAX < operations.len() {
            return Err(Error::invalid("make a patch", "it has more than 10 operations"));
        }
        for operation in &operations {
            operation.check().map_err(|reason| {
                Error::invalid(format!("make a patch that would {operation}"), reason)
            })?;
        }
        Ok(Self { operations, condition: None })
    }

    /// Lets the patch happen only if `condition` holds.
    #[must_use]
    pub fn with_condition(mut self, condition: PatchCondition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// Reads `{"operations": […], "condition": "…"}` or a bare array of operations, as the SDKs of
    /// Cosmos DB send them.
    ///
    /// The condition is returned as text, because only the caller knows the language it is written
    /// in. The limit [`JSON_DEPTH_MAX`](crate::JSON_DEPTH_MAX) includes the levels of the patch
    /// itself.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not a patch or [`Patch::new`] would refuse it.
    pub fn from_json(json: &[u8]) -> Result<(Self, Option<String>)> {
        let (operations, condition) = wire::read(json)?;
        Ok((Self::new(operations)?, condition))
    }

    /// The form that [`Patch::from_json`] reads, with the condition's text if there is one.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        wire::write(self).into_bytes()
    }

    /// About the size of [`Patch::to_json`], for limits on requests.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let condition = self.condition.as_ref().map_or(0, |condition| condition.text.len());
        self.operations.iter().map(PatchOperation::byte_size).sum::<usize>() + condition
    }

    /// What will be done, in this order.
    #[must_use]
    pub fn operations(&self) -> &[PatchOperation] {
        &self.operations
    }

    /// What must hold.
    #[must_use]
    pub fn condition(&self) -> Option<&PatchCondition> {
        self.condition.as_ref()
    }

    /// Whether the condition holds for `body`, which is that of `stored` unless an earlier step of
    /// the same batch wrote it. No condition always holds. See [`PatchCondition::with_item`] for
    /// `steps_left`.
    ///
    /// # Errors
    ///
    /// What the condition's predicate returns.
    pub fn condition_holds(
        &self,
        body: &[u8],
        stored: Option<&Item>,
        steps_left: &mut u64,
    ) -> Result<bool> {
        let Some(condition) = &self.condition else { return Ok(true) };
        condition.holds(body, stored, steps_left)
    }

    /// The body after all operations. Does not ask the condition.
    ///
    /// The result is a JSON object with the same `id`; its other properties, `ttl` and partition
    /// key among them, are for the caller to check.
    ///
    /// # Errors
    ///
    /// `Invalid` if the body is not a JSON object, an operation cannot be done, or the result would
    /// be nested too deep.
    pub fn apply(&self, body: &[u8]) -> Result<Vec<u8>> {
        let mut text = Cow::Borrowed(utf8(body)?);
        for operation in &self.operations {
            let changed = apply::apply(&text, operation)
                .map_err(|reason| Error::invalid(format!("{operation}"), reason))?;
            text = Cow::Owned(changed);
        }
        check_object(&text).map_err(|fault| Error::invalid("keep the patched item", fault))?;
        Ok(text.into_owned().into_bytes())
    }
}

/// Each fails with `Invalid` if the path or the value cannot be used; see [`PatchPath::parse`] and
/// [`RawJson::of`].
impl PatchOperation {
    /// Creates or overwrites a property, or inserts into an array.
    pub fn add(path: &str, value: &(impl Serialize + ?Sized)) -> Result<Self> {
        Ok(Self::Add { path: PatchPath::parse(path)?, value: RawJson::of(value)? })
    }

    /// Creates or overwrites a property or an array element.
    pub fn set(path: &str, value: &(impl Serialize + ?Sized)) -> Result<Self> {
        Ok(Self::Set { path: PatchPath::parse(path)?, value: RawJson::of(value)? })
    }

    /// Overwrites what exists.
    pub fn replace(path: &str, value: &(impl Serialize + ?Sized)) -> Result<Self> {
        Ok(Self::Replace { path: PatchPath::parse(path)?, value: RawJson::of(value)? })
    }

    /// Takes a property or an array element away.
    pub fn remove(path: &str) -> Result<Self> {
        Ok(Self::Remove { path: PatchPath::parse(path)? })
    }

    /// Adds an integer to a number.
    pub fn increment(path: &str, by: i64) -> Result<Self> {
        Ok(Self::Increment { path: PatchPath::parse(path)?, by: RawJson::of(&by)? })
    }

    /// Adds a double to a number.
    pub fn increment_double(path: &str, by: f64) -> Result<Self> {
        Ok(Self::Increment { path: PatchPath::parse(path)?, by: RawJson::of(&by)? })
    }

    /// Takes a value away and adds it elsewhere.
    pub fn move_value(from: &str, path: &str) -> Result<Self> {
        Ok(Self::Move { from: PatchPath::parse(from)?, path: PatchPath::parse(path)? })
    }

    /// Where something is written or removed.
    #[must_use]
    pub fn path(&self) -> &PatchPath {
        match self {
            Self::Add { path, .. }
            | Self::Set { path, .. }
            | Self::Replace { path, .. }
            | Self::Remove { path }
            | Self::Increment { path, .. }
            | Self::Move { path, .. } => path,
        }
    }

    /// Where a move takes its value from.
    #[must_use]
    pub fn from(&self) -> Option<&PatchPath> {
        if let Self::Move { from, .. } = self { Some(from) } else { None }
    }

    fn byte_size(&self) -> usize {
        let rest = match self {
            Self::Add { value, .. } | Self::Set { value, .. } | Self::Replace { value, .. } => {
                value.as_str().len()
            }
            Self::Increment { by, .. } => by.as_str().len(),
            Self::Move { from, .. } => from.as_str().len(),
            Self::Remove { .. } => 0,
        };
        self.path().as_str().len() + rest
    }

    fn check(&self) -> Result<(), String> {
        for path in [Some(self.path()), self.from()].into_iter().flatten() {
            path.check_not_reserved()?;
        }
        match self {
            Self::Increment { by, .. } => apply::check_number(by.as_str()),
            Self::Move { from, path } if path.is_within(from) => {
                Err("a value cannot be moved into itself".to_owned())
            }
            Self::Add { .. }
            | Self::Set { .. }
            | Self::Replace { .. }
            | Self::Remove { .. }
            | Self::Move { .. } => Ok(()),
        }
    }
}

/// Completes "could not …"; never shows a value, because values are the user's.
impl fmt::Display for PatchOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { path, .. } => write!(formatter, "add {:?}", path.as_str()),
            Self::Set { path, .. } => write!(formatter, "set {:?}", path.as_str()),
            Self::Replace { path, .. } => write!(formatter, "replace {:?}", path.as_str()),
            Self::Remove { path } => write!(formatter, "remove {:?}", path.as_str()),
            Self::Increment { path, .. } => write!(formatter, "increment {:?}", path.as_str()),
            Self::Move { from, path } => {
                write!(formatter, "move {:?} to {:?}", from.as_str(), path.as_str())
            }
        }
    }
}

impl PatchCondition {
    /// A condition that was written as `text` and is decided by `predicate`, which gets the current
    /// body.
    pub fn new(
        text: impl Into<String>,
        predicate: impl Fn(&[u8]) -> Result<bool> + Send + Sync + 'static,
    ) -> Self {
        Self::with_item(text, move |body, _, _| predicate(body))
    }

    /// The same with a predicate that also gets the stored item, for what is not in its body; none
    /// if an earlier step of the same batch wrote the body. From the number it takes the steps that
    /// it needed, and it fails if these are more: all conditions of a batch share
    /// [`CONDITION_STEPS_MAX`](crate::CONDITION_STEPS_MAX).
    pub fn with_item(
        text: impl Into<String>,
        predicate: impl Fn(&[u8], Option<&Item>, &mut u64) -> Result<bool> + Send + Sync + 'static,
    ) -> Self {
        Self { text: text.into(), predicate: Arc::new(predicate) }
    }

    /// The condition as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for `body`, that of `stored` if there is one.
    ///
    /// # Errors
    ///
    /// What the predicate returns.
    pub fn holds(&self, body: &[u8], stored: Option<&Item>, steps_left: &mut u64) -> Result<bool> {
        (self.predicate)(body, stored, steps_left)
    }
}

impl fmt::Debug for PatchCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PatchCondition").field(&self.text).finish()
    }
}
