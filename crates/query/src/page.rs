//! One page of a query over the items of a container: bounded work, and where to go on.
//!
//! Read `reader` for how documents come, `stream` for queries whose rows go on as they come, and
//! `pass` for those that need a look at everything first.

mod pass;
mod reader;
mod stream;

use millstream_core::{Documents, Item, PartitionKey, PartitionKeyDefinition};

use crate::access;
use crate::ast::Select;
use crate::continuation::{Fingerprints, State, TEXT_BYTES_MAX, Token};
use crate::error::{Error, Result};
use crate::evaluate::Evaluator;
use crate::functions::new_seed;
use crate::gather::{Place, Row};
use crate::page::reader::Reader;
use crate::select::{reads_documents, stages};
use crate::usage::{self, Usage};
use crate::value::{Object, Value};
use crate::{Limits, Page, Parameters, Request, ResumeFilter, Scope, json};

/// Everything a page needs that stays the same while it is made.
pub(crate) struct Run<'r> {
    pub(crate) select: &'r Select,
    pub(crate) request: &'r Request<'r>,
    pub(crate) parameters: &'r Parameters,
    pub(crate) limits: Limits,
    pub(crate) fingerprints: Fingerprints,
    /// What the first page was asked of.
    pub(crate) scope: Scope,
    /// The part of it that this page is asked of.
    pub(crate) part: Scope,
    /// Rows that have passed before this page.
    pub(crate) passed: u64,
    /// Of the resume filter, if there is one.
    resume: Option<u128>,
    /// What RAND begins with, if it stands in the query.
    seed: Option<u64>,
    /// What of an item is parsed.
    pub(crate) usage: Usage,
}

/// Answers one page.
pub(crate) async fn execute(
    text: &str,
    select: &Select,
    documents: &dyn Documents,
    request: &Request<'_>,
) -> Result<Page> {
    let none = Parameters::default();
    let parameters = request.parameters.unwrap_or(&none);
    let fingerprints = Fingerprints::of(text, select, parameters, request.container);
    let token = request.continuation.map(|it| Token::read(it, &fingerprints)).transpose()?;
    if request.resume.is_some() && select.order_by.is_empty() {
        let reason = "the query has no ORDER BY that a resume filter could refer to";
        return Err(Error::invalid("resume the query", reason));
    }
    let part = request.scope.cloned().unwrap_or_else(Scope::all);
    let scope = token.as_ref().map_or_else(|| part.clone(), |it| it.scope.clone());
    check_part(&scope, &part, request.definition)?;
    let accesses = match reads_documents(select) {
        true => access::accesses(select, request.definition, parameters, &scope)?,
        false => Vec::new(),
    };
    let limits = Limits {
        items_max: request.limits.items_max.max(1),
        continuation_bytes_max: request.limits.continuation_bytes_max.min(TEXT_BYTES_MAX),
        ..request.limits
    };
    let known = token.as_ref().and_then(|it| it.seed);
    let seed = select.is_random.then(|| known.unwrap_or_else(new_seed));
    let resume = request.resume.map(ResumeFilter::digest);
    let (passed, state) = match token {
        Some(token) => token.going_on(resume)?,
        None => (0, None),
    };
    let usage = usage::usage(select);
    let run = Run {
        select,
        request,
        parameters,
        limits,
        fingerprints,
        scope,
        part,
        passed,
        resume,
        seed,
        usage,
    };
    let mut evaluator = Evaluator::new(parameters, request.clock.now(), &limits);
    if let Some(seed) = seed {
        evaluator.context.seed(seed);
    }
    let mut stages = stages(select, &evaluator)?;
    if let Some(last) = stages.pop() {
        stages.push(last.without_window());
    }
    let is_streamed = reads_documents(select)
        && stages.iter().all(|it| it.gathered.is_none())
        && stages.iter().rev().skip(1).all(|it| !it.select.is_limited());
    let reader = Reader::new(documents, request.definition, accesses);
    if is_streamed {
        stream::page(&run, evaluator, stages, reader, state).await
    } else {
        pass::page(&run, evaluator, stages, reader, state).await
    }
}

