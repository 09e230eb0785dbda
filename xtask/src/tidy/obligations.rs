//! The numbers by which the contract, its tests and people name an obligation.
//!
//! A port says in its documentation which obligations it carries ("Obligations 1-6 and 16"); the
//! conformance suite has one or more functions `obligation_<number>_<sentence>` for each.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::repository::Repository;

const PORTS: &str = "crates/core/src/ports";
const CONFORMANCE: &str = "crates/core/src/conformance";

/// Tests that share a name, promises without a test, and tests of what nobody promises.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let promised: BTreeSet<u32> =
        lines(repository, PORTS).flat_map(|(_, line)| promised(line)).collect();
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (place, line) in lines(repository, CONFORMANCE) {
        if let Some(name) = tested(line) {
            places.entry(name).or_default().push(place);
        }
    }
    let tested: BTreeSet<u32> = places.keys().filter_map(|it| number(it)).collect();

    let twice = places.iter().filter(|(_, places)| 1 < places.len());
    let twice = twice.map(|(name, places)| format!("{name} is given in {}", places.join(", ")));
    let untested = promised.difference(&tested);
    let untested = untested.map(|it| format!("obligation {it} is promised but has no test"));
    let unknown = tested.difference(&promised);
    let unknown = unknown.map(|it| format!("obligation {it} is tested but no port promises it"));
    twice.chain(untested).chain(unknown).collect()
}

fn lines<'a>(
    repository: &'a Repository,
    under: &'a str,
) -> impl Iterator<Item = (String, &'a str)> {
    let files = repository.rust_files().filter(move |it| it.path.starts_with(under));
    files.flat_map(|file| {
        let lines = file.text.lines().enumerate();
        lines.map(|(index, line)| (format!("{}:{}", file.path, index + 1), line))
    })
}

/// `"/// Items. Obligations 1-3 and 16."` promises 1, 2, 3 and 16.
fn promised(line: &str) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let Some((_, after)) = line.split_once("Obligation") else { return numbers };
    for word in after.trim_start_matches('s').split_whitespace() {
        let Some((first, last)) = range(word.trim_end_matches([',', '.', ':', ';'])) else {
            if word == "and" {
                continue;
            }
            break;
        };
        numbers.extend(first..=last);
        if word.ends_with('.') {
            break;
        }
    }
    numbers
}

fn range(word: &str) -> Option<(u32, u32)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The name of the test that starts on `line`.
fn tested(line: &str) -> Option<&str> {
    let (_, after) = line.split_once("fn ")?;
    let name = after.split(['(', '<']).next()?;
    number(name).map(|_| name)
}

fn number(name: &str) -> Option<u32> {
    name.strip_prefix("obligation_")?.split('_').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use crate::tidy::obligations;
    use crate::tidy::repository::{File, Repository};

    #[track_caller]
    fn check(ports: &str, suite: &str, expected: &[&str]) {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = vec![
            file("crates/core/src/ports.rs", ports),
            file("crates/core/src/conformance/feed.rs", suite),
            file("crates/store/src/a.rs", "fn obligation_99_of_nobody() {}"),
        ];
        assert_eq!(obligations::check(&Repository { files, crates: vec![] }), expected);
    }

    #[track_caller]
    fn check_promised(line: &str, expected: &[u32]) {
        assert_eq!(obligations::promised(line).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_obligation_may_have_several_tests() {
        check(
            "/// Items. Obligations 1-2.",
            "async fn obligation_01_a(it: A) {}\nfn obligation_01_b<T>() {}\n\
             pub(super) async fn obligation_02_c(\n",
            &[],
        );
    }

    #[test]
    fn a_name_given_twice_is_found_with_both_places() {
        check(
            "/// Obligation 3.",
            "fn obligation_03_a() {}\nfn obligation_03_a() {}\n",
            &["obligation_03_a is given in crates/core/src/conformance/feed.rs:1, \
               crates/core/src/conformance/feed.rs:2"],
        );
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        check(
            "/// Obligations 3 and 4.",
            "fn obligation_03_a() {}",
            &["obligation 4 is promised but has no test"],
        );
    }

    #[test]
    fn a_test_of_what_nobody_promises_is_found() {
        check(
            "/// Obligation 3.",
            "fn obligation_03_a() {}\nfn obligation_5_b() {}",
            &["obligation 5 is tested but no port promises it"],
        );
    }

    #[test]
    fn promises_are_read_from_a_sentence() {
        check_promised("/// Items. Obligations 1-3 and 16 of the contract.", &[1, 2, 3, 16]);
        check_promised("/// Obligations 7, 8 and 9. Up to 100 items.", &[7, 8, 9]);
        check_promised("/// Obligation 15.", &[15]);
        check_promised("/// Obligations are numbered from 1.", &[]);
        check_promised("/// 1. An item.", &[]);
    }
}
