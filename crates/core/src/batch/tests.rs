use std::sync::Arc;

use super::*;
use crate::conformance::block_on;
use crate::memory::Memory;
use crate::{
    ContainerName, Containers, Documents, ManualClock, PartitionKeyDefinition, PatchCondition,
    PatchOperation,
};

async fn documents() -> Arc<dyn Documents> {
    let store = Memory::new(Arc::new(ManualClock::starting_at(crate::Timestamp::EPOCH)));
    store.create_database("d").await.unwrap();
    let name = ContainerName::new("d", "c").unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    store.create(&name, settings).await.unwrap();
    store.open(&name).await.unwrap().documents
}

/// Patches of one item whose conditions hold and take so many steps.
fn patches(steps: &[u64]) -> Batch {
    let patch = |steps: u64| {
        let take = move |_: &[u8], _: Option<&Item>, left: &mut u64| {
            let rest = left.checked_sub(steps);
            *left = rest.ok_or_else(|| Error::invalid("decide", "it takes too long"))?;
            Ok(true)
        };
        let patch = Patch::new(vec![PatchOperation::increment("/n", 1).unwrap()]).unwrap();
        let patch = patch.with_condition(PatchCondition::with_item("?", take));
        Operation::patch(ItemId::new("1").unwrap(), patch)
    };
    steps.iter().fold(Batch::new("a"), |batch, steps| batch.with(patch(*steps)))
}

#[test]
fn the_conditions_of_a_batch_share_their_steps() {
    block_on(async {
        let documents = documents().await;
        let item = r#"{"id":"1","pk":"a","n":0}"#;
        documents.commit(Batch::new("a").with(Operation::create(item))).await.unwrap();
        let half = CONDITION_STEPS_MAX / 2;
        // Each batch begins anew.
        for _ in 0..2 {
            documents.commit(patches(&[half, 0, half])).await.unwrap();
        }
        let error = documents.commit(patches(&[half, 0, half, 1])).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Invalid, Some(3)));
        assert!(documents.commit(patches(&[2 * half + 1])).await.is_err());
    });
}

#[test]
fn a_batch_patches_so_much_however_small_it_makes_the_items() {
    block_on(async {
        let documents = documents().await;
        let create = async |id: &str| {
            let text = "x".repeat(ITEM_BYTES_MAX - 100);
            let item = format!(r#"{{"id":"{id}","pk":"a","text":"{text}"}}"#);
            documents.commit(Batch::new("a").with(Operation::create(item))).await.unwrap();
        };
        let shrunk = |batch: Batch, id: &str| {
            let patch = Patch::new(vec![PatchOperation::remove("/text").unwrap()]).unwrap();
            batch.with(Operation::patch(ItemId::new(id).unwrap(), patch))
        };
        for id in ["1", "2", "3"] {
            create(id).await;
        }
        let three = ["1", "2", "3"].into_iter().fold(Batch::new("a"), shrunk);
        let error = documents.commit(three).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::TooLarge, Some(2)));
        documents.commit(["1", "2"].into_iter().fold(Batch::new("a"), shrunk)).await.unwrap();
    });
}
