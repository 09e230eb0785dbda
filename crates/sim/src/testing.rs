use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Container, ContainerName, ContainerSettings, Containers, PartitionKeyDefinition,
};

use crate::clock::SimClock;
use crate::executor::handle::Handle;

/// A store with one container, and that container.
pub(crate) fn store(handle: &Handle, ranges: u32) -> (Memory, Container) {
    let store = Memory::new(SimClock::of_world(handle));
    block_on(store.create_database("test")).unwrap();
    let name = ContainerName::new("test", "items").unwrap();
    let key = PartitionKeyDefinition::hash("/partitionKey").unwrap();
    block_on(store.create(&name, ContainerSettings::new(key).ranges(ranges))).unwrap();
    let container = block_on(store.open(&name)).unwrap();
    (store, container)
}

/// The container alone.
pub(crate) fn container(handle: &Handle, ranges: u32) -> Container {
    store(handle, ranges).1
}
