//! Hands the targets of `millstream_store::fuzzing`, `millstream_query::fuzzing` and
//! `millstream_gateway::fuzzing` to the fuzzer.
//!
//! Run them with `cargo xtask fuzz` from the root of the repository. What they do is in the module
//! `fuzzing` of each crate; the ordinary tests run the same functions on less input. A finding
//! becomes a named test there.

/// What the targets of the gateway begin with.
const GATEWAY: &str = "gateway_";

/// Makes a fuzz target of the one with this name.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::run($name, data));
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate($name, data, size, max_size, seed)
        });
    };
}

/// Makes a fuzz target of a function of the query crate and of what it is to start from.
#[macro_export]
macro_rules! query_target {
    ($run:path, $seeds:path) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $run(data));
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate_from($seeds, data, size, max_size, seed)
        });
    };
}

/// Runs a target.
pub fn run(name: &str, data: &[u8]) {
    if name.starts_with(GATEWAY) {
        return (millstream_gateway::fuzzing::target(name).run)(data);
    }
    (millstream_store::fuzzing::target(name).run)(data);
}

/// Changes input. Now and then it starts anew from a valid one, so that no corpus has to be kept.
///
/// Returns the new size.
pub fn mutate(name: &str, data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutate_from(seeds(name), data, size, max_size, seed)
}

/// As [`mutate`], from these seeds.
pub fn mutate_from<T: AsRef<[u8]>>(
    seeds: &[T],
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
) -> usize {
    let mut size = size;
    if seed % ROUNDS_PER_SEED == 0 {
        let index = usize::try_from(seed / ROUNDS_PER_SEED).expect("32 bits fit") % seeds.len();
        let chosen = seeds[index].as_ref();
        let chosen = &chosen[..chosen.len().min(max_size)];
        data[..chosen.len()].copy_from_slice(chosen);
        size = chosen.len();
    }
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
}

/// The seeds, made once: some take a store to make.
fn seeds(name: &str) -> &'static [Vec<u8>] {
    static SEEDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SEEDS.get_or_init(|| {
        if name.starts_with(GATEWAY) {
            let seeds = millstream_gateway::fuzzing::target(name).seeds;
            return seeds.iter().map(|it| it.to_vec()).collect();
        }
        (millstream_store::fuzzing::target(name).seeds)()
    })
}

const ROUNDS_PER_SEED: u32 = 32;
