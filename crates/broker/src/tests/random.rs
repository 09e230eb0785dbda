//! Random work, random faults and crashes at random commits against a journal of what was
//! acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_core::{Result, SessionReceiver, Settlement};
use proptest::prelude::*;

use crate::tests::world::{Fault, FaultPlan, World, message};
use crate::{Broker, DeadLetters, ReceiveMode, Received, SubscriptionSettings, TopicSettings};

const PATHS: [&str; 2] = ["t/Subscriptions/one", "t/Subscriptions/two"];
const ZERO: Duration = Duration::ZERO;

#[derive(Clone, Debug)]
enum Step {
    /// New messages of these sessions, once more those that may not have arrived.
    Send(Vec<u8>),
    /// Takes the next session and some of its messages.
    Take(usize, usize),
    Settle(usize, usize, u8),
    Close(usize),
    Resubmit(usize),
    CompleteDeferred(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    No,
    Maybe,
    Yes,
}

/// What a careful client knows.
#[derive(Default)]
struct Journal {
    made: usize,
    sent: BTreeMap<String, Belief>,
    /// What is completed, by subscription.
    gone: [BTreeMap<String, Belief>; 2],
}

impl Journal {
    fn sent(&mut self, ids: &[String], belief: Belief) {
        self.sent.extend(ids.iter().map(|id| (id.clone(), belief)));
    }

    fn gone(&mut self, path: usize, ids: &[String], belief: Belief) {
        self.gone[path].extend(ids.iter().map(|id| (id.clone(), belief)));
    }

    fn is_gone(&self, path: usize, id: &str) -> Belief {
        self.gone[path].get(id).copied().unwrap_or(Belief::No)
    }

    /// Compares a subscription with what was acknowledged.
    async fn check(&self, broker: &Broker, path: usize) {
        let mut found = BTreeMap::new();
        for suffix in ["", "/$DeadLetterQueue"] {
            let path = format!("{}{suffix}", PATHS[path]);
            for peeked in broker.peek(&path, 0, 10_000, None).await.unwrap() {
                let twice = found.insert(peeked.message.id.clone(), peeked.sequence_number);
                assert_eq!(twice, None, "{} is there twice", peeked.message.id);
                assert_eq!(peeked.message.body, message(&peeked.message.id).body);
            }
        }
        for (id, sent) in &self.sent {
            let (gone, is_there) = (self.is_gone(path, id), found.contains_key(id));
            if *sent == Belief::Yes && gone == Belief::No {
                assert!(is_there, "{id} is lost in {path}");
            }
            if gone == Belief::Yes {
                assert!(!is_there, "{id} came back in {path}");
            }
        }
        // Ids count up within a session, so numbers must, too.
        let mut last: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        let mut ordered: Vec<(usize, &String, u64)> =
            found.iter().map(|(id, number)| (id[1..].parse().unwrap(), id, *number)).collect();
        ordered.sort_unstable();
        for (count, id, number) in ordered {
            if let Some((_, before)) = last.insert(&id[..1], (count, number)) {
                assert!(before < number, "{id} is out of order");
            }
        }
    }
}

struct Life<'a> {
    broker: &'a Broker,
    sessions: [Vec<(crate::BrokerSession, Vec<Received>)>; 2],
}

