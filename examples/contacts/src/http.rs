//! The REST interface. Each route is one call of the service.
//!
//! Read this file first, then `body` and `headers` (what comes in) and `problem` (what goes out
//! when something is wrong).

mod body;
pub(crate) mod headers;
pub(crate) mod problem;
pub(crate) mod server;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use millstream_core::Etag;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::http::body::json;
use crate::http::headers::{etag_value, if_match, is_known, trace};
use crate::http::problem::Problem;
use crate::{CompanyDraft, ContactService, ContactSummary, Draft, Invalid, OPENAPI};

/// Largest body of a request.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Contacts on a page when the caller does not say.
const PAGE_SIZE: usize = 10;
/// Where the continuation of a list may stand, besides the query and the answer.
const CONTINUATION: HeaderName = HeaderName::from_static("x-continuation-token");

type Answer = Result<Response, Problem>;

/// The REST interface of a service: `/api/contacts` and `/openapi.json`.
pub fn router(service: ContactService) -> Router {
    let routed = routes().into_iter().fold(Router::new(), |router, (_, path, route)| {
        // Several methods of one path are merged.
        router.route(path, route)
    });
    routed
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async {
            let sentence = "this path has other methods; see /openapi.json";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, sentence)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(service)
}

/// Every route with its method, as the document about them has to say.
pub(crate) fn routes() -> Vec<(&'static str, &'static str, MethodRouter<ContactService>)> {
    vec![
        ("get", "/api/contacts", get(list)),
        ("post", "/api/contacts", post(create)),
        ("get", "/api/contacts/{id}", get(read)),
        ("delete", "/api/contacts/{id}", delete(remove)),
        ("post", "/api/contacts/{id}/update-name", post(update_name)),
        ("post", "/api/contacts/{id}/update-description", post(update_description)),
        ("post", "/api/contacts/{id}/update-email", post(update_email)),
        ("post", "/api/contacts/{id}/update-company", post(update_company)),
        ("get", "/openapi.json", get(openapi)),
    ]
}

async fn create(State(service): State<ContactService>, request: Request) -> Answer {
    let service = service.for_caller(trace(request.headers()));
    let draft: Draft = json(request).await?;
    let created = service.create(&draft).await?;
    let mut response = answer(StatusCode::CREATED, &created.contact)?;
    let location = format!("/api/contacts/{}", created.contact.id);
    set(response.headers_mut(), header::LOCATION, &location);
    set_etag(&mut response, created.etag.as_ref());
    Ok(response)
}

async fn read(
    State(service): State<ContactService>,
    ContactId(id): ContactId,
    headers: HeaderMap,
) -> Answer {
    let Some((contact, etag)) = service.read(id).await? else {
        return Err(Problem::no_contact());
    };
    let mut response = if is_known(&headers, &etag)? {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        answer(StatusCode::OK, &contact)?
    };
    set_etag(&mut response, Some(&etag));
    Ok(response)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    page_size: Option<String>,
    continuation: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageView {
    items: Vec<ContactSummary>,
    has_more: bool,
    continuation: Option<String>,
}

async fn list(
    State(service): State<ContactService>,
    query: Result<Query<ListQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let page_size = match &query.page_size {
        None => PAGE_SIZE,
        Some(text) => text.parse().map_err(|_| {
            Problem::invalid(&Invalid::field("pageSize", "must be a number from 1 to 100"))
        })?,
    };
    let in_header = headers.get(CONTINUATION).and_then(|it| it.to_str().ok());
    let continuation = query.continuation.as_deref().or(in_header);
    let page = service.list(page_size, continuation.filter(|it| !it.is_empty())).await?;
    let has_more = page.continuation.is_some();
    let continuation = page.continuation.clone();
    let view = PageView { items: page.contacts, has_more, continuation };
    let mut response = answer(StatusCode::OK, &view)?;
    if let Some(continuation) = &page.continuation {
        set(response.headers_mut(), CONTINUATION, continuation);
    }
    Ok(response)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NameBody {
    #[serde(default)]
    first_name: String,
    #[serde(default)]
    last_name: String,
}

async fn update_name(
    State(service): State<ContactService>,
    ContactId(id): ContactId,
    request: Request,
) -> Answer {
    let (service, expected) = caller(&service, request.headers())?;
    let body: NameBody = json(request).await?;
    let etag = service.update_name(id, expected, &body.first_name, &body.last_name).await?;
    Ok(changed(etag.as_ref()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescriptionBody {
    description: Option<String>,
}

async fn update_description(
    State(service): State<ContactService>,
    ContactId(id): ContactId,
    request: Request,
) -> Answer {
    let (service, expected) = caller(&service, request.headers())?;
    let body: DescriptionBody = json(request).await?;
    let etag = service.update_description(id, expected, body.description.as_deref()).await?;
    Ok(changed(etag.as_ref()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmailBody {
    email: Option<String>,
}

async fn update_email(
    State(service): State<ContactService>,
    ContactId(id): ContactId,
    request: Request,
) -> Answer {
    let (service, expected) = caller(&service, request.headers())?;
    let body: EmailBody = json(request).await?;
    let etag = service.update_email(id, expected, body.email.as_deref()).await?;
    Ok(changed(etag.as_ref()))
}

async fn update_company(
    State(service): State<ContactService>,
    ContactId(id): ContactId,
    request: Request,
) -> Answer {
    let (service, expected) = caller(&service, request.headers())?;
    let company: CompanyDraft = json(request).await?;
    let etag = service.update_company(id, expected, &company).await?;
    Ok(changed(etag.as_ref()))
}

async fn remove(
    State(service): State<ContactService>,
    ContactId(id): ContactId,
    headers: HeaderMap,
) -> Answer {
    let (service, expected) = caller(&service, &headers)?;
    let etag = service.delete(id, expected).await?;
    Ok(changed(etag.as_ref()))
}

async fn openapi() -> Response {
    let mut response = Response::new(Body::from(OPENAPI));
    set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    response
}

/// The id in the path. What is not an id names no contact.
struct ContactId(Uuid);

impl<S: Send + Sync> FromRequestParts<S> for ContactId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or_else(Problem::no_contact)
    }
}

/// The service on behalf of the caller, and which version it wants to change.
fn caller(
    service: &ContactService,
    headers: &HeaderMap,
) -> Result<(ContactService, Option<crate::IfMatch>), Problem> {
    Ok((service.for_caller(trace(headers)), if_match(headers)?))
}

fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(body).map_err(|error| Problem::failed(&error.to_string()))?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    Ok(response)
}

fn changed(etag: Option<&Etag>) -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    set_etag(&mut response, etag);
    response
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn set_etag(response: &mut Response, etag: Option<&Etag>) {
    if let Some(etag) = etag {
        set(response.headers_mut(), header::ETAG, &etag_value(etag));
    }
}

/// Sets a header; one whose value cannot be a header is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}
