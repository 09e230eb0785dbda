//! One account: calls to the service, and its databases and containers.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_data_cosmos_driver::models::{
    AccountReference, ContainerReference, CosmosOperation, CosmosRequestHeaders, DatabaseReference,
    Precondition, ResponseBody,
};
use azure_data_cosmos_driver::options::{DriverOptions, OperationOptions, PlanOptions};
use azure_data_cosmos_driver::{CosmosDriver, CosmosDriverRuntime, CosmosResponse};
use bytes::Bytes;
use millstream_core::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Capabilities, Clock, Container, ContainerInfo,
    ContainerName, ContainerSettings, Containers, DatabaseInfo, EffectiveKey, Error, ErrorKind,
    Etag, ITEM_BYTES_MAX, RangeId, RangeInfo, Result, check_name,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::address::Address;
use crate::calls;
use crate::container::OpenContainer;
use crate::definition::{self, ContainerWire, DatabaseWire};
use crate::failure::{Access, failure, unreadable};
use crate::options::CosmosOptions;

/// Throughput for which the service makes one range more.
const UNITS_PER_RANGE: u64 = 6_000;
/// Most pages of a list of databases or containers.
const LIST_PAGES_MAX: usize = 1_000;

/// An account of Azure Cosmos DB, or a remote Millstream.
///
/// A clone is the same account and shares its connections.
#[derive(Clone)]
pub struct Cosmos {
    account: Arc<Account>,
}

/// The driver and what goes with every call.
pub(crate) struct Account {
    driver: Arc<CosmosDriver>,
    reference: AccountReference,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: CosmosOptions,
}

impl Cosmos {
    /// Connects to the account and reads its description.
    ///
    /// Needs a Tokio runtime, now and in every later call.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it cannot be reached, `Invalid` if it refuses the key or an option makes no
    /// sense.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn connect(
        address: &Address,
        clock: Arc<dyn Clock>,
        options: CosmosOptions,
    ) -> Result<Self> {
        options.check()?;
        // Fails if the process has chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let attempted = format!("connect to {}", address.endpoint());
        let failed = |error| failure(&error, attempted.clone(), Access::Read);
        let timeout = options.call_timeout_value();
        let connections = calls::connections(timeout).map_err(failed)?;
        let runtime = CosmosDriverRuntime::builder().with_connection_pool(connections);
        let runtime = runtime.build().await.map_err(failed)?;
        let key = address.key().to_owned();
        let reference = AccountReference::with_account_key(address.url().clone(), key);
        let driver = DriverOptions::builder(reference.clone())
            .with_operation_options(calls::for_all(timeout))
            .build();
        let driver = Box::pin(runtime.create_driver(driver)).await.map_err(failed)?;
        Ok(Self { account: Arc::new(Account { driver, reference, clock, options }) })
    }
}

impl fmt::Debug for Cosmos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = self.account.reference.endpoint().as_str();
        f.debug_struct("Cosmos").field("endpoint", &endpoint).finish_non_exhaustive()
    }
}

impl Account {
    /// Sends one request, again if its answer is lost.
    pub(crate) async fn call(
        &self,
        operation: CosmosOperation,
        attempted: &str,
        access: Access,
    ) -> Result<CosmosResponse> {
        self.call_with(operation, OperationOptions::default(), attempted, access).await
    }

