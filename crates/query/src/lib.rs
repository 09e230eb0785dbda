//! The query language of Azure Cosmos DB over the JSON items of a container.
//!
//! A [`Query`] is parsed once. [`Query::execute`] answers one page of it from any
//! [`Documents`](millstream_core::Documents): predicates on the id and the partition key become
//! key lookups, the work of a page is bounded, and a continuation goes on where it ended.
//! [`Query::plan`] says how an SDK that asks would divide the query among ranges;
//! [`Query::evaluate`] runs it over a short list, such as the containers of a database;
//! [`Condition`] is the filter of a patch.
//!
//! Not here: HTTP, headers and status codes (`millstream-gateway`), indexes.
//!
//! # The language
//!
//! - SELECT `*`, VALUE, lists with aliases, object and array constructors; DISTINCT, TOP.
//! - FROM with an alias, a path, `x IN …`, JOIN, queries in parentheses; WHERE; GROUP BY; ORDER BY
//!   several keys; OFFSET and LIMIT. ORDER BY sorts values of different kinds as documented:
//!   undefined, null, false, true, numbers, strings, arrays, objects. Groups come in that order of
//!   what they are grouped by, if nothing else is asked for.
//! - AND, OR, NOT, IN, BETWEEN, LIKE with ESCAPE, `??`, `? :`, `||`, arithmetic, bits, comparison;
//!   `@parameters`; scalar queries, EXISTS and ARRAY.
//! - AVG, COUNT, COUNTIF, MAKELIST, MAKESET, MAX, MIN, SUM, and about 120 functions of strings,
//!   arrays, sets, numbers, kinds of values, dates and times.
//!
//! Values of different kinds are not equal, and neither is less; an operation on the wrong kind is
//! undefined. Numbers are compared and calculated as doubles, and come back as they were written;
//! the functions of integers work on 64 bits.
//!
//! Not here: user-defined functions, geography, vector and full-text search. They are refused
//! with a sentence.
//!
//! # Reading on
//!
//! Read `query` first, then `ast` and `parser` (text to tree), `evaluate` (one document), `access`
//! (which keys are read) and `page` (many documents, bounded); `plan` stands alone.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_core::conformance::block_on;
//! use millstream_core::memory::Memory;
//! use millstream_core::*;
//! use millstream_query::{Limits, Parameters, Query, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(SystemClock::default());
//! let store = Memory::new(clock.clone());
//! let definition = PartitionKeyDefinition::hash("/city")?;
//! block_on(async {
//!     store.create_database("app").await?;
//!     let name = ContainerName::new("app", "people")?;
//!     store.create(&name, ContainerSettings::new(definition.clone())).await?;
//!     let people = store.open(&name).await?;
//!     for (id, age) in [(1, 41), (2, 5)] {
//!         let body = format!(r#"{{"id":"{id}","city":"Bern","age":{age}}}"#);
//!         people.documents.commit(Batch::new("Bern").with(Operation::create(body))).await?;
//!     }
//!
//!     let query = Query::parse("SELECT VALUE p.id FROM p WHERE p.city = @city AND p.age < 18")?;
//!     let parameters = Parameters::from_json(br#"[{"name": "@city", "value": "Bern"}]"#)?;
//!     let request = Request::new(&definition, &*clock).with_parameters(&parameters);
//!     let page = query.execute(&*people.documents, &request).await?;
//!     assert_eq!(page.rows, [r#""2""#]);
//!     assert_eq!(page.continuation, None);
//!     # let _ = Limits::default();
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })
//! # }
//! ```

mod access;
mod aggregate;
mod ast;
mod compare;
mod computed;
mod condition;
mod continuation;
mod datetime;
mod error;
mod evaluate;
mod functions;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gather;
mod json;
mod lexer;
mod measure;
mod page;
mod parameters;
mod parser;
mod plan;
mod print;
mod query;
mod request;
mod resolve;
mod select;
mod usage;
mod value;

pub use crate::computed::ComputedProperties;
pub use crate::condition::Condition;
pub use crate::error::{Error, ErrorKind, Position, Result};
pub use crate::parameters::{Parameters, ResumeFilter, Specification};
pub use crate::plan::{Joining, Plan};
pub use crate::query::{QUERY_BYTES_MAX, Query};
pub use crate::request::{Limits, Page, Request, Scope};
