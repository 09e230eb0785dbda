//! Readers whose unread events must not expire.

use millstream_core::{Continuation, Error, ErrorKind, KeyRange, Result};

use crate::catalog::{Found, GuardRecord, Written};
use crate::container::Shared;
use crate::wire::pause;

/// Longest name of a reader.
const NAME_BYTES_MAX: usize = 255;
/// How often a position is written before others have it.
const ATTEMPTS_MAX: u32 = 50;

impl Shared {
    pub(super) async fn hold(
        &self,
        name: &str,
        keys: &KeyRange,
        passed: &Continuation,
    ) -> Result<()> {
        if name.is_empty() || NAME_BYTES_MAX < name.len() {
            let reason = "the name of the reader must have 1 to 255 bytes";
            return Err(Error::invalid("hold events", reason));
        }
        let lsn = self.cursor(passed)?.after.as_u64();
        self.settings().await?;
        let subject = self.catalog.guard(self.id.container, name);
        for attempt in 0..ATTEMPTS_MAX {
            let Found { sequence, record } = self.catalog.get::<GuardRecord>(&subject).await?;
            let mut record = record.unwrap_or_else(|| GuardRecord::new(name));
            if record.name != name {
                let reason = "another name has the same hash; choose a shorter one";
                return Err(Error::invalid("hold events", reason));
            }
            if !record.pass(keys, lsn) {
                return Ok(());
            }
            if let Written::Done(_) = self.catalog.put(&subject, sequence, &record).await? {
                return Ok(());
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Overloaded, "hold events");
        Err(error.because("others move the same reader all the time"))
    }

    pub(super) async fn release(&self, name: &str) -> Result<()> {
        self.fresh_settings().await?;
        let subject = self.catalog.guard(self.id.container, name);
        for attempt in 0..ATTEMPTS_MAX {
            let Found { sequence, record } = self.catalog.get::<GuardRecord>(&subject).await?;
            if record.is_none() {
                return Ok(());
            }
            if let Written::Done(_) = self.catalog.remove(&subject, sequence).await? {
                return Ok(());
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Overloaded, "release events");
        Err(error.because("others move the same reader all the time"))
    }

    pub(super) async fn holders(&self) -> Result<Vec<String>> {
        self.fresh_settings().await?;
        let mut names: Vec<String> = self.guards().await?.into_iter().map(|it| it.name).collect();
        names.sort();
        Ok(names)
    }
}
