use millstream_core::{
    Batch, Container, ErrorKind as CoreErrorKind, KeyRange, Operation, PageSize, ScanScope,
};

use crate::error::{Error, Result};

/// Items read at once.
const PAGE_ITEMS: usize = 1_000;

/// Removes every document that the processor `name` has in a container of leases or dead letters:
/// its leases and instances, and what it has parked, skipped or put off. Returns how many there
/// were.
///
/// Nobody must run the processor any more: an instance that does has nothing left to work on and
/// says so until it is started again. It then begins where its options say.
///
/// # Errors
///
/// Those of the container.
///
/// # Cancel safety
///
/// Dropping the future may leave some of the documents; call it again.
pub async fn remove_processor(container: &Container, name: &str) -> Result<u64> {
    let what = format!("remove the processor {name:?}");
    let prefix = format!("{name}:");
    let scope = ScanScope::Keys(KeyRange::all());
    let (mut removed, mut after) = (0, None);
    loop {
        let page = container.documents.scan(&scope, after.as_ref(), PageSize::items(PAGE_ITEMS));
        let page = page.await.map_err(|it| Error::store(&*what, it))?;
        for item in page.items.iter().filter(|it| it.id.as_str().starts_with(&prefix)) {
            let delete = Operation::delete(item.id.clone());
            let batch = Batch::new(item.partition_key.clone()).with(delete);
            match container.documents.commit(batch).await {
                Ok(_) => removed += 1,
                Err(error) if error.kind() == CoreErrorKind::NotFound => (),
                Err(error) => return Err(Error::store(what, error)),
            }
        }
        after = page.continuation;
        if after.is_none() {
            return Ok(removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::conformance::block_on;

    use super::*;
    use crate::test_world::{PROCESSOR, World};

    #[test]
    fn a_processor_is_removed_and_others_stay() {
        for path in ["/id", "/partitionKey"] {
            let world = World::started(path, 3);
            block_on(async {
                assert_eq!(remove_processor(&world.leases, "order").await.unwrap(), 0);
                // Three leases and the control document.
                assert_eq!(remove_processor(&world.leases, PROCESSOR).await.unwrap(), 4);
                assert!(world.store.read_control().await.unwrap().is_none());
            });
        }
    }
}
