//! Containers.

use http::StatusCode;
use millstream_core::{ContainerInfo, ContainerName, DatabaseInfo};
use serde_json::{Map, Value};

use crate::catalog::{self, ATTEMPTS_MAX, Entry, Owner};
use crate::definition::{self, Definition};
use crate::listing::Listed;
use crate::refusal::{Refusal, sub_status};
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::rid::Rid;
use crate::state::{Call, State};
use crate::{headers, listing, listing_query, offers, session};

/// What feeds call the containers in them.
const NAME: &str = "DocumentCollections";

pub(crate) async fn create(state: &State, request: &Request, database: &str) -> Answer {
    let database = owner(state, database).await?;
    let Definition { id, mut settings, kept } = Definition::parse(&request.body, None)?;
    let throughput = offers::requested(request)?;
    settings.ranges = throughput.map_or(1, |it| offers::ranges(it.most()));
    let name = ContainerName::new(&database.name, &id)?;
    let info = state.containers.create(&name, settings).await?;
    let entry = Entry { definition: kept, throughput };
    if entry != Entry::default() {
        state.catalog.begin(Owner::Container(info.resource_id), &entry).await?;
    }
    state.forget(&name);
    reply(StatusCode::CREATED, &info, &entry)
}

pub(crate) async fn list(state: &State, request: &Request, database: &str) -> Answer {
    let database = owner(state, database).await?;
    let rid = Rid::Database(database.resource_id).encode();
    let page = listing::page(request, NAME, &rid, all(state, &database).await?)?;
    Ok(of_database(page, &database.name, &rid))
}

pub(crate) async fn query(state: &State, request: &Request, database: &str) -> Answer {
    let database = owner(state, database).await?;
    let rid = Rid::Database(database.resource_id).encode();
    let page = listing_query::answer(state, request, NAME, &rid, all(state, &database).await?)?;
    Ok(of_database(page, &database.name, &rid))
}

pub(crate) async fn read(call: Call<'_>) -> Answer {
    // What is known may be older than what another process has replaced.
    let info = current(call).await?;
    let entry = call.state.catalog.read(Owner::Container(info.resource_id)).await?;
    if call.request.knows(&info.etag)? {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED).etag(&info.etag));
    }
    // Of one range alone, as in Cosmos DB: the SDKs for Java and .NET take no more from an answer
    // that is not of a query.
    let ranges = call.container.ranges();
    let seen = ranges.first().map(|it| (it.info.id, it.seen()));
    Ok(reply(StatusCode::OK, &info, &entry)?
        .header(&headers::SESSION_TOKEN, &session::tokens(seen))
        // There is nothing to build: whatever the policy says, it holds.
        .header(&headers::INDEX_PROGRESS, "100"))
}

pub(crate) async fn replace(call: Call<'_>) -> Answer {
    let old = current(call).await?;
    let Definition { id, settings, kept } =
        Definition::parse(&call.request.body, Some(&old.settings))?;
    if id != old.name.container() {
        return Err(Refusal::bad_request("the id of a container cannot be changed"));
    }
    let if_match = call.request.if_match()?;
    let info = call.state.containers.replace(&old.name, settings, if_match).await?;
    let entry = keep(call.state, &info, kept).await?;
    call.state.forget(&old.name);
    reply(StatusCode::OK, &info, &entry)
}

/// Keeps what goes with settings that the backend has now, unless they have been replaced again
/// meanwhile: whoever does that keeps what goes with those.
async fn keep(
    state: &State,
    info: &ContainerInfo,
    mut kept: Map<String, Value>,
) -> Result<Entry, Refusal> {
    for attempt in 0..ATTEMPTS_MAX {
        catalog::pause(attempt).await;
        let mut draft = state.catalog.draft(Owner::Container(info.resource_id)).await?;
        definition::keep_key(&mut kept, &draft.entry.definition);
        draft.entry.definition.clone_from(&kept);
        // Asked for in this order: what others keep after that overtakes the draft.
        let is_replaced = state.containers.open(&info.name).await?.info.etag != info.etag;
        if is_replaced || state.catalog.keep(&draft).await? {
            return Ok(draft.entry);
        }
    }
    Err(catalog::overtaken())
}

pub(crate) async fn delete(call: Call<'_>) -> Answer {
    let info = current(call).await?;
    if call.request.if_match()?.is_some_and(|it| it != info.etag) {
        let message = "the etag of the request is not that of the container";
        return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, message));
    }
    call.state.containers.delete(&info.name).await?;
    call.state.forget(&info.name);
    call.state.forget_throttle(info.resource_id);
    call.state.catalog.remove(Owner::Container(info.resource_id)).await?;
    // Unlike other answers about a container, this one names the container itself: the SDKs for
    // .NET and Java forget the session tokens of what is named here.
    Ok(call.container.name_paths(Reply::empty(StatusCode::NO_CONTENT).charge(5.0)))
}

/// The database a path names, as the owner of something.
async fn owner(state: &State, name: &str) -> Result<DatabaseInfo, Refusal> {
    let found = state.database(name).await;
    found.map_err(|it| it.sub_status(sub_status::OWNER_NOT_FOUND))
}

/// The container as the backend has it now.
async fn current(call: Call<'_>) -> Result<ContainerInfo, Refusal> {
    let known = call.container.info();
    let info = call.state.containers.open(&known.name).await?.info;
    if info.resource_id == known.resource_id {
        return Ok(info);
    }
    let message = format!("the container was deleted, and \"{}\" is another one now", known.name);
    let mut refusal = Refusal::not_found(message);
    refusal.is_container_gone = true;
    Err(refusal)
}

async fn all(state: &State, database: &DatabaseInfo) -> Result<Vec<Listed>, Refusal> {
    let mut found = Vec::new();
    for info in state.containers.list(&database.name).await? {
        let entry = state.catalog.read(Owner::Container(info.resource_id)).await?;
        let resource = definition::render(&info, &entry.definition);
        found.push(Listed { names: vec![info.name.container().to_owned()], resource });
    }
    Ok(found)
}

fn reply(status: StatusCode, info: &ContainerInfo, entry: &Entry) -> Answer {
    let body = definition::render(info, &entry.definition);
    let charge = if status == StatusCode::OK { 1.0 } else { 5.0 };
    let reply = Reply::json(status, &body)?.etag(&info.etag).charge(charge);
    let database = Rid::Database(info.resource_id.database).encode();
    Ok(of_database(reply, info.name.database(), &database))
}

/// Says which database it is about; the SDK for Java makes the names of containers from that.
fn of_database(reply: Reply, name: &str, rid: &str) -> Reply {
    reply
        .header(&headers::ALT_CONTENT_PATH, &headers::path(&["dbs", name]))
        .header(&headers::CONTENT_PATH, rid)
}
