//! Traces of the machine a file was written on, which are useless or worse to everybody else.

use crate::tidy::repository::Repository;

/// Directories at the root of somebody's machine or container: home directories and the usual
/// places of checkouts. Without their slashes, so that this file does not hold what it looks for.
const DIRECTORIES: &[&str] =
    &["home", "root", "Users", "work", "workspace", "workspaces", "builds"];

/// Registries and addresses that only one machine or its mirror needs. In pieces for the same
/// reason.
const ADDRESSES: &[&str] = &[
    concat!("file:", "//"),
    concat!("crates.", "io-index"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry", "+http"),
    concat!("sparse", "+http"),
    concat!("replace", "-with"),
    concat!("arti", "factory"),
];

/// Written by cargo, with the address of the registry in it; `manifests` checks that address.
const LOCK: &str = "Cargo.lock";

/// Lines that name a path or host of one machine.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|it| !it.path.ends_with(LOCK)) {
        for (index, line) in file.text.lines().enumerate() {
            for leak in leaks(line) {
                findings.push(format!("{}:{} names {leak:?}", file.path, index + 1));
            }
        }
    }
    findings
}

fn leaks(line: &str) -> Vec<String> {
    let paths = DIRECTORIES.iter().flat_map(|it| [format!("/{it}/"), format!("\\{it}\\")]);
    let paths = paths.filter(|it| names_absolute_path(line, it));
    let addresses = ADDRESSES.iter().filter(|it| line.contains(**it)).map(|it| (*it).to_owned());
    paths.chain(addresses).collect()
}

/// Whether `directory` starts a path on `line`, rather than going on with one: a folder of this
/// name inside another, and the path of a web address, belong to nobody's machine. A drive letter
/// starts a path.
fn names_absolute_path(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|it| !it.is_alphanumeric() && !"_-.~}*/".contains(it))
    })
}

#[cfg(test)]
mod tests {
    use crate::tidy::leaks::{self, ADDRESSES, DIRECTORIES};
    use crate::tidy::repository::tests::with_file;

    /// `|` stands for a slash, so that this file itself passes.
    #[track_caller]
    fn check(line: &str, leak: Option<&str>) {
        let (line, leak) = (line.replace('|', "/"), leak.map(|it| it.replace('|', "/")));
        let expected: Vec<String> = leak.iter().map(|it| format!("a.md:2 names {it:?}")).collect();
        assert_eq!(leaks::check(&with_file("a.md", &format!("\n{line}\n"))), expected);
    }

    #[test]
    fn every_directory_and_address_is_found() {
        for directory in DIRECTORIES {
            check(&format!("see |{directory}|a"), Some(&format!("|{directory}|")));
        }
        for address in ADDRESSES {
            let found = leaks::check(&with_file("a.toml", &format!("a = \"{address}\"")));
            assert_eq!(found, [format!("a.toml:1 names {address:?}")]);
        }
    }

    #[test]
    fn a_path_is_found_wherever_it_starts() {
        check("|root|a", Some("|root|"));
        check("(\"|home|ada|a\")", Some("|home|"));
        check("a:|home|ada", Some("|home|"));
    }

    #[test]
    fn a_drive_letter_starts_a_path() {
        let line = ["C:", "Users", "ada"].join("\\");
        assert_eq!(leaks::check(&with_file("a.rs", &line)).len(), 1);
    }

    #[test]
    fn relative_paths_and_web_addresses_pass() {
        check("docs|work|a", None);
        check("..|root|a", None);
        check("https:||example.org|home|a", None);
        check("$dir}|work|a", None);
    }

    #[test]
    fn the_lock_file_is_left_to_another_rule() {
        assert!(leaks::check(&with_file("Cargo.lock", ADDRESSES[1])).is_empty());
    }
}
