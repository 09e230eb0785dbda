//! Answers as people read them.

use crate::admin::{
    Answer, EntityRow, LagRow, LeaseRow, ParkedChangeRow, ParkedRow, PeekedRow, ScheduledRow,
};
use crate::failure::Result;
use crate::output::{counted, say, say_json, shortened, table};

/// Most characters of an error or a body in a table.
const CELL_MAX: usize = 80;

/// Writes an answer as a table, or as JSON.
pub(crate) fn show(answer: &Answer, json: bool) -> Result<()> {
    match answer {
        Answer::Topics(rows) if json => return say_json(rows),
        Answer::Lag(rows) if json => return say_json(rows),
        Answer::Leases(rows) if json => return say_json(rows),
        Answer::ParkedList(rows) if json => return say_json(rows),
        Answer::ParkedShow(page) if json => return say_json(&page.changes),
        Answer::Peek(rows) if json => return say_json(rows),
        Answer::Scheduled(rows) if json => return say_json(rows),
        Answer::Topics(rows) => say(&topics(rows)),
        Answer::Lag(rows) => say(&lag(rows)),
        Answer::Leases(rows) => say(&leases(rows)),
        Answer::ParkedList(rows) => say(&parked_list(rows)),
        Answer::ParkedShow(page) => say(&parked_show(&page.changes)),
        Answer::Redriven(count) => {
            say(&format!("{} sent again\n", counted(*count, "key is", "keys are")))
        }
        Answer::Discarded(count) => {
            say(&format!("{} thrown away\n", counted(*count, "event was", "events were")));
        }
        Answer::Scheduled(rows) => say(&scheduled(rows)),
        Answer::Forgotten(count) => {
            let documents = counted(*count, "document", "documents");
            say(&format!("events are no longer held for it, {documents} removed\n"));
        }
        Answer::Peek(rows) => say(&peek(rows)),
        Answer::Imported(count) => say(&format!("{count} items\n")),
        // These have commands that go page by page.
        Answer::Feed(_)
        | Answer::Lines(_)
        | Answer::Replay(_)
        | Answer::Waiting(_)
        | Answer::Purged(_)
        | Answer::Resubmitted(_) => (),
    }
    Ok(())
}

fn topics(rows: &[EntityRow]) -> String {
    let rows: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            let Some(counts) = &row.counts else {
                let [none, path, kind] = [String::new(), row.path.clone(), row.kind.clone()];
                return [path, kind, none.clone(), none.clone(), none.clone(), none.clone(), none];
            };
            [
                row.path.clone(),
                row.kind.clone(),
                counts.active.to_string(),
                counts.locked.to_string(),
                counts.scheduled.to_string(),
                counts.deferred.to_string(),
                counts.dead_lettered.to_string(),
            ]
        })
        .collect();
    let headings = ["PATH", "KIND", "ACTIVE", "LOCKED", "SCHEDULED", "DEFERRED", "DEAD"];
    table(headings, &rows)
}

fn lag(rows: &[LagRow]) -> String {
    if rows.is_empty() {
        return "no relay has run yet\n".to_owned();
    }
    let rows: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                format!("{}{}", row.relay, remark(row)),
                row.container.clone(),
                row.commits.to_string(),
                row.seconds.map_or("unknown".to_owned(), |it| format!("{it:.1} s")),
                row.leases.to_string(),
            ]
        })
        .collect();
    table(["RELAY", "CONTAINER", "COMMITS BEHIND", "OLDEST", "LEASES"], &rows)
}

/// What is special about a relay.
fn remark(row: &LagRow) -> &'static str {
    match row {
        LagRow { configured: false, .. } => " (not in the settings)",
        LagRow { expired: true, .. } => " (changes are missing)",
        LagRow { paused: true, .. } => " (paused)",
        LagRow { .. } => "",
    }
}

fn scheduled(rows: &[ScheduledRow]) -> String {
    if rows.is_empty() {
        return "no relay keeps an event until it is due\n".to_owned();
    }
    let rows: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let ScheduledRow { relay, due, partition_key, event, id } = row.clone();
            [relay, due, partition_key, event, id]
        })
        .collect();
    table(["RELAY", "DUE", "KEY", "EVENT", "ID"], &rows)
}

fn leases(rows: &[LeaseRow]) -> String {
    if rows.is_empty() {
        return "no relay has run yet\n".to_owned();
    }
    let rows: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            [
                row.relay.clone(),
                row.keys.clone(),
                row.owner.clone().unwrap_or_else(|| "nobody".to_owned()),
                row.state.clone(),
                row.handled.map_or("nothing".to_owned(), |it| it.to_string()),
                row.handled_at.clone().unwrap_or_default(),
                shortened(&row.failing.join("; "), CELL_MAX),
            ]
        })
        .collect();
    table(["RELAY", "KEYS", "OWNER", "STATE", "HANDLED", "COMMITTED AT", "FAILING"], &rows)
}

fn parked_list(rows: &[ParkedRow]) -> String {
    if rows.is_empty() {
        return "nothing is parked\n".to_owned();
    }
    let rows: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            [
                row.relay.clone(),
                row.partition_key.clone(),
                row.state.clone(),
                row.parked.to_string(),
                row.attempts.to_string(),
                row.first_parked_at.clone(),
                shortened(&row.error, CELL_MAX),
            ]
        })
        .collect();
    table(["RELAY", "KEY", "STATE", "EVENTS", "ATTEMPTS", "SINCE", "ERROR"], &rows)
}

fn parked_show(rows: &[ParkedChangeRow]) -> String {
    let rows: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                row.lsn.to_string(),
                row.id.clone(),
                row.committed_at.clone(),
                row.attempts.to_string(),
                shortened(row.error.as_deref().unwrap_or("waits behind the first"), CELL_MAX),
            ]
        })
        .collect();
    table(["COMMIT", "ID", "COMMITTED AT", "ATTEMPTS", "ERROR"], &rows)
}

fn peek(rows: &[PeekedRow]) -> String {
    if rows.is_empty() {
        return "no messages\n".to_owned();
    }
    let rows: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            [
                row.sequence_number.to_string(),
                row.enqueued_at.clone(),
                row.session_id.clone().unwrap_or_default(),
                row.subject.clone().unwrap_or_default(),
                row.state.clone(),
                row.delivery_count.to_string(),
                shortened(&row.body, CELL_MAX),
            ]
        })
        .collect();
    table(["NUMBER", "SINCE", "SESSION", "SUBJECT", "STATE", "DELIVERIES", "BODY"], &rows)
}
