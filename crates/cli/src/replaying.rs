//! `replay`, page by page.

use serde::Serialize;

use crate::admin::{
    Answer, ReplayAnswer, ReplayPlace, ReplayRequest, Request, parse_keys, parse_replay_start,
};
use crate::arguments::ReplayArguments;
use crate::client::{Client, misunderstood};
use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::output::{counted, say, say_json};
use crate::progress::{Progress, bar};

/// What a replay did.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    published: u64,
    refused: u64,
    /// Whether one subscription alone got them, past duplicate detection.
    is_directed: bool,
    /// Whether it ended at the most events that were wanted, with others behind them.
    has_more: bool,
}

/// Sends events again, up to the newest commit at the moment of the start.
pub(crate) async fn replay(config: &Config, arguments: ReplayArguments) -> Result<()> {
    parse_replay_start(&arguments.from)?;
    arguments.keys.as_deref().map(parse_keys).transpose()?;
    let json = arguments.form.json;
    let client = Client::connect(config).await?;
    let mut progress = Progress::new();
    let outcome = replay_with(&client, arguments, &mut progress).await;
    progress.clear();
    client.close().await;
    let outcome = outcome?;
    if json {
        return say_json(&outcome);
    }
    say(&text(&outcome));
    Ok(())
}

async fn replay_with(
    client: &Client,
    arguments: ReplayArguments,
    progress: &mut Progress,
) -> Result<Outcome> {
    let ReplayArguments { from, keys, to, subscription, container, max, form: _ } = arguments;
    let (is_directed, max) = (subscription.is_some(), max.unwrap_or(u64::MAX));
    let mut outcome = Outcome { published: 0, refused: 0, is_directed, has_more: false };
    let mut request = ReplayRequest { container, from, keys, to, subscription, max, places: None };
    let mut all = None;
    loop {
        let answer = client.ask(Request::Replay(request.clone())).await;
        let Answer::Replay(page) = answer.map_err(|failure| after(failure, outcome.published))?
        else {
            return Err(misunderstood());
        };
        let ReplayAnswer { published, refused, places, is_cut } = page;
        outcome.published += published;
        outcome.refused += refused;
        let behind: u64 = places.iter().map(ReplayPlace::behind).sum();
        let all = *all.get_or_insert(behind);
        let done = bar(all.saturating_sub(behind), all);
        progress.show(&format!("{done}  {} events", outcome.published));
        outcome.has_more = !places.is_empty();
        if places.is_empty() || is_cut || max <= outcome.published {
            return Ok(outcome);
        }
        request.max = max - outcome.published;
        request.places = Some(places);
    }
}

/// Says what was done before it failed.
fn after(failure: Failure, published: u64) -> Failure {
    match published {
        0 => failure,
        _ => Failure::other(format!(
            "{failure}; {} before that",
            counted(published, "event was sent", "events were sent")
        )),
    }
}

fn text(outcome: &Outcome) -> String {
    let sent = counted(outcome.published, "event was sent", "events were sent");
    let refused = match outcome.refused {
        0 => String::new(),
        count => format!(", {count} refused for good"),
    };
    let more = if outcome.has_more { ", and there are more" } else { "" };
    let note = match outcome.is_directed {
        true => "the other subscriptions got nothing",
        false => "a destination that detects duplicates drops those it knows",
    };
    format!("{sent}{refused}{more}; {note}\n")
}
