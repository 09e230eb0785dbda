//! What the fuzz targets do with their input: every decoder of bytes that were stored or received.
//!
//! A target panics if a decoder panics, or if what it accepted does not come back the same when it
//! is written again. The bodies are plain functions, so that the tests run them on any toolchain;
//! `fuzz/` only hands them to the fuzzer.
//!
//! Read `contract` first (what clients send), then `stored` (what the tables hold), `log`,
//! `catalog` and `opening` (from single bytes to a whole store). `seeds` makes valid input to start
//! from.

mod catalog;
mod contract;
mod disk;
mod lines;
mod log;
mod opening;
mod seeds;
mod stored;
#[cfg(test)]
mod tests;

/// A decoder, or several that belong together, under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// Panics if something is wrong.
    pub run: fn(&[u8]),
    /// Input that is accepted, to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, cheapest first.
pub const TARGETS: &[Target] = &[
    Target { name: "effective_key", run: contract::effective_key, seeds: seeds::effective_keys },
    Target { name: "key_range", run: contract::key_range, seeds: seeds::key_ranges },
    Target { name: "cursor", run: contract::cursor, seeds: seeds::cursors },
    Target { name: "key_bytes", run: contract::key_bytes, seeds: seeds::key_bytes },
    Target { name: "key_text", run: contract::key_text, seeds: seeds::key_texts },
    Target { name: "key_definition", run: contract::key_definition, seeds: seeds::definitions },
    Target { name: "envelope", run: contract::envelope, seeds: seeds::bodies },
    Target { name: "patch", run: contract::patch, seeds: seeds::patches },
    Target { name: "records", run: stored::records, seeds: seeds::records },
    Target { name: "table_keys", run: stored::table_keys, seeds: seeds::table_keys },
    Target { name: "entries", run: stored::entries, seeds: seeds::groups },
    Target { name: "format", run: stored::format, seeds: seeds::formats },
    Target { name: "log_segment", run: log::segments, seeds: seeds::logs },
    Target { name: "catalog", run: catalog::load, seeds: lines::seeds },
    Target { name: "continuation", run: opening::continuation, seeds: seeds::continuations },
    Target { name: "store", run: opening::store, seeds: lines::seeds },
];

/// The target of this name.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("there is no fuzz target {name:?}"))
}
