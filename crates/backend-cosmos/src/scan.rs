//! Scans: a query for everything, page by page.

use azure_data_cosmos_driver::models::{
    ContinuationToken, CosmosOperation, MaxItemCountHint, ResponseBody,
};
use azure_data_cosmos_driver::options::{OperationOptions, PlanOptions, QueryPlanMode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use millstream_core::{Error, Lsn, PageSize, Result, ScanContinuation, ScanPage, ScanScope};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::container::{OpenContainer, feed_range};
use crate::failure::{Access, failure, unreadable};

/// Everything, in the order of the service.
const QUERY: &[u8] = br#"{"query":"SELECT * FROM c","parameters":[]}"#;
/// Most requests for one page; a range without items needs one as well.
const REQUESTS_MAX: usize = 32;
const ATTEMPTED: &str = "scan items";

/// One page of a scan.
///
/// The service ends a page with each range; requests follow each other until ours is full.
pub(crate) async fn page(
    container: &OpenContainer,
    scope: &ScanScope,
    after: Option<&ScanContinuation>,
    size: PageSize,
) -> Result<ScanPage> {
    let (label, target) = match scope {
        ScanScope::Partition(key) => (format!("p{key}"), container.partition(key)?),
        ScanScope::Keys(keys) => (format!("k{keys}"), feed_range(keys)?),
    };
    let mut token = after.map(|it| token(it, &label)).transpose()?;
    let size = size.clamped();
    let (mut items, mut bytes) = (Vec::new(), 0);
    for _ in 0..REQUESTS_MAX {
        let rest = PageSize { items_max: size.items_max - items.len(), ..size };
        let operation =
            CosmosOperation::query_items(container.reference.clone(), Some(target.clone()))
                .with_max_item_count(item_count(rest))
                .with_body(QUERY.to_vec());
        let (texts, next) = request(container, operation, token.as_ref()).await?;
        for text in texts {
            bytes += text.len();
            items.push(container.item(&text, Lsn::ZERO, ATTEMPTED)?);
        }
        token = next;
        if token.is_none() || size.items_max <= items.len() || size.bytes_max <= bytes {
            break;
        }
    }
    Ok(ScanPage { items, continuation: token.map(|it| continuation(&label, &it)) })
}

/// The items of one answer and where to go on; the end if there is no token.
async fn request(
    container: &OpenContainer,
    operation: CosmosOperation,
    after: Option<&ContinuationToken>,
) -> Result<(Vec<String>, Option<ContinuationToken>)> {
    let failed = |error| failure(&error, ATTEMPTED, Access::Read);
    let (driver, options) = (container.account.driver(), OperationOptions::default());
    let plan_options = plan_options();
    let planned = Box::pin(driver.plan_operation(operation, &options, after, &plan_options));
    let mut plan = planned.await.map_err(failed)?;
    let reference = Some(container.reference.clone());
    let page = Box::pin(driver.execute_plan(&mut plan, reference, options));
    let Some(page) = page.await.map_err(failed)? else { return Ok((Vec::new(), None)) };
    Ok((documents(page.into_body())?, Some(plan.to_continuation_token().map_err(failed)?)))
}

/// The hint for the service how many items a page should have.
pub(crate) fn item_count(size: PageSize) -> MaxItemCountHint {
    let items = u32::try_from(size.clamped().items_max).ok().and_then(std::num::NonZeroU32::new);
    items.map_or(MaxItemCountHint::ServerDecides, MaxItemCountHint::Limit)
}

fn plan_options() -> PlanOptions {
    let mut options = PlanOptions::default();
    // A query without any condition needs no plan of the service.
    options.query_plan_mode = QueryPlanMode::LocalPreferred;
    // A container may have any number of ranges; they are read one after the other.
    options.max_fan_out = u32::MAX;
    options
}

/// The texts of the items of a page.
fn documents(body: ResponseBody) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(rename = "Documents", borrow)]
        documents: Vec<&'a RawValue>,
    }

    let strange = |error: serde_json::Error| unreadable(ATTEMPTED, error, Access::Read);
    match body {
        ResponseBody::NoPayload => Ok(Vec::new()),
        ResponseBody::Bytes(bytes) => {
            let page: Page<'_> = serde_json::from_slice(&bytes).map_err(strange)?;
            Ok(page.documents.iter().map(|it| it.get().to_owned()).collect())
        }
        ResponseBody::Items(items) => items.iter().map(text).collect(),
    }
}

fn text(bytes: &Bytes) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    Ok(text.map_err(|error| unreadable(ATTEMPTED, error, Access::Read))?.to_owned())
}

/// Ours says which scan it belongs to, because the SDK's does not.
fn continuation(label: &str, token: &ContinuationToken) -> ScanContinuation {
    let label = URL_SAFE_NO_PAD.encode(label);
    ScanContinuation::new(format!("1.{label}.{}", token.as_str()))
}

fn token(after: &ScanContinuation, label: &str) -> Result<ContinuationToken> {
    let refused = |reason: &str| Error::invalid("go on with the scan", reason);
    let parts = after.as_str().strip_prefix("1.").and_then(|it| it.split_once('.'));
    let Some((of, token)) = parts.filter(|(_, token)| token.starts_with("c1.")) else {
        return Err(refused("the continuation was not given out by a scan"));
    };
    if of != URL_SAFE_NO_PAD.encode(label) {
        return Err(refused("the continuation belongs to another scan"));
    }
    Ok(ContinuationToken::from_string(token.to_owned()))
}
