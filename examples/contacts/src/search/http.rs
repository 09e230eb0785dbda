use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::http::problem::Problem;
use crate::http::set;
use crate::{Invalid, SearchEntry, SearchIndex};

/// Most lines in an answer.
const LINES_MAX: usize = 100;
/// Lines in an answer when the caller does not say.
const LINES: usize = 20;

/// `GET /api/search?text=&max=`: lines of the search list whose name, address or company holds the
/// text, in either case.
pub fn search_router(index: SearchIndex) -> Router {
    Router::new().route("/api/search", get(search)).with_state(index)
}

#[derive(Deserialize)]
struct SearchQuery {
    #[serde(default)]
    text: String,
    max: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: &'a str,
    full_name: Option<&'a str>,
    email: Option<&'a str>,
    company_name: Option<&'a str>,
}

#[derive(Serialize)]
struct Lines<'a> {
    items: Vec<Line<'a>>,
}

impl<'a> From<&'a SearchEntry> for Line<'a> {
    fn from(entry: &'a SearchEntry) -> Self {
        Self {
            id: &entry.id,
            full_name: entry.full_name.as_deref(),
            email: entry.email.as_deref(),
            company_name: entry.company_name.as_deref(),
        }
    }
}

async fn search(
    State(index): State<SearchIndex>,
    query: Result<Query<SearchQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
    let lines_max = query.max.as_deref().map_or(Some(LINES), |it| it.parse().ok());
    let Some(lines_max) = lines_max.filter(|it| (1..=LINES_MAX).contains(it)) else {
        return Err(Problem::invalid(&Invalid::field("max", "must be a number from 1 to 100")));
    };
    let found = index.find(&query.text, lines_max).await.map_err(|error| {
        if error.kind() == millstream_core::ErrorKind::Unavailable {
            let detail = "the search list cannot be reached; try again later";
            return Problem::later(StatusCode::SERVICE_UNAVAILABLE, detail, error.retry_after());
        }
        Problem::failed(&error.report())
    })?;
    let lines = Lines { items: found.iter().map(Line::from).collect() };
    let body = serde_json::to_vec(&lines).map_err(|error| Problem::failed(&error.to_string()))?;
    let mut response = Response::new(Body::from(body));
    set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    Ok(response)
}