    pub(crate) async fn call_with(
        &self,
        operation: CosmosOperation,
        options: OperationOptions,
        attempted: &str,
        access: Access,
    ) -> Result<CosmosResponse> {
        match Box::pin(self.driver.execute_operation(operation, options)).await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(unreadable(attempted, "the service did not answer", access)),
            Err(error) => Err(failure(&error, attempted, access)),
        }
    }

    /// Sends one request and reads the answer as JSON.
    async fn call_for<T: DeserializeOwned>(
        &self,
        operation: CosmosOperation,
        attempted: &str,
        access: Access,
    ) -> Result<T> {
        let body = single(self.call(operation, attempted, access).await?, attempted, access)?;
        serde_json::from_slice(&body).map_err(|error| unreadable(attempted, error, access))
    }

    /// All pages of a list, each as the service sent it.
    async fn pages(&self, operation: CosmosOperation, attempted: &str) -> Result<Vec<Bytes>> {
        let failed = |error| failure(&error, attempted, Access::Read);
        let options = OperationOptions::default();
        let plan_options = PlanOptions::default();
        let plan = Box::pin(self.driver.plan_operation(operation, &options, None, &plan_options));
        let mut plan = plan.await.map_err(failed)?;
        let mut pages = Vec::new();
        for _ in 0..LIST_PAGES_MAX {
            let page = Box::pin(self.driver.execute_plan(&mut plan, None, options.clone()));
            let Some(page) = page.await.map_err(failed)? else { return Ok(pages) };
            pages.push(single(page, attempted, Access::Read)?);
        }
        Err(unreadable(attempted, "the list does not end", Access::Read))
    }

    pub(crate) fn driver(&self) -> &CosmosDriver {
        &self.driver
    }

    /// The ranges of a container, asked for again if `is_fresh`.
    pub(crate) async fn ranges(
        &self,
        container: &ContainerReference,
        is_fresh: bool,
    ) -> Result<Vec<RangeInfo>> {
        let attempted = "ask for the ranges of the container";
        if is_fresh {
            // The SDK goes on with the ranges it remembers when it cannot ask, also when there is
            // no such container any more.
            self.call(CosmosOperation::read_container(container.clone()), attempted, Access::Read)
                .await?;
        }
        let found = Box::pin(self.driver.resolve_all_partition_key_ranges(container, is_fresh));
        let found = found.await.map_err(|error| failure(&error, attempted, Access::Read))?;
        let Some(found) = found else {
            return Err(unreadable(attempted, "the service did not tell", Access::Read));
        };
        let range = |text: &str| {
            let id = text.parse().map(RangeId);
            id.map_err(|error| unreadable(attempted, error, Access::Read))
        };
        let key = |text: String| text.parse::<EffectiveKey>();
        let mut ranges = Vec::with_capacity(found.len());
        for one in &found {
            let (min, max) = (key(one.min_inclusive.to_hex())?, key(one.max_exclusive.to_hex())?);
            let parents = one.parents.iter().flatten().map(|it| range(it));
            ranges.push(RangeInfo {
                id: range(&one.id)?,
                keys: millstream_core::KeyRange::new(min, max)?,
                parents: parents.collect::<Result<_>>()?,
            });
        }
        Ok(ranges)
    }

    fn database(&self, name: &str) -> DatabaseReference {
        DatabaseReference::from_name(self.reference.clone(), name.to_owned())
    }

    async fn describe<T: DeserializeOwned>(
        &self,
        name: &ContainerName,
        attempted: &str,
    ) -> Result<T> {
        let database = self.database(name.database());
        let read = CosmosOperation::read_container_by_name(database, name.container().to_owned());
        self.call_for(read, attempted, Access::Read).await
    }

    /// The container with this resource id, which never means another one of the same name.
    async fn resolve(&self, rid: &str, attempted: &str) -> Result<ContainerReference> {
        let options = OperationOptions::default();
        let found = Box::pin(self.driver.resolve_container_by_rid(rid, options)).await;
        found.map_err(|error| failure(&error, attempted, Access::Read))
    }

    /// What it is now; that it was changed is certain, whatever happens here.
    async fn info_after_change(&self, wire: ContainerWire, of: &str) -> Result<ContainerInfo> {
        self.info(wire, of).await.map_err(Error::with_unknown_effect)
    }

    async fn info(&self, wire: ContainerWire, database: &str) -> Result<ContainerInfo> {
        let attempted = format!("describe container {:?}", wire.id);
        let container = self.resolve(&wire.rid, &attempted).await?;
        let ranges = self.ranges(&container, true).await?.len();
        wire.info(database, ranges)
    }
}

