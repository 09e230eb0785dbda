use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Clock, Etag, FeedMode, IdSource, Item, ItemId, KeyRange, Lsn, PartitionKey, Timestamp,
};
use serde_json::{Value, json};

use crate::clock::SimClock;
use crate::executor::{Executor, NodeId};
use crate::ids::SimIds;
use crate::ledger::Ledger;
use crate::properties::Deliveries;
use crate::rng::Rng;
use crate::truth::Truth;
use crate::watch::{Commit, Write};

/// Two instances, `a` and `b`, and one lease for all keys. Their leases last ten seconds.
struct Scene {
    executor: Executor,
    ledger: Arc<Ledger>,
    nodes: Vec<(NodeId, Arc<SimIds>)>,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        let executor = Executor::new(1);
        let handle = executor.handle();
        let deliveries = Arc::new(Deliveries::new(Truth::default(), FeedMode::LatestVersion));
        let ledger = Arc::new(Ledger::new(handle, deliveries, Duration::from_secs(10)));
        let clock: Arc<dyn Clock> = SimClock::of_world(handle);
        let mut nodes = Vec::new();
        for (number, name) in (0..).zip(["a", "b"]) {
            let rng = Rng::stream(1, "ids").fork(number);
            let ids = Arc::new(SimIds::new(Arc::clone(&clock), rng));
            ids.next_id();
            let node = handle.add_node(name);
            ledger.add_node(node, name, Arc::clone(&ids));
            nodes.push((node, ids));
        }
        Self { executor, ledger, nodes, now: 0 }
    }

    fn owner(&self, name: &str) -> Value {
        let index = usize::from(name == "b");
        match name {
            "-" => Value::Null,
            _ => json!({"instance": name, "incarnation": self.nodes[index].1.first().unwrap()}),
        }
    }

    fn write(&self, by: &str, id: &str, body: Option<Value>) -> Result<(), String> {
        let (key, item_id) =
            (PartitionKey::from("sim"), ItemId::new(&format!("sim:{id}")).unwrap());
        let after = body.map(|body| Item {
            id: item_id.clone(),
            partition_key: key.clone(),
            body: body.to_string().into(),
            etag: Etag::new("1"),
            lsn: Lsn::new(1),
            written_at: Timestamp::EPOCH,
            expires_at: None,
            sequence: None,
        });
        let commit = Commit {
            node: self.nodes[usize::from(by == "b")].0,
            at: Duration::from_secs(self.now),
            lsn: Lsn::new(1),
            partition_key: key,
            writes: vec![Write { id: item_id, before: None, after }],
        };
        self.ledger.committed(&commit)
    }

    /// `a> ...` is something that `a` does: `start` makes the control document and the lease,
    /// `alive` is a sign of life, `leave` the end, `+5` lets seconds pass, `call 1` calls the
    /// handler in epoch 1, and `b 2 7` writes the lease with the owner, the epoch and the
    /// position.
    fn step(&mut self, step: &str) -> Result<(), String> {
        let (by, what) = step.split_once('>').unwrap();
        let words: Vec<&str> = what.split_whitespace().collect();
        match words.as_slice() {
            ["start"] => {
                let root = json!({"keys": KeyRange::all(), "position": "1.1.l.0"});
                let control = json!({"roots": [root], "complete": false});
                self.write(by, "control", Some(control))?;
                self.write(by, "lease:1", Some(self.lease("-", "0", "0", "active")))
            }
            ["alive"] => self.write(by, &format!("member:{by}"), Some(self.owner(by))),
            ["leave"] => self.write(by, &format!("member:{by}"), None),
            ["call", epoch] => {
                let (node, epoch) = (self.nodes[usize::from(by == "b")].0, epoch.parse().unwrap());
                let key = vec![PartitionKey::from("k")];
                let call = self.ledger.called(node, &KeyRange::all(), epoch, key);
                // It goes on to the end of the test.
                std::mem::forget(call);
                self.executor.handle().failure().map_or(Ok(()), Err)
            }
            [seconds] => {
                let seconds: u64 = seconds.trim_start_matches('+').parse().unwrap();
                self.now += seconds;
                self.executor.run_until(Duration::from_secs(self.now));
                Ok(())
            }
            [owner, epoch, position] => {
                self.write(by, "lease:1", Some(self.lease(owner, epoch, position, "active")))
            }
            [owner, epoch, position, state] => {
                self.write(by, "lease:1", Some(self.lease(owner, epoch, position, state)))
            }
            _ => panic!("{step:?} is no step"),
        }
    }

    fn lease(&self, owner: &str, epoch: &str, position: &str, state: &str) -> Value {
        let children = if state == "active" { vec![] } else { KeyRange::divide(2).unwrap() };
        json!({
            "keys": KeyRange::all(),
            "position": format!("1.1.l.{position}"),
            "epoch": epoch.parse::<u64>().unwrap(),
            "owner": self.owner(owner),
            "state": state,
            "children": children,
        })
    }
}

