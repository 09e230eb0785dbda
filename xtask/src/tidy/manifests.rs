//! What every manifest must say.

use crate::tidy::repository::{Crate, File, Repository};

const LICENSE: &str = "MIT OR Apache-2.0";
const REASON: &str = "# Why a crate: ";

/// Where every package must come from, as cargo writes it in the lock file. In pieces, so that
/// this file does not hold an address that the rule about leaks looks for.
const REGISTRY: &str = concat!("registry", "+https://github.com/rust-lang/crates.", "io-index");

/// Crates without licence, description or reason, and packages from elsewhere.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let locks = repository.files.iter().filter(|it| it.path.ends_with("Cargo.lock"));
    let of_crates = repository.crates.iter().flat_map(check_crate);
    of_crates.chain(locks.flat_map(check_lock)).collect()
}

fn check_crate(found: &Crate) -> Vec<String> {
    let name = &found.name;
    let mut findings = Vec::new();
    if found.license != LICENSE {
        findings.push(format!("crate {name} has licence {:?}, not {LICENSE:?}", found.license));
    }
    if found.description.trim().is_empty() {
        findings.push(format!("crate {name} has no description"));
    }
    let reason = found.manifest.lines().find_map(|it| it.strip_prefix(REASON));
    if reason.is_none_or(|it| it.trim().is_empty()) {
        findings.push(format!("crate {name} does not say in its manifest \"{REASON}...\""));
    }
    findings
}

fn check_lock(lock: &File) -> Vec<String> {
    let sources = lock.text.lines().filter_map(|it| it.strip_prefix("source = "));
    let other = sources.map(|it| it.trim_matches('"')).filter(|it| *it != REGISTRY);
    other.map(|it| format!("{} takes a package from {it}", lock.path)).collect()
}

#[cfg(test)]
mod tests {
    use crate::tidy::manifests::{self, LICENSE, REGISTRY};
    use crate::tidy::repository::tests::with_file;
    use crate::tidy::repository::{Crate, Repository};

    #[track_caller]
    fn check(license: &str, description: &str, manifest: &str, expected: &[&str]) {
        let found = Crate {
            name: "store".to_owned(),
            license: license.to_owned(),
            description: description.to_owned(),
            manifest: manifest.to_owned(),
            dependencies: vec![],
        };
        let repository = Repository { files: vec![], crates: vec![found] };
        assert_eq!(manifests::check(&repository), expected);
    }

    #[test]
    fn a_whole_manifest_passes() {
        check(LICENSE, "The engine", "[package]\n# Why a crate: it carries fjall.\n", &[]);
    }

    #[test]
    fn each_missing_part_is_found() {
        let reason = "# Why a crate: it carries fjall.";
        check(
            "MIT",
            "The engine",
            reason,
            &["crate store has licence \"MIT\", not \"MIT OR Apache-2.0\""],
        );
        check(LICENSE, " ", reason, &["crate store has no description"]);
        let silent = &["crate store does not say in its manifest \"# Why a crate: ...\""];
        check(LICENSE, "The engine", "[package]", silent);
        check(LICENSE, "The engine", "# Why a crate: ", silent);
    }

    #[test]
    fn a_package_from_another_registry_is_found() {
        let lock = |source: &str| with_file("Cargo.lock", &format!("source = \"{source}\"\n"));
        assert!(manifests::check(&lock(REGISTRY)).is_empty());
        assert_eq!(
            manifests::check(&lock("git+https://example.org/a")),
            ["Cargo.lock takes a package from git+https://example.org/a"],
        );
    }
}