impl Life<'_> {
    async fn step(&mut self, journal: &mut Journal, step: &Step) -> Result<()> {
        match step {
            Step::Send(sessions) => self.send(journal, sessions).await,
            Step::Take(path, count) => self.take(journal, *path, *count).await,
            Step::Settle(path, which, how) => self.settle(journal, *path, *which, *how).await,
            Step::Close(path) => match self.sessions[*path].pop() {
                Some((session, _)) => session.close().await,
                None => Ok(()),
            },
            Step::Resubmit(path) => {
                let path = format!("{}/$DeadLetterQueue", PATHS[*path]);
                self.broker.resubmit_dead_letters(&path, &DeadLetters::First(2)).await.map(|_| ())
            }
            Step::CompleteDeferred(path) => self.complete_deferred(journal, *path).await,
        }
    }

    async fn send(&mut self, journal: &mut Journal, sessions: &[u8]) -> Result<()> {
        let maybe = journal.sent.iter().filter(|(_, it)| **it == Belief::Maybe);
        let mut ids: Vec<String> = maybe.map(|(id, _)| id.clone()).collect();
        // As they were sent before; the text of numbers sorts otherwise.
        ids.sort_by_key(|id| id[1..].parse::<usize>().unwrap());
        for session in sessions {
            journal.made += 1;
            ids.push(format!("{}{}", char::from(b'a' + session), journal.made));
        }
        journal.sent(&ids, Belief::Maybe);
        self.broker.send("t", ids.iter().map(|it| message(it)).collect()).await?;
        journal.sent(&ids, Belief::Yes);
        Ok(())
    }

    async fn take(&mut self, journal: &Journal, path: usize, count: usize) -> Result<()> {
        if self.sessions[path].is_empty() {
            let Some(session) = self.broker.accept_session(PATHS[path], None, ZERO).await? else {
                return Ok(());
            };
            self.sessions[path].push((session, Vec::new()));
        }
        let (session, received) = &mut self.sessions[path][0];
        let new = session.receive_with(ReceiveMode::PeekLock, count, ZERO).await?;
        for it in &new {
            let id = &it.delivery.message.id;
            assert_ne!(journal.is_gone(path, id), Belief::Yes, "{id} came again");
            assert_eq!(it.delivery.message, message(id));
        }
        assert!(new.is_sorted_by_key(|it| it.delivery.sequence_number));
        received.extend(new);
        Ok(())
    }

    async fn settle(
        &mut self,
        journal: &mut Journal,
        path: usize,
        which: usize,
        how: u8,
    ) -> Result<()> {
        let Some((session, received)) = self.sessions[path].first_mut() else { return Ok(()) };
        if received.is_empty() {
            return Ok(());
        }
        let count = which % received.len() + 1;
        let settled: Vec<Received> = received.drain(..count).collect();
        let ids: Vec<String> = settled.iter().map(|it| it.delivery.message.id.clone()).collect();
        let reason = "Why".to_owned();
        let settlement = match how {
            0..4 => Settlement::Complete,
            4 => Settlement::Abandon,
            5 => Settlement::Defer,
            _ => Settlement::DeadLetter { reason, description: String::new() },
        };
        let is_complete = settlement == Settlement::Complete;
        if is_complete {
            journal.gone(path, &ids, Belief::Maybe);
        }
        let deliveries: Vec<_> = settled.into_iter().map(|it| it.delivery).collect();
        session.settle(&deliveries, settlement).await?;
        if is_complete {
            journal.gone(path, &ids, Belief::Yes);
        }
        Ok(())
    }

    async fn complete_deferred(&mut self, journal: &mut Journal, path: usize) -> Result<()> {
        let Some((session, _)) = self.sessions[path].first() else { return Ok(()) };
        let id = session.session_id().to_owned();
        let peeked = self.broker.peek(PATHS[path], 0, 1000, Some(&id)).await?;
        let deferred = peeked.iter().filter(|it| it.state == crate::MessageState::Deferred);
        let deferred: BTreeSet<u64> = deferred.map(|it| it.sequence_number).collect();
        let Some(number) = deferred.first() else { return Ok(()) };
        let id = peeked.iter().find(|it| it.sequence_number == *number).unwrap().message.id.clone();
        journal.gone(path, std::slice::from_ref(&id), Belief::Maybe);
        let received = session.receive_deferred(ReceiveMode::ReceiveAndDelete, &[*number]).await?;
        assert_eq!(received.len(), 1);
        journal.gone(path, &[id], Belief::Yes);
        Ok(())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = 0..2_usize;
    let step = prop_oneof![
        4 => proptest::collection::vec(0..3_u8, 1..6).prop_map(Step::Send),
        4 => (path.clone(), 1..5_usize).prop_map(|(path, count)| Step::Take(path, count)),
        6 => (path.clone(), any::<usize>(), 0..7_u8)
            .prop_map(|(path, which, how)| Step::Settle(path, which, how)),
        1 => path.clone().prop_map(Step::Close),
        1 => path.clone().prop_map(Step::Resubmit),
        1 => path.prop_map(Step::CompleteDeferred),
    ];
    proptest::collection::vec(step, 1..40)
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::LostReply), Just(Fault::LostRequest), Just(Fault::Refused)]
}

fn live(world: &World, journal: &mut Journal, steps: &[Step]) {
    world.run(async |broker| {
        let mut life = Life { broker, sessions: [Vec::new(), Vec::new()] };
        for step in steps {
            if life.step(journal, step).await.is_err() {
                return;
            }
        }
    });
}

fn new_world() -> World {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        for name in ["one", "two"] {
            let settings = SubscriptionSettings::with_sessions();
            broker.create_subscription("t", name, settings).await.unwrap();
        }
    });
    world
}

/// Everything that was acknowledged is there, and can be completed until nothing is left.
fn finish(world: &World, journal: &mut Journal) {
    world.plan(FaultPlan::default());
    world.run(async |broker| {
        let mut life = Life { broker, sessions: [Vec::new(), Vec::new()] };
        life.send(journal, &[0]).await.unwrap();
        for (number, path) in PATHS.into_iter().enumerate() {
            journal.check(broker, number).await;
            let dead = format!("{path}/$DeadLetterQueue");
            broker.resubmit_dead_letters(&dead, &DeadLetters::First(9999)).await.unwrap();
            for session in broker.peek(path, 0, 9999, None).await.unwrap() {
                let id = session.message.session_id.unwrap();
                let Ok(session) = broker.accept_session(path, Some(&id), ZERO).await else {
                    continue;
                };
                life.sessions[number] = vec![(session.unwrap(), Vec::new())];
                life.take(journal, number, 9999).await.unwrap();
                life.settle(journal, number, usize::MAX - 1, 0).await.unwrap();
                while !life.sessions[number][0].1.is_empty() {
                    life.settle(journal, number, 0, 0).await.unwrap();
                }
                for _ in 0..200 {
                    life.complete_deferred(journal, number).await.unwrap();
                }
            }
            let counts = broker.counts(path).unwrap();
            assert_eq!((counts.active, counts.deferred, counts.dead_lettered), (0, 0, 0));
        }
    });
    assert_eq!((world.documents("seg-"), world.documents("ack-")), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_at_any_commit_loses_and_repeats_nothing(
        lives in proptest::collection::vec((steps(), 0..30_u64, fault()), 1..4),
    ) {
        let mut world = new_world();
        world.options = world.options.storage_patience(ZERO);
        let mut journal = Journal::default();
        for (steps, at, fault) in lives {
            // Opening needs three commits.
            world.plan(FaultPlan { at: Some((at + 3, fault)), for_ever: true });
            live(&world, &mut journal, &steps);
        }
        finish(&world, &mut journal);
    }

    #[test]
    fn reopening_and_passing_faults_change_nothing(
        lives in proptest::collection::vec((steps(), 0..20_u64, fault()), 1..5),
    ) {
        let mut world = new_world();
        let mut journal = Journal::default();
        for (steps, at, fault) in lives {
            world.ticks = true;
            world.plan(FaultPlan { at: Some((at, fault)), for_ever: false });
            live(&world, &mut journal, &steps);
        }
        world.ticks = false;
        finish(&world, &mut journal);
    }
}