/// Runs steps, of which the last one must be found wrong if something is expected.
#[track_caller]
fn check(steps: &str, expected: &str) {
    let mut scene = Scene::new();
    let steps: Vec<&str> = steps.split(", ").collect();
    for (number, step) in (1..).zip(&steps) {
        match scene.step(step) {
            Ok(()) => (),
            Err(violation) => {
                assert_eq!(number, steps.len(), "{step}: {violation}");
                assert!(!expected.is_empty() && violation.contains(expected), "{violation}");
                return;
            }
        }
    }
    assert_eq!(expected, "", "nothing was found");
}

#[test]
fn a_lease_that_is_taken_checkpointed_and_handed_over_is_fine() {
    check("a>start, a>alive, a>a 1 0, a>call 1, a>a 1 5, a>b 2 7, b>b 3 7", "");
    check("a>start, a>alive, a>a 1 0, a>- 2 5, b>alive, b>b 3 5", "");
}

#[test]
fn positions_and_epochs_do_not_go_back() {
    check("a>start, a>alive, a>a 1 0, a>a 1 5, a>a 1 4", "went back from 5");
    check("a>start, a>alive, a>a 2 0, a>a 1 0", "the epoch of");
}

#[test]
fn only_the_owner_moves_a_position_or_gives_a_lease_away() {
    check("a>start, a>alive, a>a 1 0, b>a 1 5", "moved the position");
    check("a>start, a>alive, a>a 1 0, a>b 1 0", "has two owners");
    check("a>start, a>alive, a>a 1 0, b>- 2 0", "gave away");
    check("a>start, a>alive, b>a 1 0", "gave away");
    check("a>start, a>alive, a>a 1 0, b>a 2 0", "changed the epoch");
}

#[test]
fn a_lease_is_taken_only_from_an_owner_that_was_silent_for_long() {
    check("a>start, a>alive, a>a 1 0, a>+9, b>b 2 0", "never silent");
    check("a>start, a>alive, a>a 1 0, a>+10, b>b 2 0", "");
    check("a>start, a>alive, a>a 1 0, a>+9, a>alive, a>+9, b>b 2 0", "never silent");
    // Whoever comes back after such a silence has lost its leases.
    check("a>start, a>alive, a>a 1 0, a>+10, a>alive, b>b 2 0", "");
    check("a>start, a>alive, a>+10, a>alive, a>+1, a>a 1 0, b>b 2 0", "never silent");
    check("a>start, a>alive, a>a 1 0, a>leave, b>b 2 0", "");
}

#[test]
fn keys_stay_covered() {
    check("a>start, a>alive, a>a 1 0, a>a 1 0 splitting", "");
    check("a>start, a>alive, a>a 1 0, b>a 1 0 splitting", "began to split");
    check("a>start, a>alive, a>a 1 0, a>a 1 0 retired", "do not cover");
    check("a>start, a>alive, a>a 1 0, a>a 1 0 splitting, a>a 1 3 splitting", "frozen");
}

#[test]
fn a_handler_is_called_only_by_the_owner_and_once_at_a_time() {
    check("a>start, a>alive, a>a 1 0, a>b 2 0, a>call 1", "in epoch 1; it is in epoch 2");
    check("a>start, a>a 1 0, a>call 1", "but the name is");
    check("a>start, a>alive, a>a 1 0, a>+1, a>call 1, a>call 1", "while a (node 1) is at work");
}
