use millstream_broker::Received;
use millstream_core::{Delivery, Message, Settlement, Timestamp};

use super::*;
use crate::executor::Executor;

const LOCK: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(60);
const KEY: &str = "k";

/// A subscription of one session; event `n` has the id `n`, and so has its message number `n`.
struct Script {
    executor: Executor,
    oracle: Oracle,
    broker: u64,
    grant: Grant,
}

impl Script {
    fn new() -> Self {
        let executor = Executor::new(1);
        let rules = Rules {
            lock: LOCK,
            duplicate_window: Some(WINDOW),
            deliveries_max: 4,
            broker_schedules: true,
        };
        let oracle = Oracle::new(executor.handle(), 1, rules);
        for sequence in 1..=5_u64 {
            let (id, key) = (sequence.to_string(), KEY.to_owned());
            let mut state = oracle.lock();
            state.keys.entry(key.clone()).or_default().push(id.clone());
            let due = (sequence == 5).then_some(Timestamp::EPOCH);
            state.events.insert(id, Event { key, sequence, due });
        }
        oracle.opened(1);
        let grant = oracle.granted(0, 1, KEY).unwrap();
        Self { executor, oracle, broker: 1, grant }
    }

    /// `send 1` `get 1,2` `done 1` `lost 1` (the lock was gone) `ask 1` (no answer) `abandon 1`
    /// `defer 1` `again 1` (asked for by number) `dead 1` `revive 1` `copy 1` (kept twice) `next`
    /// (the lock ended) `steal` `reopen` `effect 1`.
    fn step(&mut self, word: &str, numbers: &[u64]) -> Result<(), String> {
        match word {
            "send" => numbers.iter().for_each(|it| {
                self.oracle.sent(self.broker, &[it.to_string()], &[Some(*it)]);
            }),
            "get" | "again" | "copy" => return self.get(numbers, word),
            "done" => self.settle(numbers, &Settlement::Complete, Some(true)),
            "lost" => self.settle(numbers, &Settlement::Complete, Some(false)),
            "ask" => self.settle(numbers, &Settlement::Complete, None),
            "abandon" => self.settle(numbers, &Settlement::Abandon, Some(true)),
            "defer" => self.settle(numbers, &Settlement::Defer, Some(true)),
            "dead" => {
                let (reason, description) = (String::new(), String::new());
                self.settle(numbers, &Settlement::DeadLetter { reason, description }, Some(true));
            }
            "revive" => {
                self.oracle.reviving(0, self.broker, numbers);
                self.oracle.revived(0, self.broker, numbers);
            }
            "next" => {
                let now = self.executor.handle().now();
                self.executor.run_until(now + LOCK);
                self.grant = self.oracle.granted(0, self.broker, KEY)?;
            }
            "steal" => self.grant = self.oracle.granted(0, self.broker, KEY)?,
            "reopen" => {
                self.broker += 1;
                self.oracle.opened(self.broker);
                self.grant = self.oracle.granted(0, self.broker, KEY)?;
            }
            "effect" => {
                let mut state = self.oracle.lock();
                return numbers.iter().try_for_each(|it| state.had_effect(0, &it.to_string(), 4));
            }
            other => panic!("{other} is no step"),
        }
        Ok(())
    }

    fn get(&self, numbers: &[u64], word: &str) -> Result<(), String> {
        let received = |number: &u64| {
            let message = Message::new(number.to_string(), "")
                .session(KEY)
                .property("sequence", i64::try_from(*number).unwrap());
            let sequence_number = if word == "copy" { number + 100 } else { *number };
            let delivery = Delivery {
                message,
                sequence_number,
                delivery_count: 1,
                enqueued_at: Timestamp::EPOCH,
                lock_token: String::new(),
            };
            let locked_until = Timestamp::EPOCH;
            Received { delivery, locked_until, is_deferred: word == "again" }
        };
        let received: Vec<Received> = numbers.iter().map(received).collect();
        let begun = self.oracle.receiving(&self.grant);
        self.oracle.delivered(&self.grant, begun, &received, Timestamp::EPOCH)
    }

    fn settle(&self, numbers: &[u64], settlement: &Settlement, outcome: Option<bool>) {
        let settling = self.oracle.settling(&self.grant, numbers, settlement);
        if let Some(outcome) = outcome {
            self.oracle.settled(&settling, &vec![outcome; numbers.len()]);
        }
    }
}

