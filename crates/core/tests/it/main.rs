//! The memory store keeps the contract, and the suite notices when a store does not.

mod mutants;
mod subject;

mod memory {
    use millstream_core::conformance::block_on;

    use crate::subject::InMemory;

    millstream_core::conformance_tests!(InMemory::new(), block_on);
}
