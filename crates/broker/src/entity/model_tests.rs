//! Random commands against the plainest model of a queue: a list.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_core::Settlement;
use proptest::prelude::*;

use crate::entity::test_world::World;
use crate::settings::ReceiveSettings;

const FAILURES_MAX: u32 = 3;
const LOCK_SECONDS: u64 = 60;

#[derive(Clone, Debug)]
enum Command {
    Send(Vec<(u8, u8)>),
    Accept(Option<u8>),
    Take(u8, usize),
    TakeDead(usize),
    Settle(usize, u8),
    Renew(u8),
    Close(u8),
    Deferred(usize),
    Revive(usize),
    Wait(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Deferred,
    Dead,
    Done,
}

#[derive(Clone, Debug)]
struct Modelled {
    id: String,
    state: State,
    failures: u32,
    /// Until when somebody has it; with a session as long as the session.
    lock: Option<u64>,
    is_dead_lock: bool,
}

#[derive(Default)]
struct Model {
    has_sessions: bool,
    now: u64,
    messages: Vec<Modelled>,
    sessions: BTreeMap<String, u64>,
}

impl Model {
    fn fail(&mut self, index: usize) {
        let it = &mut self.messages[index];
        it.lock = None;
        it.failures += 1;
        if FAILURES_MAX <= it.failures && it.state != State::Dead {
            it.state = State::Dead;
        }
    }

    fn advance(&mut self, seconds: u64) {
        self.now += seconds;
        for index in 0..self.messages.len() {
            let it = &self.messages[index];
            let session_ends =
                self.sessions.get(&it.id[..1]).is_some_and(|until| *until <= self.now);
            let ends = match self.has_sessions && !it.is_dead_lock {
                true => it.lock.is_some() && session_ends,
                false => it.lock.is_some_and(|until| until <= self.now),
            };
            if ends {
                self.fail(index);
            }
        }
        self.sessions.retain(|_, until| self.now < *until);
    }

    /// What a receiver must get, and marks it as taken.
    fn take(&mut self, from: impl Fn(&Modelled) -> bool, count: usize, dead: bool) -> Vec<String> {
        let until = self.now + LOCK_SECONDS;
        let free = self.messages.iter_mut().filter(|it| it.lock.is_none() && from(it));
        let mut ids = Vec::new();
        for it in free.take(count) {
            it.lock = Some(until);
            it.is_dead_lock = dead;
            ids.push(it.id.clone());
        }
        ids
    }

    fn first_session(&self) -> Option<String> {
        let is_free = |it: &&Modelled| {
            it.state == State::Waiting
                && it.lock.is_none()
                && !self.sessions.contains_key(&it.id[..1])
        };
        self.messages.iter().find(is_free).map(|it| it.id[..1].to_owned())
    }
}

fn session(number: u8) -> String {
    char::from(b'a' + number).to_string()
}

/// The ids of `a1:2 a2:1`.
fn ids(text: &str) -> Vec<String> {
    text.split_whitespace().map(|it| it.split(':').next().unwrap().to_owned()).collect()
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let sends = proptest::collection::vec((0..3_u8, 0..40_u8), 1..5);
    let command = prop_oneof![
        4 => sends.prop_map(Command::Send),
        3 => proptest::option::of(0..3_u8).prop_map(Command::Accept),
        5 => (0..3_u8, 1..4_usize).prop_map(|(it, count)| Command::Take(it, count)),
        1 => (1..3_usize).prop_map(Command::TakeDead),
        8 => (any::<usize>(), 0..5_u8).prop_map(|(it, how)| Command::Settle(it, how)),
        1 => (0..3_u8).prop_map(Command::Renew),
        1 => (0..3_u8).prop_map(Command::Close),
        1 => any::<usize>().prop_map(Command::Deferred),
        1 => any::<usize>().prop_map(Command::Revive),
        2 => (1..70_u64).prop_map(Command::Wait),
    ];
    proptest::collection::vec(command, 1..80)
}

struct Run {
    world: World,
    model: Model,
}

impl Run {
    fn new(has_sessions: bool) -> Self {
        let base = match has_sessions {
            true => ReceiveSettings::with_sessions(),
            false => ReceiveSettings::default(),
        };
        let lock_duration = Duration::from_secs(LOCK_SECONDS);
        let delivery_count_max = FAILURES_MAX;
        let mut world = World::new(ReceiveSettings { lock_duration, delivery_count_max, ..base });
        // The model remembers every id.
        world.entity.duplicates.set_window(Some(Duration::from_secs(7 * 24 * 3600)));
        Self { world, model: Model { has_sessions, ..Model::default() } }
    }

    fn step(&mut self, command: &Command) {
        match command {
            Command::Send(messages) => self.send(messages),
            Command::Accept(id) => self.accept(*id),
            Command::Take(from, count) => self.take(*from, *count),
            Command::TakeDead(count) => {
                let found = self.world.run(&format!("take dead {count}"));
                let expected = self.model.take(|it| it.state == State::Dead, *count, true);
                assert_eq!(ids(&found), expected);
            }
            Command::Settle(which, how) => self.settle(*which, *how),
            Command::Renew(id) => {
                let id = session(*id);
                if let Some(until) = self.model.sessions.get_mut(&id) {
                    *until = self.model.now + LOCK_SECONDS;
                    assert_eq!(self.world.run(&format!("renew {id}")), "ok");
                }
            }
            Command::Close(id) => self.close(&session(*id)),
            Command::Deferred(which) => self.deferred(*which),
            Command::Revive(which) => {
                let dead = |it: &&mut Modelled| it.state == State::Dead && it.lock.is_none();
                let dead: Vec<&mut Modelled> =
                    self.model.messages.iter_mut().filter(dead).collect();
                let count = dead.len();
                if let Some(it) = dead.into_iter().nth(which % count.max(1)) {
                    (it.state, it.failures) = (State::Waiting, 0);
                    let command = format!("revive {}", it.id);
                    assert_eq!(self.world.run(&command), "ok");
                }
            }
            Command::Wait(seconds) => {
                self.model.advance(*seconds);
                self.world.run(&format!("wait {seconds}"));
            }
        }
        self.compare();
    }

