//! A queue without a store, moved by commands in text.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_core::{Message, Settlement, Timestamp};

use crate::codec::{decode_head, encode_message, id_hash};
use crate::entity::{Entity, MessageState};
use crate::log::{Encoded, Moment, Place, QUEUE_OUTLET};
use crate::outlet::{Outlet, Source, Taken};
use crate::settings::ReceiveSettings;

pub(super) struct World {
    pub(super) entity: Entity,
    pub(super) now: Moment,
    /// The bytes of the segments, and the locks, by message.
    bytes: BTreeMap<u64, bytes::Bytes>,
    pub(super) locks: BTreeMap<String, u64>,
    /// The locks of sessions by name.
    pub(super) sessions: BTreeMap<String, u64>,
    tickets: u64,
}

impl World {
    pub(super) fn new(settings: ReceiveSettings) -> Self {
        let mut entity = Entity::new("q@1".to_owned(), 1, Some(Duration::from_secs(600)));
        entity.outlets.insert(QUEUE_OUTLET, Outlet::new(QUEUE_OUTLET, settings, None));
        let now = Moment { wall: Timestamp::from_millis(1_000_000), monotonic: Duration::ZERO };
        let (bytes, locks) = (BTreeMap::new(), BTreeMap::new());
        Self { entity, now, bytes, locks, sessions: BTreeMap::new(), tickets: 0 }
    }

    pub(super) fn outlet(&mut self) -> (&mut Outlet, &mut crate::log::Log) {
        let outlet = self.entity.outlets.get_mut(&QUEUE_OUTLET).unwrap();
        (outlet, &mut self.entity.log)
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        let passed = Duration::from_secs(seconds);
        self.now.wall = self.now.wall.plus(passed);
        self.now.monotonic += passed;
        self.entity.advance(self.now);
    }

    /// `a1` is a message of session `a`; `a1@5` comes in five seconds, `a1!5` lives for five.
    pub(super) fn send(&mut self, text: &str) -> Vec<Option<u64>> {
        let messages = text.split_whitespace().map(|text| self.message(text)).collect();
        self.tickets += 1;
        self.entity.send(self.tickets, messages);
        let round = self.commit();
        round.into_iter().flatten().collect()
    }

    /// Commits what there is.
    pub(super) fn commit(&mut self) -> Vec<Vec<Option<u64>>> {
        let round = self.entity.plan(&[], self.now);
        for (segment, bytes) in &round.fresh {
            self.bytes.insert(segment.first, bytes.clone());
        }
        self.entity.committed(round.fresh, self.now);
        round.sent.into_iter().map(|(_, outcome)| outcome.sequence_numbers).collect()
    }

    fn message(&self, text: &str) -> Encoded {
        let (text, time_to_live) = split(text, '!');
        let (id, scheduled_in) = split(text, '@');
        let mut message = Message::new(id, "").session(&id[..1]);
        message.time_to_live = time_to_live;
        message.scheduled_at = scheduled_in.map(|it| self.now.wall.plus(it));
        let mut bytes = Vec::new();
        encode_message(&message, false, &mut bytes);
        Encoded { hash: Some(id_hash(id)), bytes, wanted_by: [QUEUE_OUTLET].into() }
    }

    /// The id of a message.
    pub(super) fn id(&self, place: Place) -> String {
        let bytes = place.find(&self.bytes[&place.first]).unwrap().unwrap();
        decode_head(&bytes).unwrap().id.to_owned()
    }

    pub(super) fn took(&mut self, taken: &[Taken]) -> Vec<String> {
        let mut ids = Vec::new();
        for taken in taken {
            let id = self.id(taken.place);
            self.locks.insert(id.clone(), taken.lock);
            let reason = taken.dead_letter.as_ref().map_or("", |it| &it.reason);
            ids.push(format!("{id}:{}{reason}", taken.failures + 1));
        }
        ids
    }

    fn number(&self, id: &str) -> u64 {
        let places = self.entity.log.segments.values().flat_map(|it| it.places());
        let place = places.into_iter().find(|it| self.id(*it) == id);
        place.map_or(u64::MAX, |it| it.sequence())
    }

    pub(super) fn settle(&mut self, id: &str, settlement: &Settlement) -> bool {
        let lock = self.locks.get(id).copied().unwrap_or(u64::MAX);
        let now = self.now;
        let (outlet, log) = self.outlet();
        let settled = outlet.settle(log, lock, settlement, now).is_ok();
        self.commit();
        settled
    }

