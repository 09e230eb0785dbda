//! Commits to one partition that only their owner can make, and whose outcome is always known.
//!
//! Every batch replaces the head document under its etag. After a lost reply the head says whether
//! the batch was committed, a batch that arrives late cannot be committed twice, and a broker that
//! lost its container to another one finds out before it does harm.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Batch, Clock, Documents, Effect, Error, ErrorKind, Etag, Operation, OperationResult,
    PartitionKey, Result,
};

use crate::flaw::Flaw;
use crate::stored::{self, HEAD, Head, item_id};

const RETRY_WAIT_MIN: Duration = Duration::from_millis(5);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often a partition is taken over again because somebody else wrote in between.
const TAKEOVERS_MAX: u32 = 10;

/// The right to write one partition.
#[derive(Clone)]
pub(crate) struct Ledger {
    documents: Arc<dyn Documents>,
    clock: Arc<dyn Clock>,
    partition: String,
    owner: String,
    patience: Duration,
    commit: u64,
    next_sequence: u64,
    etag: Option<Etag>,
    flaw: Option<Flaw>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("partition", &self.partition).finish_non_exhaustive()
    }
}

/// What a ledger needs of its surroundings.
#[derive(Clone)]
pub(crate) struct LedgerSetup {
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Different for every broker that was ever opened.
    pub(crate) owner: String,
    pub(crate) patience: Duration,
    pub(crate) flaw: Option<Flaw>,
}

impl std::fmt::Debug for LedgerSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerSetup").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Takes over a partition, whoever had it.
    ///
    /// What that one had under way may arrive while this happens, even after its death: then it
    /// counts, and the partition is taken over as it is now.
    pub(crate) async fn open(setup: &LedgerSetup, partition: &str) -> Result<Self> {
        let mut ledger = Self {
            documents: Arc::clone(&setup.documents),
            clock: Arc::clone(&setup.clock),
            partition: partition.to_owned(),
            owner: setup.owner.clone(),
            patience: setup.patience,
            commit: 0,
            next_sequence: 1,
            etag: None,
            flaw: setup.flaw,
        };
        for takeover in 1.. {
            if let Some((head, etag)) = ledger.head().await? {
                ledger.commit = head.commit;
                ledger.next_sequence = head.next_sequence;
                ledger.etag = Some(etag);
            }
            match ledger.commit(Vec::new(), ledger.next_sequence).await {
                Err(error) if error.kind() == ErrorKind::Locked && takeover < TAKEOVERS_MAX => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        Ok(ledger)
    }

    /// The next number, as the last commit left it.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Commits the operations together, and knows that it did.
    ///
    /// # Errors
    ///
    /// `Locked` if another broker has taken over; otherwise what the store said when patience was
    /// over. Nothing more can be committed then.
    pub(crate) async fn commit(
        &mut self,
        operations: Vec<Operation>,
        next_sequence: u64,
    ) -> Result<()> {
        let head = Head::new(&self.partition, &self.owner, self.commit + 1, next_sequence);
        let body = stored::document(&head);
        let first = match &self.etag {
            _ if self.flaw == Some(Flaw::OwnerNotChecked) => Operation::upsert(body),
            Some(etag) => Operation::replace(item_id(HEAD), body).if_match(etag.clone()),
            None => Operation::create(body),
        };
        let partition_key = PartitionKey::from(self.partition.as_str());
        let operations = std::iter::once(first).chain(operations).collect();
        let batch = Batch { partition_key, operations };
        let started = self.clock.monotonic();
        let mut wait = RETRY_WAIT_MIN;
        let etag = loop {
            let error = match self.documents.commit(batch.clone()).await {
                Ok(outcome) => break new_etag(outcome.results.first()),
                Err(error) => error,
            };
            if let Some(etag) = self.judge(&error, &head, started).await? {
                break Some(etag);
            }
            let wanted = error.retry_after().unwrap_or(wait);
            self.pause(error, started, wanted).await?;
            wait = (wait * 2).min(RETRY_WAIT_MAX);
        };
        self.etag = etag;
        self.commit = head.commit;
        self.next_sequence = next_sequence;
        Ok(())
    }

    /// After an error: the etag of the head if the batch was committed all the same, none if it was
    /// not and may be tried again.
    async fn judge(&self, error: &Error, head: &Head, started: Duration) -> Result<Option<Etag>> {
        let may_have_happened = error.effect() == Effect::Unknown
            || matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::AlreadyExists);
        if !may_have_happened {
            return Ok(None);
        }
        let mut wait = RETRY_WAIT_MIN;
        let found = loop {
            match self.head().await {
                Ok(found) => break found,
                Err(error) => self.pause(error, started, wait).await?,
            }
            wait = (wait * 2).min(RETRY_WAIT_MAX);
        };
        match found {
            Some((stored, etag)) if stored == *head => Ok(Some(etag)),
            Some((stored, etag)) if Some(&etag) != self.etag.as_ref() => {
                let error = Error::new(ErrorKind::Locked, format!("write {:?}", self.partition));
                Err(error.because(format!("the broker {} has taken over", stored.owner)))
            }
            None if self.etag.is_some() => {
                let error = Error::new(ErrorKind::NotFound, format!("write {:?}", self.partition));
                Err(error.because("somebody has removed its documents"))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Waits before the next attempt, if there is any point in one.
    async fn pause(&self, error: Error, started: Duration, wait: Duration) -> Result<()> {
        let may_go_away = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Overloaded)
            || error.effect() == Effect::Unknown;
        if !may_go_away || started + self.patience <= self.clock.monotonic() {
            return Err(error);
        }
        tracing::warn!(partition = self.partition, error = error.report(), "commit is tried again");
        self.clock.sleep(wait).await;
        Ok(())
    }

    async fn head(&self) -> Result<Option<(Head, Etag)>> {
        let key = PartitionKey::from(self.partition.as_str());
        let Some(item) = self.documents.read(&key, &item_id(HEAD)).await? else {
            return Ok(None);
        };
        Ok(Some((stored::parse(&item.body)?, item.etag)))
    }
}

fn new_etag(result: Option<&OperationResult>) -> Option<Etag> {
    result.and_then(OperationResult::item).map(|item| item.etag.clone())
}
