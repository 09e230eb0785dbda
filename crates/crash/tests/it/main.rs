//! The machinery against real processes, and against a store small enough to be right.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod kill;
mod power;
mod recorder;
mod store;

use std::path::PathBuf;

use millstream_crash::Target;

fn naive(mutant: Option<&str>) -> Target {
    Target {
        executable: PathBuf::from(env!("CARGO_BIN_EXE_millstream-crash")),
        subject: "naive".to_owned(),
        mutant: mutant.map(str::to_owned),
    }
}

fn scratch() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}