    /// Runs a command and says what came of it.
    pub(super) fn run(&mut self, command: &str) -> String {
        let now = self.now;
        let words: Vec<&str> = command.split_whitespace().collect();
        let lost = |kept: bool| if kept { "ok" } else { "lost" }.to_owned();
        match words.as_slice() {
            ["send", ..] => {
                let numbers = self.send(command.strip_prefix("send").unwrap());
                let text = numbers.iter().map(|it| it.map_or("-".to_owned(), |it| it.to_string()));
                text.collect::<Vec<_>>().join(" ")
            }
            ["wait", seconds] => {
                self.wait(seconds.parse().unwrap());
                self.commit();
                String::new()
            }
            ["take", from, count] => self.take(from, count.parse().unwrap()),
            ["deferred", session, ids @ ..] => {
                let numbers: Vec<u64> = ids.iter().map(|it| self.number(it)).collect();
                let lock = self.sessions.get(*session).copied();
                let (outlet, log) = self.outlet();
                match outlet.take_deferred(log, lock, &numbers, now) {
                    Ok(Ok(taken)) => self.took(&taken).join(" "),
                    Ok(Err(number)) => format!("no {number}"),
                    Err(_) => "lost".to_owned(),
                }
            }
            ["accept", ids @ ..] => {
                let (outlet, log) = self.outlet();
                match outlet.accept(log, ids.first().copied(), now) {
                    Ok((id, lock)) => {
                        self.sessions.insert(id.to_string(), lock);
                        id.to_string()
                    }
                    Err(error) => format!("{error:?}"),
                }
            }
            ["complete", id] => lost(self.settle(id, &Settlement::Complete)),
            ["abandon", id] => lost(self.settle(id, &Settlement::Abandon)),
            ["defer", id] => lost(self.settle(id, &Settlement::Defer)),
            ["dead", id] => {
                let (reason, description) = ("Bad".to_owned(), "it is bad".to_owned());
                lost(self.settle(id, &Settlement::DeadLetter { reason, description }))
            }
            ["release", id] => {
                let lock = self.locks[*id];
                let (outlet, log) = self.outlet();
                lost(outlet.release(log, lock, now).is_ok())
            }
            ["renew", name] => {
                let (lock, session) = (self.locks.get(*name), self.sessions.get(*name));
                let (lock, session) = (lock.copied(), session.copied());
                let (outlet, log) = self.outlet();
                lost(match (lock, session) {
                    (Some(lock), _) => outlet.renew(log, lock, now).is_ok(),
                    (None, lock) => outlet.renew_session(log, lock.unwrap(), now).is_ok(),
                })
            }
            ["close", id] => {
                let lock = self.sessions[*id];
                let (outlet, log) = self.outlet();
                lost(outlet.close_session(log, lock, now).is_ok())
            }
            ["revive", id] => {
                let number = self.number(id);
                let (outlet, log) = self.outlet();
                lost(outlet.revive(log, number))
            }
            ["cancel", ids @ ..] => {
                let numbers: Vec<u64> = ids.iter().map(|it| self.number(it)).collect();
                let cancelled = self.entity.cancel_scheduled(&numbers, now);
                self.commit();
                cancelled.map_or_else(|it| format!("no {it}"), |()| "ok".to_owned())
            }
            ["peek", what] => {
                let is_dead = *what == "dead";
                let found = self.entity.peek(QUEUE_OUTLET, is_dead, 0, 100, None, now);
                let text = found.iter().map(|it| {
                    let state = match it.state {
                        MessageState::Active => "",
                        MessageState::Deferred => "=deferred",
                        MessageState::Scheduled => "=scheduled",
                    };
                    format!("{}{state}", self.id(it.place))
                });
                text.collect::<Vec<_>>().join(" ")
            }
            ["counts"] => {
                let it = self.entity.counts(QUEUE_OUTLET);
                let (active, locked, scheduled) = (it.active, it.locked, it.scheduled);
                let (deferred, dead, sessions) = (it.deferred, it.dead_lettered, it.sessions);
                format!("{active} {locked} {scheduled} {deferred} {dead} {sessions}")
            }
            ["segments"] => self.entity.log.segments.len().to_string(),
            _ => panic!("no such command: {command}"),
        }
    }

    fn take(&mut self, from: &str, count: usize) -> String {
        let source = match (from, self.sessions.get(from)) {
            ("messages", _) => Source::Messages,
            ("dead", _) => Source::DeadLetters,
            (_, lock) => Source::Session(*lock.unwrap()),
        };
        let now = self.now;
        let (outlet, log) = self.outlet();
        let taken = outlet.take(log, source, count, now);
        self.commit();
        taken.map_or_else(|_| "lost".to_owned(), |taken| self.took(&taken).join(" "))
    }
}

fn split(text: &str, mark: char) -> (&str, Option<Duration>) {
    match text.split_once(mark) {
        Some((text, seconds)) => (text, Some(Duration::from_secs(seconds.parse().unwrap()))),
        None => (text, None),
    }
}
