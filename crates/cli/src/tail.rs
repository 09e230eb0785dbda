//! `feed read` and `feed tail`.

use crate::admin::{Answer, ChangeRow, FeedRequest, Request, parse_start};
use crate::client::{Client, misunderstood};
use crate::config::Config;
use crate::failure::Result;
use crate::output::{shortened, try_say};

/// Changes asked for at once.
const PAGE_CHANGES: usize = 500;
/// Most characters of a body in a line.
const BODY_MAX: usize = 100;

/// What to show of a feed.
#[derive(Clone, Debug)]
pub(crate) struct TailOptions {
    pub(crate) container: String,
    pub(crate) from: String,
    pub(crate) all_versions: bool,
    /// Most changes to show.
    pub(crate) max: Option<usize>,
    /// Whether to wait for more at the end.
    pub(crate) follow: bool,
    pub(crate) json: bool,
}

/// Shows the changes of a container, a line each.
pub(crate) async fn tail(config: &Config, options: TailOptions) -> Result<()> {
    parse_start(&options.from)?;
    let client = Client::connect(config).await?;
    let outcome = tokio::select! {
        biased;
        outcome = show(&client, &options) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    client.close().await;
    outcome
}

async fn show(client: &Client, options: &TailOptions) -> Result<()> {
    let mut places = Vec::new();
    let mut left = options.max.unwrap_or(usize::MAX);
    while 0 < left {
        let request = FeedRequest {
            container: options.container.clone(),
            from: options.from.clone(),
            all_versions: options.all_versions,
            places,
            max: left.min(PAGE_CHANGES),
            wait: options.follow,
        };
        let Answer::Feed(page) = client.ask(Request::Feed(request)).await? else {
            return Err(misunderstood());
        };
        if page.changes.is_empty() && !options.follow {
            return Ok(());
        }
        for change in page.changes.iter().take(left) {
            if try_say(&line(change, options.json)?).is_err() {
                return Ok(());
            }
        }
        left = left.saturating_sub(page.changes.len());
        places = page.places;
    }
    Ok(())
}

fn line(change: &ChangeRow, json: bool) -> Result<String> {
    if json {
        return Ok(format!("{}\n", serde_json::to_string(change)?));
    }
    let body = change.body.as_ref().map_or("", |it| it.get());
    Ok(format!(
        "{:>8}  {}  {:8}  {}  {}  {}\n",
        change.lsn,
        change.committed_at,
        change.kind,
        change.partition_key.get(),
        change.id,
        shortened(body, BODY_MAX)
    ))
}
