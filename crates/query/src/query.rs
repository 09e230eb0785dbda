use std::sync::Arc;

use bytes::Bytes;
use millstream_core::{Clock, Documents, KeyRange, PartitionKeyDefinition};

use crate::ast::Select;
use crate::error::{Error, ErrorKind, Result};
use crate::evaluate::Evaluator;
use crate::resolve::Named;
use crate::{
    ComputedProperties, Joining, Limits, Page, Parameters, Plan, Request, access, json, page,
    parser, plan, resolve,
};

/// Most bytes of the text of a query, as in Azure Cosmos DB.
pub const QUERY_BYTES_MAX: usize = 512 * 1024;

/// A query that was read and whose names are known. Cheap to clone.
///
/// ```
/// use millstream_query::Query;
///
/// assert!(Query::parse("SELECT c.name FROM c WHERE c.age >= 18 ORDER BY c.name").is_ok());
/// let error = Query::parse("SELECT c.name FROM c WHERE").unwrap_err();
/// assert_eq!(
///     error.report(),
///     "could not read the query: expected an expression, found the end at line 1, column 27",
/// );
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    text: Arc<str>,
    select: Arc<Select>,
    /// The parameters that it names.
    named: Arc<Named>,
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// `Syntax` if the text is no query, with the place and what was expected; `Invalid` if it
    /// means nothing, for example because of an unknown name; `Unsupported` for functions that are
    /// not there; `TooLarge` beyond [`QUERY_BYTES_MAX`].
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, &ComputedProperties::default())
    }

    /// Reads a query over a container that has computed properties.
    ///
    /// # Errors
    ///
    /// As for [`Query::parse`]; `TooLarge` if the query would be beyond [`QUERY_BYTES_MAX`] with
    /// the computed properties that it names written out.
    pub fn parse_with(text: &str, computed: &ComputedProperties) -> Result<Self> {
        check_size(text)?;
        let mut select = parser::query(text)?;
        let named = Arc::new(resolve::query(&mut select, computed)?);
        Ok(Self { text: text.into(), select: Arc::new(select), named })
    }

    /// The text it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The query as it was understood.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn printed(&self) -> String {
        self.select.to_string()
    }

    /// How an SDK divides this query among the ranges of a container; serialises to the answer of a
    /// query plan request.
    ///
    /// # Errors
    ///
    /// `Invalid` if TOP, OFFSET or LIMIT names a parameter that is missing or no number of rows;
    /// `Unsupported` if the rows of several ranges cannot be joined to those of the query.
    pub fn plan(
        &self,
        definition: &PartitionKeyDefinition,
        parameters: &Parameters,
    ) -> Result<Plan> {
        plan::plan(&self.select, definition, parameters)
    }

    /// How the rows of several ranges make up the rows of this query.
    ///
    /// ```
    /// use millstream_query::{Joining, Query};
    ///
    /// let joining = |text| Query::parse(text).map(|it| it.joining());
    /// assert_eq!(joining("SELECT * FROM c WHERE c.age < 18")?, Joining::Appended);
    /// assert_eq!(joining("SELECT * FROM c ORDER BY c.age")?, Joining::Merged);
    /// assert_eq!(joining("SELECT COUNT(1) AS n, c.age FROM c GROUP BY c.age")?, Joining::Whole);
    /// # Ok::<(), millstream_query::Error>(())
    /// ```
    #[must_use]
    pub fn joining(&self) -> Joining {
        plan::joining(&self.select)
    }

    /// Whether the filter names one whole partition key, so that no other logical partition can
    /// have rows. A service that allows queries across partitions only when asked needs to know.
    ///
    /// # Errors
    ///
    /// `Store` if a key cannot be hashed.
    pub fn is_within_one_partition(
        &self,
        definition: &PartitionKeyDefinition,
        parameters: &Parameters,
    ) -> Result<bool> {
        access::is_within_one_partition(&self.select, definition, parameters)
    }

    /// The ranges of keys outside of which no item can have rows, in order; one that covers
    /// everything if the filter says nothing about the partition key.
    ///
    /// # Errors
    ///
    /// `Store` if a key cannot be hashed.
    pub fn key_ranges(
        &self,
        definition: &PartitionKeyDefinition,
        parameters: &Parameters,
    ) -> Result<Vec<KeyRange>> {
        access::ranges(&self.select, definition, parameters)
    }

    /// Answers one page from the items of a container.
    ///
    /// Equality on the id and the partition key, also within IN, AND and OR, becomes reads of these
    /// keys; everything else is a scan of the scope. The pages of a query joined are what one large
    /// page would be, as long as nobody writes in between.
    ///
    /// # Errors
    ///
    /// `Continuation` if the continuation belongs to another query; `Invalid` if a parameter is
    /// missing or the partition key of the scope does not fit the container; `TooLarge` if a
    /// limit is exceeded that a page cannot end at; `Store` if the container fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn execute(&self, documents: &dyn Documents, request: &Request<'_>) -> Result<Page> {
        let none = Parameters::default();
        request.parameters.unwrap_or(&none).check(&self.named.rows)?;
        page::execute(&self.text, &self.select, documents, request).await
    }

    /// All rows over a list of JSON objects that is at hand, such as the containers of a database.
    ///
    /// # Errors
    ///
    /// `Invalid` if a document is not JSON or a parameter is missing; `TooLarge` if the bytes of
    /// [`Limits`], or the steps that one document may take, are not enough.
    pub fn evaluate(
        &self,
        documents: &[Bytes],
        parameters: &Parameters,
        clock: &dyn Clock,
    ) -> Result<Vec<String>> {
        parameters.check(&self.named.rows)?;
        // Nobody else gets the thread before the last of the documents is done.
        let steps_max = Limits::default().document_steps_max;
        let limits = Limits { steps_max, ..Limits::default() };
        let mut evaluator = Evaluator::new(parameters, clock.now(), &limits);
        let mut values = Vec::with_capacity(documents.len());
        for document in documents {
            let value =
                json::read(document).map_err(|reason| Error::invalid("read a document", reason))?;
            values.push(value);
        }
        let rows = evaluator.all_rows(&self.select, &values)?;
        Ok(rows.iter().map(json::to_string).collect())
    }
}

pub(crate) fn check_size(text: &str) -> Result<()> {
    if QUERY_BYTES_MAX < text.len() {
        let reason = format!("it has {} bytes, more than {QUERY_BYTES_MAX}", text.len());
        return Err(Error::new(ErrorKind::TooLarge, "read the query", reason));
    }
    Ok(())
}
