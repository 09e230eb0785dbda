//! Where the server is installed.

use std::env;
use std::path::PathBuf;

/// Whether there is a server to start.
#[must_use]
pub fn is_installed() -> bool {
    program().is_some()
}

/// Whether there is a server to start; says loudly that a test is skipped if there is none.
///
/// # Panics
///
/// If there is none and `MILLSTREAM_TEST_REQUIRE` names `nats`.
#[must_use]
pub fn is_installed_for_tests() -> bool {
    if is_installed() {
        return true;
    }
    let required = env::var("MILLSTREAM_TEST_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|it| it == "nats");
    assert!(!is_required, "nats-server is not on the path, and this run requires it");
    eprintln!(
        "SKIPPED: nats-server is not on the path; install it, or name it in MILLSTREAM_NATS_SERVER"
    );
    false
}

/// Where the server is: named by a variable, or on the path.
pub(crate) fn program() -> Option<PathBuf> {
    let named = env::var_os("MILLSTREAM_NATS_SERVER").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut on_path = env::split_paths(&path).map(|it| it.join("nats-server"));
    named.or_else(|| on_path.find(|it| it.is_file()))
}