    fn send(&mut self, messages: &[(u8, u8)]) {
        let mut text = String::new();
        let mut expected = Vec::new();
        for (number, id) in messages {
            let id = format!("{}{id}", session(*number));
            let is_new = self.model.messages.iter().all(|it| it.id != id);
            expected.push(is_new);
            text = format!("{text} {id}");
            if is_new {
                let (state, failures) = (State::Waiting, 0);
                let new = Modelled { id, state, failures, lock: None, is_dead_lock: false };
                self.model.messages.push(new);
            }
        }
        let sent = self.world.send(&text);
        assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), expected);
    }

    fn accept(&mut self, id: Option<u8>) {
        if !self.model.has_sessions {
            return;
        }
        let id = id.map(session);
        let expected = match &id {
            Some(id) if self.model.sessions.contains_key(id) => "Taken".to_owned(),
            Some(id) => id.clone(),
            None => self.model.first_session().unwrap_or("None".to_owned()),
        };
        let found = self.world.run(&format!("accept {}", id.unwrap_or_default()));
        assert_eq!(found, expected);
        if expected.len() == 1 {
            self.model.sessions.insert(expected, self.model.now + LOCK_SECONDS);
        }
    }

    fn take(&mut self, from: u8, count: usize) {
        let from = session(from);
        if !self.model.has_sessions {
            let found = self.world.run(&format!("take messages {count}"));
            let expected = self.model.take(|it| it.state == State::Waiting, count, false);
            assert_eq!(ids(&found), expected);
        } else if self.model.sessions.contains_key(&from) {
            let found = self.world.run(&format!("take {from} {count}"));
            let is_mine = |it: &Modelled| it.state == State::Waiting && it.id.starts_with(&from);
            assert_eq!(ids(&found), self.model.take(is_mine, count, false));
        }
    }

    fn settle(&mut self, which: usize, how: u8) {
        let locked: Vec<usize> = (0..self.model.messages.len())
            .filter(|it| self.model.messages[*it].lock.is_some())
            .collect();
        let Some(index) = locked.get(which % locked.len().max(1)).copied() else { return };
        let id = self.model.messages[index].id.clone();
        let dead = Settlement::DeadLetter { reason: "r".to_owned(), description: String::new() };
        if how == 4 {
            assert_eq!(self.world.run(&format!("release {id}")), "ok");
            self.model.messages[index].lock = None;
            return;
        }
        let settlements = [Settlement::Complete, Settlement::Abandon, Settlement::Defer, dead];
        assert!(self.world.settle(&id, &settlements[usize::from(how)]));
        match how {
            1 => self.model.fail(index),
            _ => {
                let it = &mut self.model.messages[index];
                it.lock = None;
                it.state = match (how, it.state) {
                    (0, _) => State::Done,
                    (_, State::Dead) => State::Dead,
                    (2, _) => State::Deferred,
                    _ => State::Dead,
                };
            }
        }
    }

    fn close(&mut self, id: &str) {
        if self.model.sessions.remove(id).is_none() {
            return;
        }
        assert_eq!(self.world.run(&format!("close {id}")), "ok");
        let is_mine = |it: &&mut Modelled| it.id.starts_with(id) && !it.is_dead_lock;
        self.model.messages.iter_mut().filter(is_mine).for_each(|it| it.lock = None);
    }

    fn deferred(&mut self, which: usize) {
        let sessions = self.model.sessions.clone();
        let (now, has_sessions) = (self.model.now, self.model.has_sessions);
        let can = |it: &&mut Modelled| {
            it.state == State::Deferred
                && it.lock.is_none()
                && (!has_sessions || sessions.contains_key(&it.id[..1]))
        };
        let found: Vec<&mut Modelled> = self.model.messages.iter_mut().filter(can).collect();
        let count = found.len();
        let Some(it) = found.into_iter().nth(which % count.max(1)) else { return };
        it.lock = Some(now + LOCK_SECONDS);
        it.is_dead_lock = false;
        let (id, session) = (it.id.clone(), it.id[..1].to_owned());
        assert_eq!(ids(&self.world.run(&format!("deferred {session} {id}"))), [id]);
    }

    fn compare(&mut self) {
        let of = |state: State| {
            let found = self.model.messages.iter().filter(|it| it.state == state);
            found.map(|it| it.id.clone()).collect::<Vec<_>>()
        };
        let counts = self.world.entity.counts(0);
        assert_eq!(counts.active, of(State::Waiting).len());
        assert_eq!(counts.deferred, of(State::Deferred).len());
        assert_eq!(counts.dead_lettered, of(State::Dead).len());
        let locked = self.model.messages.iter().filter(|it| it.lock.is_some()).count();
        assert_eq!(counts.locked, locked);
        assert_eq!(self.world.run("peek dead").split_whitespace().count(), counts.dead_lettered);
        let all_done = self.model.messages.iter().all(|it| it.state == State::Done);
        self.world.commit();
        assert_eq!(self.world.entity.log.segments.is_empty(), all_done);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_with_sessions_does_what_the_model_does(commands in commands()) {
        let mut run = Run::new(true);
        commands.iter().for_each(|it| run.step(it));
    }

    #[test]
    fn a_queue_without_sessions_does_what_the_model_does(commands in commands()) {
        let mut run = Run::new(false);
        commands.iter().for_each(|it| run.step(it));
    }
}