/// Runs the steps; only the last may be wrong, and then with these words. None if all is well.
#[track_caller]
fn check(steps: &str, expected: Option<&str>) {
    let mut script = Script::new();
    let steps: Vec<&str> = steps.split(';').collect();
    for (place, step) in steps.iter().enumerate() {
        let (word, numbers) = step.trim().split_once(' ').unwrap_or((step.trim(), ""));
        let numbers: Vec<u64> = numbers.split(',').filter_map(|it| it.parse().ok()).collect();
        let outcome = script.step(word, &numbers);
        match expected.filter(|_| place + 1 == steps.len()) {
            None => assert_eq!(outcome, Ok(()), "{step}"),
            Some(part) => {
                let violation = outcome.expect_err("this should be found");
                assert!(violation.contains(part), "{violation}");
            }
        }
    }
}

#[test]
fn a_session_goes_on_in_order() {
    check("send 1,2,3; get 1; done 1; get 2,3; done 2,3", None);
    check("send 1,2; get 1; get 2", Some("message 2 before 1"));
    check("send 1,2; get 2", Some("message 2 before 1"));
    check("send 1,2; get 2,1", Some("message 2 before 1"));
    check("send 2; get 2; done 2; send 1; get 1", None);
}

#[test]
fn what_was_given_back_comes_before_what_is_later() {
    check("send 1,2; get 1,2; abandon 1,2; get 1,2", None);
    check("send 1,2,3; get 1,2; abandon 1,2; get 2", Some("message 2 before 1"));
    check("send 1,2; get 1; next; get 1; done 1; get 2", None);
    check("send 1,2; get 1; next; get 2", Some("message 2 before 1"));
    check("send 1,2; get 1; lost 1; get 2", Some("message 2 before 1"));
    check("send 1,2; get 1; ask 1; get 2", None);
}

#[test]
fn what_was_given_out_too_often_may_be_dead() {
    check("send 1,2; get 1; next; get 1; next; get 1; next; get 1; next; get 2", None);
    // Answers to those who received were lost before anybody heard of 1.
    check("send 2; get; get; get; get 1; next; get 2", None);
    check("send 2; get; get 1; next; get 2", Some("message 2 before 1"));
}

#[test]
fn what_is_settled_does_not_come_again() {
    check("send 1; get 1; done 1; get 1", Some("though it was Completed"));
    check("send 1; get 1; done 1; reopen; get 1", Some("though it was Completed"));
    check("send 1; get 1; ask 1; reopen; get 1", None);
    check("send 1; get 1; defer 1; get 1", Some("though it was Deferred"));
    check("send 1; get 1; defer 1; again 1; done 1", None);
    check("send 1; get 1; dead 1; get 1", Some("though it was Dead"));
}

#[test]
fn after_a_restart_everything_comes_in_order() {
    check("send 1,2; get 1; reopen; get 1,2", None);
    check("send 1,2; get 1; reopen; get 2", Some("message 2 before 1"));
    // Whether 1 is done nobody knows; if it was not, it should have come first.
    check("send 1,2; get 1; ask 1; reopen; get 2", None);
    check("send 1,2; get 1; ask 1; reopen; get 2; done 2; get 1", Some("message 1 after 2"));
}

#[test]
fn dead_letters_come_back_in_order() {
    check("send 1,2,3; get 1,2; dead 1,2; revive 1,2; get 1,2,3", None);
    check("send 1,2,3; get 1,2; dead 1,2; revive 1,2; get 2", Some("message 2 before 1"));
    check("send 1,2,3; get 1; dead 1; get 2; revive 1; abandon 2; get 1,2", None);
}

#[test]
fn a_session_has_one_receiver() {
    check("next; next", None);
    check("steal", Some("two receivers"));
    check("reopen", None);
}

#[test]
fn a_second_message_of_an_event_comes_only_after_the_window() {
    check("send 1; get 1; done 1; copy 1", Some("kept as 1 and 101"));
}

#[test]
fn a_message_must_be_one_of_an_event() {
    check("get 9", Some("no event has the message id"));
}

#[test]
fn an_effect_happens_once_and_in_order() {
    check("effect 1,2,3,4", None);
    check("effect 1,1", Some("twice"));
    check("effect 1,3", Some("number 3 of k had its effect before event 2"));
    check("send 1,2; get 1; defer 1; effect 2,1", None);
    check("effect 9", Some("no event"));
}