#[async_trait]
impl Containers for Cosmos {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_versions: false,
            split: false,
            merge: false,
            retention_guard: false,
            event_sequence: false,
            unique_keys: true,
            durable: true,
            batch_operations_max: BATCH_OPERATIONS_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            item_bytes_max: ITEM_BYTES_MAX,
        }
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        check_name(name)?;
        let create = CosmosOperation::create_database(self.account.reference.clone())
            .with_body(json!({ "id": name }).to_string().into_bytes());
        let attempted = format!("create database {name:?}");
        let created: DatabaseWire =
            self.account.call_for(create, &attempted, Access::Write).await?;
        created.info()
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let delete = CosmosOperation::delete_database(self.account.database(name));
        let attempted = format!("delete database {name:?}");
        // The second time it might be another one of this name.
        self.account.call_with(delete, calls::once(), &attempted, Access::Write).await?;
        Ok(())
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(rename = "Databases")]
            databases: Vec<DatabaseWire>,
        }

        let attempted = "list the databases";
        let list = CosmosOperation::read_all_databases(self.account.reference.clone());
        let mut found = Vec::new();
        for page in self.account.pages(list, attempted).await? {
            let page: Page = serde_json::from_slice(&page)
                .map_err(|error| unreadable(attempted, error, Access::Read))?;
            for database in page.databases {
                found.push(database.info()?);
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        definition::check(&settings)?;
        let mut headers = CosmosRequestHeaders::new();
        if 1 < settings.ranges {
            headers.offer_throughput = Some(u64::from(settings.ranges) * UNITS_PER_RANGE);
        }
        let create = CosmosOperation::create_container(self.account.database(name.database()))
            .with_request_headers(headers)
            .with_body(definition::new_container(name, &settings));
        let attempted = format!("create container \"{name}\"");
        let created = self.account.call_for(create, &attempted, Access::Write).await?;
        self.account.info_after_change(created, name.database()).await
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        definition::check(&settings)?;
        let attempted = format!("replace the settings of container \"{name}\"");
        let mut body: Map<String, Value> = self.account.describe(name, &attempted).await?;
        let wire = ContainerWire::deserialize(Value::Object(body.clone()))
            .map_err(|error| unreadable(&attempted, error, Access::Read))?;
        let container = self.account.resolve(&wire.rid, &attempted).await?;
        let old = wire.info(name.database(), 1)?;
        settings.check_replacing(&ContainerSettings {
            event_type: settings.event_type.clone(),
            ..old.settings
        })?;
        definition::apply(&mut body, &settings);
        // Without a condition of the caller, what was read here must still be true.
        let etag = if_match.unwrap_or(old.etag);
        let replace = CosmosOperation::replace_container(container)
            .with_precondition(Precondition::if_match(etag.as_str().to_owned()))
            .with_body(Value::Object(body).to_string().into_bytes());
        let replaced = self.account.call_for(replace, &attempted, Access::Write).await?;
        self.account.info_after_change(replaced, name.database()).await
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        let attempted = format!("delete container \"{name}\"");
        let wire: ContainerWire = self.account.describe(name, &attempted).await?;
        let container = self.account.resolve(&wire.rid, &attempted).await?;
        let delete = CosmosOperation::delete_container(container);
        self.account.call(delete, &attempted, Access::Write).await?;
        Ok(())
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(rename = "DocumentCollections")]
            containers: Vec<ContainerWire>,
        }

        check_name(database)?;
        let attempted = format!("list the containers of database {database:?}");
        let list = CosmosOperation::read_all_containers(self.account.database(database));
        let mut found = Vec::new();
        for page in self.account.pages(list, &attempted).await? {
            let page: Page = serde_json::from_slice(&page)
                .map_err(|error| unreadable(&attempted, error, Access::Read))?;
            for container in page.containers {
                match self.account.info(container, database).await {
                    Ok(info) => found.push(info),
                    // It was deleted since the list was made.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    async fn open(&self, name: &ContainerName) -> Result<Container> {
        let attempted = format!("open container \"{name}\"");
        let wire: ContainerWire = self.account.describe(name, &attempted).await?;
        let reference = self.account.resolve(&wire.rid, &attempted).await?;
        let info = self.account.info(wire, name.database()).await?;
        let open = OpenContainer::new(Arc::clone(&self.account), reference, info.clone());
        let open = Arc::new(open);
        Ok(Container { info, documents: open.clone(), feed: open, guards: None })
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        _: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        Err(unsupported(format!("split range {range:?} of container \"{name}\"")))
    }

    async fn merge(
        &self,
        name: &ContainerName,
        left: RangeId,
        right: RangeId,
    ) -> Result<RangeInfo> {
        Err(unsupported(format!("merge ranges {left:?} and {right:?} of container \"{name}\"")))
    }
}

/// The body of an answer that has one.
pub(crate) fn single(response: CosmosResponse, attempted: &str, access: Access) -> Result<Bytes> {
    let body: ResponseBody = response.into_body();
    body.single().map_err(|error| unreadable(attempted, error, access))
}

fn unsupported(attempted: String) -> Error {
    let reason = "Cosmos DB divides containers itself, when they grow or get more throughput";
    Error::new(ErrorKind::Unsupported, attempted).because(reason)
}
