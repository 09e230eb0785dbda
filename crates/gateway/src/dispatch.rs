//! From a request to the handler that serves it, and from what it returns to an answer.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use uuid::Uuid;

use crate::headers;
use crate::open_container::OpenContainer;
use crate::refusal::{Refusal, sub_status};
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::state::{Call, Found, State};
use crate::target::{Below, ContainerPath, Target};
use crate::{
    account, batch, changes, charge, conflicts, containers, databases, delete_by_key, feed, intent,
    item_pages, items, management, offers, query, ranges, throttle,
};

/// Serves a request whose signature holds.
pub(crate) async fn dispatch(state: &Arc<State>, request: Request) -> Answer {
    if intent::changes_definition(&request.method, &request.path.target, &request.headers) {
        return Box::pin(changes::carry_out(state, request)).await;
    }
    serve(state, &request).await
}

/// Serves a request for as long as somebody waits for the answer.
pub(crate) async fn serve(state: &State, request: &Request) -> Answer {
    match &request.path.target {
        Target::Container(path, below) => in_container(state, request, path, below).await,
        target @ (Target::Account
        | Target::Databases
        | Target::Database(_)
        | Target::Containers(_)
        | Target::Offers
        | Target::Offer(_)
        | Target::Split(..)
        | Target::Merge(_)
        | Target::Operation(_)
        | Target::Unsupported(_)) => Box::pin(outside(state, request, target)).await,
    }
}

/// Serves what is in no container.
async fn outside(state: &State, request: &Request, target: &Target) -> Answer {
    let is_query = request.method == Method::POST && intent::is_query(&request.headers);
    let method = match request.method.as_str() {
        "POST" if is_query => "QUERY",
        other => other,
    };
    match (target, method) {
        (Target::Account, "GET") => account::read(state, request),
        (Target::Databases, "GET") => databases::list(state, request).await,
        (Target::Databases, "POST") => databases::create(state, request).await,
        (Target::Databases, "QUERY") => databases::query(state, request).await,
        (Target::Database(name), "GET") => databases::read(state, request, name).await,
        (Target::Database(name), "DELETE") => databases::delete(state, request, name).await,
        (Target::Containers(database), "GET") => containers::list(state, request, database).await,
        (Target::Containers(database), "POST") => {
            containers::create(state, request, database).await
        }
        (Target::Containers(database), "QUERY") => {
            containers::query(state, request, database).await
        }
        (Target::Offers, "GET") => offers::list(state, request).await,
        (Target::Offers, "QUERY") => offers::query(state, request).await,
        (Target::Offer(rid), "GET") => offers::read(state, rid).await,
        (Target::Offer(rid), "PUT") => offers::replace(state, request, rid).await,
        (Target::Split(path, range), "POST") => {
            management::split(state, request, path, range).await
        }
        (Target::Merge(path), "POST") => management::merge(state, request, path).await,
        (Target::Operation(id), "GET") => management::operation(state, id),
        (Target::Unsupported(what), _) => Err(Refusal::unsupported(what)),
        (
            Target::Account
            | Target::Databases
            | Target::Database(_)
            | Target::Containers(_)
            | Target::Container(..)
            | Target::Offers
            | Target::Offer(_)
            | Target::Split(..)
            | Target::Merge(_)
            | Target::Operation(_),
            _,
        ) => Err(Refusal::method_not_allowed()),
    }
}

/// Serves something of a container; once more if the container turns out to be another one now.
async fn in_container(
    state: &State,
    request: &Request,
    path: &ContainerPath,
    below: &Below,
) -> Answer {
    let found = find(state, path, below).await?;
    let answer = in_open(state, request, &found, below).await;
    let Err(refusal) = answer else { return answer };
    if !refusal.is_container_gone || state.still_holds(&found.container).await? {
        return Err(refusal);
    }
    state.forget(&found.container.info().name);
    let found = find(state, path, below).await?;
    in_open(state, request, &found, below).await
}

async fn find(state: &State, path: &ContainerPath, below: &Below) -> Result<Found, Refusal> {
    state.container(path).await.map_err(|refusal| match below {
        Below::Itself => refusal,
        Below::Ranges
        | Below::Items
        | Below::Item(_)
        | Below::DeleteByKey
        | Below::Conflicts
        | Below::Conflict
            if refusal.status == StatusCode::NOT_FOUND =>
        {
            refusal.sub_status(sub_status::OWNER_NOT_FOUND)
        }
        Below::Ranges
        | Below::Items
        | Below::Item(_)
        | Below::DeleteByKey
        | Below::Conflicts
        | Below::Conflict => refusal,
    })
}

