//! Documents and change feed on Azure Cosmos DB, or on a remote Millstream, which speaks the same
//! protocol.
//!
//! It uses the driver of Microsoft's SDK, `azure_data_cosmos_driver`, on which the crate
//! `azure_data_cosmos` stands: connections, signatures, regions, retries and the cache of ranges
//! are its. The crate above it turns every body into a tree of values and back, which loses digits
//! and the order of properties; the driver takes and gives text.
//!
//! Not here: all versions and deletes in the feed (Cosmos DB shows them from now on only),
//! splitting and merging (it does so itself), retention guards and event numbers (it has none).
//! The [`Capabilities`](millstream_core::Capabilities) say so, and the calls are refused.
//!
//! # What is different from other backends
//!
//! - A waiting reader looks again every [`CosmosOptions::poll_interval`]; the service wakes nobody.
//! - [`Item::lsn`](millstream_core::Item::lsn) is known for what was just committed and for what
//!   comes from the feed. What is read or scanned has 0 on Azure, which does not say it; a remote
//!   Millstream does.
//! - Times are whole seconds.
//! - Azure keeps numbers as 64-bit floating point and may write a body anew; a remote Millstream
//!   gives back what was written. Top-level properties called `_rid`, `_self`, `_etag`,
//!   `_attachments`, `_ts` and `_lsn` belong to the service.
//! - A scan is in the order of the service, which is the order of keys on a remote Millstream.
//! - More than one range for a new container is asked for as throughput, 6,000 request units a
//!   second for each, which Azure charges.
//! - A commit whose answer was lost has an unknown effect. It is not looked up here: an item with
//!   the same body may be another writer's. Processor and outbox look for what only they write.
//! - Azure promises what obligation 6 says within one process, with the consistency level Session;
//!   across processes it needs Strong.
//!
//! Read `address` and `account` first, then `documents` and `feed`, then `failure`.
//!
//! ```no_run
//! // Needs an account to connect to.
//! use std::sync::Arc;
//! use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
//! use millstream_core::{Containers, ContainerName, SystemClock};
//!
//! # async fn example() -> millstream_core::Result<()> {
//! let address = Address::parse("cosmos+http://localhost:8081", None)?;
//! let clock = Arc::new(SystemClock::default());
//! let store = Cosmos::connect(&address, clock, CosmosOptions::default()).await?;
//! let container = store.open(&ContainerName::new("shop", "data")?).await?;
//! assert!(container.guards.is_none());
//! # Ok(())
//! # }
//! ```

mod account;
mod address;
mod batch_wire;
mod body;
mod calls;
mod container;
mod definition;
mod documents;
mod failure;
mod feed;
mod options;
mod position;
mod scan;

pub use crate::account::Cosmos;
pub use crate::address::Address;
pub use crate::options::CosmosOptions;
