//! Unique keys within a batch: what its steps so far have claimed and given up.

use std::collections::BTreeMap;

use crate::batch::{CheckedOperation, CurrentItems, Step, Touched};
use crate::container::ContainerSettings;
use crate::{Claim, ErrorKind, ItemId, Result};

/// Why an operation was refused whose id is free: another item has the values of a unique key.
#[derive(Debug, thiserror::Error)]
#[error(
    "item {:?} of the same logical partition has the same values at {paths}, which are unique",
    holder.as_str()
)]
pub struct NotUnique {
    holder: ItemId,
    paths: String,
}

pub(super) struct Claims<'a> {
    settings: &'a ContainerSettings,
    /// Who holds what the batch has touched; what is not here is as it was stored.
    holders: BTreeMap<Claim, Option<ItemId>>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(settings: &'a ContainerSettings) -> Self {
        Self { settings, holders: BTreeMap::new() }
    }

    /// Takes note of the next step, or refuses it if another item holds what it claims. `touched`
    /// is what earlier steps did to its item.
    pub(super) fn note(
        &mut self,
        operation: &CheckedOperation,
        step: &Step,
        touched: Option<&Touched<'_>>,
        current: &mut dyn CurrentItems,
    ) -> Result<()> {
        if self.settings.unique_keys.is_empty() {
            return Ok(());
        }
        let claimed = match step {
            Step::Write { body, .. } => &body.claims[..],
            Step::Delete { .. } => &[],
            Step::Read(_) | Step::ReadStep(_) | Step::NotModified => return Ok(()),
        };
        let given_up = match touched {
            Some(Touched::Written(_, body)) => body.claims.clone(),
            Some(Touched::Deleted) => Vec::new(),
            None => match current.item(&operation.id)? {
                Some(item) => self.settings.claims(&item.body)?,
                None => Vec::new(),
            },
        };
        self.holders.extend(given_up.into_iter().map(|claim| (claim, None)));
        for claim in claimed {
            let holder = match self.holders.get(claim) {
                Some(holder) => holder.clone(),
                None => current.holder(claim)?,
            };
            if let Some(holder) = holder.filter(|it| *it != operation.id) {
                let paths = self.settings.unique_keys[claim.key()].paths().join(", ");
                return Err(
                    operation.refused(ErrorKind::AlreadyExists, NotUnique { holder, paths })
                );
            }
            self.holders.insert(claim.clone(), Some(operation.id.clone()));
        }
        Ok(())
    }
}
