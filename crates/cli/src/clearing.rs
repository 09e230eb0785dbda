//! `purge` and `resubmit`, step by step, so that no request takes long.

use crate::admin::{Answer, Request, ResubmittedRow, WaitingRow};
use crate::client::{Client, misunderstood};
use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::output::{counted, say};

/// What names the dead letters of a path.
const DEAD_LETTERS: &str = "/$DeadLetterQueue";

/// Throws the waiting messages of a path away, if somebody is sure.
pub(crate) async fn purge(config: &Config, path: &str, is_sure: bool) -> Result<()> {
    let client = Client::connect(config).await?;
    let outcome = purge_with(&client, path, is_sure).await;
    client.close().await;
    say(&format!("{} thrown away\n", counted(outcome?, "message was", "messages were")));
    Ok(())
}

/// Sends dead letters back to where they come from, at most so many.
pub(crate) async fn resubmit(config: &Config, path: &str, messages_max: Option<u64>) -> Result<()> {
    let client = Client::connect(config).await?;
    let outcome = resubmit_with(&client, path, messages_max.unwrap_or(u64::MAX)).await;
    client.close().await;
    say(&format!("{} sent back\n", counted(outcome?, "message was", "messages were")));
    Ok(())
}

async fn purge_with(client: &Client, path: &str, is_sure: bool) -> Result<u64> {
    let WaitingRow { messages, newest } = waiting(client, path).await?;
    if !is_sure {
        return Err(Failure::usage(format!(
            "{} of {path} would be thrown away for good: write --yes if that is what you want",
            counted(messages, "waiting message", "waiting messages")
        )));
    }
    let mut total = 0;
    loop {
        let request = Request::Purge { path: path.to_owned(), newest };
        let Answer::Purged(purged) = client.ask(request).await? else {
            return Err(misunderstood());
        };
        if purged == 0 {
            return Ok(total);
        }
        total += purged;
    }
}

async fn resubmit_with(client: &Client, path: &str, messages_max: u64) -> Result<u64> {
    let path = dead_letters_of(path);
    // What comes back as a dead letter meanwhile has its old number, and is not sent twice.
    let WaitingRow { newest, .. } = waiting(client, &path).await?;
    let (mut total, mut from) = (0, 0);
    while total < messages_max {
        let (path, max) = (path.clone(), messages_max - total);
        let request = Request::Resubmit { path, from, newest, max };
        let Answer::Resubmitted(row) = client.ask(request).await? else {
            return Err(misunderstood());
        };
        let ResubmittedRow { messages, next } = row;
        total += messages;
        let Some(next) = next else { break };
        from = next;
    }
    Ok(total)
}

async fn waiting(client: &Client, path: &str) -> Result<WaitingRow> {
    let answer = client.ask(Request::Waiting { path: path.to_owned() }).await?;
    let Answer::Waiting(row) = answer else { return Err(misunderstood()) };
    Ok(row)
}

/// The dead letters of a path, which may name them already.
fn dead_letters_of(path: &str) -> String {
    let start = path.len().saturating_sub(DEAD_LETTERS.len());
    let ends_so = path.get(start..).is_some_and(|it| it.eq_ignore_ascii_case(DEAD_LETTERS));
    if ends_so { path.to_owned() } else { format!("{path}{DEAD_LETTERS}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_may_be_named_or_not() {
        assert_eq!(dead_letters_of("q"), "q/$DeadLetterQueue");
        let named = "t/Subscriptions/s/$deadletterqueue";
        assert_eq!(dead_letters_of(named), named);
    }
}