async fn in_open(state: &State, request: &Request, found: &Found, below: &Below) -> Answer {
    let container = &found.container;
    check_intended(request, container)?;
    if request.method != Method::GET {
        check_triggers(request)?;
    }
    // What a container is has a budget of its own in Cosmos DB: a client that is told to wait may
    // have to look at its ranges before it comes again.
    let is_metered = !matches!(below, Below::Itself | Below::Ranges);
    if is_metered && let Err(wait) = container.throttle.admit(state.clock.monotonic()) {
        return Err(with_paths(throttle::refusal(wait), container));
    }
    let call = Call { state, request, container, is_by_rid: found.is_by_rid };
    let answer = call_handler(call, below).await;
    if is_metered {
        container.throttle.spend(answer.as_ref().map_or(charge::REFUSED, Reply::unpaid));
    }
    match answer {
        Ok(reply) => {
            // What owns the container itself is its database, and its handlers say so.
            if matches!(below, Below::Itself) {
                return Ok(reply);
            }
            Ok(container.name_paths(reply))
        }
        Err(refusal) => Err(with_paths(refusal, container)),
    }
}

fn with_paths(refusal: Refusal, container: &OpenContainer) -> Refusal {
    refusal
        .header(headers::ALT_CONTENT_PATH, &container.name_path)
        .header(headers::CONTENT_PATH, &container.rid)
}

/// What most requests are for is served right here. The others have large futures, which would be
/// moved around with every request.
async fn call_handler(call: Call<'_>, below: &Below) -> Answer {
    let (request, method) = (call.request, call.request.method.as_str());
    match (below, method) {
        (Below::Items, "POST")
            if intent::only_reads(&request.method, &request.path.target, &request.headers) =>
        {
            Box::pin(call_other(call, below)).await
        }
        (Below::Items, "POST") if request.flag(&headers::IS_BATCH) => batch::execute(call).await,
        (Below::Items, "POST") if request.flag(&headers::IS_UPSERT) => items::upsert(call).await,
        (Below::Items, "POST") => items::create(call).await,
        (Below::Item(id), "GET") => items::read(call, id).await,
        (Below::Item(id), "PUT") => items::replace(call, id).await,
        (Below::Item(id), "PATCH") => items::patch(call, id).await,
        (Below::Item(id), "DELETE") => items::delete(call, id).await,
        (
            Below::Itself
            | Below::Ranges
            | Below::Items
            | Below::Item(_)
            | Below::DeleteByKey
            | Below::Conflicts
            | Below::Conflict,
            _,
        ) => Box::pin(call_other(call, below)).await,
    }
}

async fn call_other(call: Call<'_>, below: &Below) -> Answer {
    let (request, method) = (call.request, call.request.method.as_str());
    match (below, method) {
        (Below::Itself, "GET") => containers::read(call).await,
        (Below::Itself, "PUT") => containers::replace(call).await,
        (Below::Itself, "DELETE") => containers::delete(call).await,
        (Below::Ranges, "GET") => ranges::read(call).await,
        (Below::Items, "POST") if intent::is_plan(&request.headers) => query::plan(call).await,
        (Below::Items, "POST") if feed::is_named(request) => Err(feed::queried()),
        (Below::Items, "POST") => query::execute(call).await,
        (Below::Items, "GET") if request.headers.contains(&headers::A_IM) => feed::read(call).await,
        (Below::Items, "GET") => item_pages::list(call).await,
        (Below::DeleteByKey, "POST") => delete_by_key::execute(call).await,
        (Below::Conflicts, "GET" | "POST") => conflicts::list(call),
        (Below::Conflict, "GET" | "DELETE") => conflicts::one(),
        (
            Below::Itself
            | Below::Ranges
            | Below::Items
            | Below::Item(_)
            | Below::DeleteByKey
            | Below::Conflicts
            | Below::Conflict,
            _,
        ) => Err(Refusal::method_not_allowed()),
    }
}

/// A write whose triggers do not run is not the write that was asked for.
fn check_triggers(request: &Request) -> Result<(), Refusal> {
    for name in [headers::PRE_TRIGGER, headers::POST_TRIGGER] {
        if request.text(&name)?.is_some_and(|it| !it.is_empty()) {
            return Err(Refusal::unsupported("triggers"));
        }
    }
    Ok(())
}

/// A client that knows an earlier container of this name has to look it up again.
fn check_intended(request: &Request, container: &OpenContainer) -> Result<(), Refusal> {
    let intended = request.text(&headers::INTENDED_CONTAINER)?.filter(|it| !it.is_empty());
    if intended.is_none_or(|it| it == container.rid) {
        return Ok(());
    }
    let message = "the container of this name is not the one the request is meant for: it was \
                   deleted and created again";
    let mut refusal = Refusal::bad_request(message).sub_status(sub_status::CONTAINER_MISMATCH);
    // It may as well be the newer one, and what is open here the earlier.
    refusal.is_container_gone = true;
    Err(with_paths(refusal, container))
}

/// The answer that goes out: what every answer has, and the body.
pub(crate) fn respond(answer: Answer, activity_id: Uuid, duration: Duration) -> Reply {
    let reply = answer.unwrap_or_else(|refusal| {
        let body = refusal.body();
        let mut reply = Reply::new(refusal.status, body).charge(charge::REFUSED);
        for (name, value) in &refusal.headers {
            reply.lines.add(name, value.as_bytes());
        }
        match refusal.sub_status {
            Some(value) => reply.header(&headers::SUB_STATUS, &value.to_string()),
            None => reply,
        }
    });
    reply.finished(activity_id, duration)
}
