//! Who may depend on whom.

use crate::tidy::repository::{Crate, Dependency, Repository};

/// For each library the crates of ours that it may use. A crate that is not here is refused until
/// somebody has decided where it belongs.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    // Servers that tests start; it knows nothing of what is stored on them.
    ("nats-servers", &[]),
    ("query", &["core"]),
    ("outbox", &["core"]),
    ("processor", &["core"]),
    ("relay", &["core", "processor"]),
    // A backend and its driver: what two backends share belongs in core.
    ("store", &["core"]),
    ("broker", &["core"]),
    ("webhook", &["core"]),
    ("backend-cosmos", &["core"]),
    ("backend-nats", &["core"]),
    ("backend-postgres", &["core"]),
    ("backend-servicebus", &["core"]),
    ("gateway", &["core", "query"]),
    ("amqp", &["core", "broker"]),
    (
        "millstream",
        &[
            "core",
            "query",
            "outbox",
            "processor",
            "relay",
            "store",
            "broker",
            "webhook",
            "backend-cosmos",
            "backend-nats",
            "backend-postgres",
            "backend-servicebus",
            "gateway",
            "amqp",
        ],
    ),
];

/// What the tests of a library may use besides. Tests keep to the list too, because a library that
/// can only be tested with its neighbours has the wrong boundary; the two protocols are the
/// exception, as their proof is to run on the store that users run them on. The client of one of
/// them runs the conformance suite through it, and proves that a processor and an outbox work so.
/// Servers that are processes are started by one crate for all.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("gateway", &["store"]),
    ("amqp", &["backend-servicebus"]),
    ("backend-cosmos", &["gateway", "outbox", "processor", "store"]),
    ("backend-nats", &["nats-servers"]),
];

/// These may use anything. They are programs at the end of the graph: whatever they pull in reaches
/// nobody, since no library is allowed to name them. A test that needs several crates at once
/// goes into one of these.
const UNRESTRICTED: &[&str] =
    &["cli", "contacts", "sim", "bench", "crash", "prove", "fuzz", "tests", "xtask"];

/// Edges that are not in the lists.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    repository.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(found: &Crate) -> Vec<String> {
    let name = found.name.as_str();
    if UNRESTRICTED.contains(&name) {
        return Vec::new();
    }
    let Some(allowed) = listed(ALLOWED, name) else {
        return vec![format!(
            "crate {name} is not in the list of who may depend on whom: add it to ALLOWED in \
             xtask/src/tidy/dependencies.rs"
        )];
    };
    let in_tests = listed(ALLOWED_IN_TESTS, name).unwrap_or_default();
    let is_allowed = |dependency: &&Dependency| {
        let to = dependency.name.as_str();
        // A crate may name itself in its tests to switch on its own features.
        let only_in_tests = to == name || in_tests.contains(&to);
        allowed.contains(&to) || (dependency.only_for_tests && only_in_tests)
    };
    let forbidden = found.dependencies.iter().filter(|it| !is_allowed(it));
    forbidden
        .map(|dependency| {
            let when = if dependency.only_for_tests { ", not even in tests" } else { "" };
            format!("{name} must not depend on {}{when}", dependency.name)
        })
        .collect()
}

fn listed(list: &[(&str, &'static [&'static str])], name: &str) -> Option<&'static [&'static str]> {
    list.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use crate::tidy::dependencies::{self, ALLOWED, UNRESTRICTED};
    use crate::tidy::repository::tests::with_crate;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        assert_eq!(dependencies::check(&with_crate(line)), expected);
    }

    #[test]
    fn listed_edges_pass() {
        check("core:", &[]);
        check("relay: core processor", &[]);
        check("store: core (core) (store)", &[]);
    }

    #[test]
    fn an_edge_that_is_not_listed_is_found() {
        check("core: store", &["core must not depend on store"]);
        check("backend-postgres: core relay", &["backend-postgres must not depend on relay"]);
        check("store: store", &["store must not depend on store"]);
    }

    #[test]
    fn tests_keep_to_the_list_but_for_the_clients_of_a_protocol() {
        check("outbox: core (store)", &["outbox must not depend on store, not even in tests"]);
        check("gateway: core (store)", &[]);
        check("gateway: core store", &["gateway must not depend on store"]);
    }

    #[test]
    fn programs_use_what_they_like_and_nobody_uses_them() {
        check("crash: core store relay", &[]);
        check("store: core bench", &["store must not depend on bench"]);
        let named = ALLOWED.iter().flat_map(|(_, to)| to.iter());
        assert_eq!(named.filter(|it| UNRESTRICTED.contains(it)).count(), 0);
    }

    #[test]
    fn a_crate_that_nobody_placed_is_found() {
        check(
            "common: core",
            &["crate common is not in the list of who may depend on whom: add it to ALLOWED in \
               xtask/src/tidy/dependencies.rs"],
        );
    }
}
