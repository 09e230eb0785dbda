//! Databases.

use http::StatusCode;
use millstream_core::{DatabaseInfo, Etag};
use serde_json::{Value, json};

use crate::catalog::{Entry, Owner};
use crate::listing::Listed;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply, quoted};
use crate::request::Request;
use crate::rid::Rid;
use crate::state::State;
use crate::{listing, listing_query, offers};

/// What feeds call the databases in them.
const NAME: &str = "Databases";

pub(crate) async fn create(state: &State, request: &Request) -> Answer {
    let body = listing::object(&request.body)?;
    let id = listing::id(&body)?;
    check_reserved(state, id)?;
    let throughput = offers::requested(request)?;
    let info = state.containers.create_database(id).await?;
    if throughput.is_some() {
        let entry = Entry { throughput, ..Entry::default() };
        state.catalog.begin(Owner::Database(info.resource_id), &entry).await?;
    }
    Ok(Reply::json(StatusCode::CREATED, &render(&info))?.etag(&etag(&info)).charge(5.0))
}

pub(crate) async fn read(state: &State, request: &Request, name: &str) -> Answer {
    let info = state.database(name).await?;
    if request.knows(&etag(&info))? {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED).etag(&etag(&info)));
    }
    Ok(Reply::json(StatusCode::OK, &render(&info))?.etag(&etag(&info)))
}

pub(crate) async fn list(state: &State, request: &Request) -> Answer {
    let databases = state.databases().await?;
    listing::page(request, NAME, "", databases.iter().map(listed).collect())
}

pub(crate) async fn query(state: &State, request: &Request) -> Answer {
    let databases = state.databases().await?;
    let databases = databases.iter().map(listed).collect();
    listing_query::answer(state, request, NAME, "", databases)
}

pub(crate) async fn delete(state: &State, request: &Request, name: &str) -> Answer {
    let info = state.database(name).await?;
    if request.if_match()?.is_some_and(|it| it != etag(&info)) {
        let message = "the etag of the request is not that of the database";
        return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, message));
    }
    let containers = state.containers.list(&info.name).await?;
    let deleted = state.containers.delete_database(&info.name).await;
    // It may have come to half of it.
    state.forget_database(&info);
    deleted?;
    for container in containers {
        state.catalog.remove(Owner::Container(container.resource_id)).await?;
    }
    state.catalog.remove(Owner::Database(info.resource_id)).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT).charge(5.0))
}

/// A database never changes, so that its etag follows from what it is.
fn etag(info: &DatabaseInfo) -> Etag {
    let time = info.created_at.as_millis();
    Etag::new(format!("{:08x}-0000-0000-0000-{time:012x}", info.resource_id))
}

fn listed(info: &DatabaseInfo) -> Listed {
    Listed { names: vec![info.name.clone()], resource: render(info) }
}

fn render(info: &DatabaseInfo) -> Value {
    let rid = Rid::Database(info.resource_id).encode();
    json!({
        "id": info.name,
        "_self": format!("dbs/{rid}/"),
        "_rid": rid,
        "_etag": quoted(&etag(info)),
        "_colls": "colls/",
        "_users": "users/",
        "_ts": info.created_at.as_millis() / 1000,
    })
}

/// The gateway's own database is nobody's to create.
fn check_reserved(state: &State, id: &str) -> Result<(), Refusal> {
    if id != state.options.own_database {
        return Ok(());
    }
    let message = format!("the database {id:?} is reserved for the service itself");
    Err(Refusal::new(StatusCode::FORBIDDEN, message))
}