impl Run<'_> {
    /// The text of a continuation.
    pub(crate) fn token(&self, passed: u64, state: State) -> Token {
        let fingerprint = self.fingerprints.for_state(&state);
        let Self { resume, seed, .. } = *self;
        Token { fingerprint, scope: self.scope.clone(), passed, resume, seed, state }
    }

    /// A page that can end anywhere does so when fewer steps than this are left, long before the
    /// query would be refused.
    pub(crate) fn steps_soft(&self) -> u64 {
        self.limits.steps_max - self.limits.steps_max / 16
    }

    /// How many bodies are read for a document.
    pub(crate) fn bodies(&self) -> u64 {
        u64::from(self.usage != Usage::Nothing)
    }

    /// Whether this page may see the item.
    pub(crate) fn sees(&self, item: &Item) -> Result<bool> {
        self.covers(&item.partition_key)
    }

    /// Whether the document that a row came from is one that this page may see.
    pub(crate) fn holds(&self, row: &Row) -> Result<bool> {
        let key = row.document.0.parse();
        self.covers(&key.map_err(|error| Error::invalid("tell where a row came from", error))?)
    }

    fn covers(&self, key: &PartitionKey) -> Result<bool> {
        if self.part.partition.as_ref().is_some_and(|it| !it.is_prefix_of(key)) {
            return Ok(false);
        }
        if self.part.keys == self.scope.keys {
            return Ok(true);
        }
        Ok(self.part.keys.contains(&self.definition().effective(key)?))
    }

    fn definition(&self) -> &PartitionKeyDefinition {
        self.request.definition
    }

    /// The document that queries see, its size, and its place among others.
    pub(crate) fn document(&self, item: &Item) -> Result<(Value, u64, Place)> {
        if self.usage == Usage::Nothing {
            let place = Place { number: 0, document: identity(item).into(), row: 0 };
            return Ok((Value::object(Object::default()), 0, place));
        }
        let body = match self.request.present {
            Some(present) => present(item),
            None => item.body.clone(),
        };
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let document = match &self.usage {
            Usage::Nothing | Usage::Whole => json::read(&body),
            Usage::Properties(wanted) => json::read_properties(&body, wanted),
        };
        let document = document.map_err(|reason| {
            Error::invalid(format!("read item {:?}", item.id.as_str()), reason)
        })?;
        let rid = document.property("_rid");
        let number = rid.as_str().and_then(rid_number).unwrap_or_default();
        let (partition, id) = identity(item);
        Ok((document, size, Place { number, document: (partition, id).into(), row: 0 }))
    }
}

/// The partition key and the id of an item as text.
pub(crate) fn identity(item: &Item) -> (String, String) {
    (item.partition_key.to_string(), item.id.as_str().to_owned())
}

/// The number of a document in its resource id, by which SDKs order rows with equal keys.
pub(crate) fn rid_number(rid: &str) -> Option<u64> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let bytes = STANDARD.decode(rid.replace('-', "/")).ok()?;
    let number = bytes.get(8..16)?.try_into().ok()?;
    Some(u64::from_le_bytes(number))
}

/// After a split a continuation goes on in each part of what it was given out for.
fn check_part(scope: &Scope, part: &Scope, definition: &PartitionKeyDefinition) -> Result<()> {
    let is_partition_kept = match (&scope.partition, &part.partition) {
        (None, _) => true,
        (Some(scope), Some(part)) => scope.is_prefix_of(part),
        (Some(_), None) => false,
    };
    if is_partition_kept && scope.keys.covers(&part.keys) {
        return Ok(());
    }
    // A partition may be named by its key where it was named by the bounds of its hash before.
    if is_partition_kept
        && let Some(key) = &part.partition
        && let Ok(keys) = definition.range_of(key)
        && keys.intersect(&part.keys).is_none_or(|it| scope.keys.covers(&it))
    {
        return Ok(());
    }
    Err(Error::continuation("the continuation was given out for other keys"))
}
