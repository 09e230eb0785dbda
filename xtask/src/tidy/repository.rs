//! What the rules look at: the text files of the repository and the facts of its crates.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::command::{Command, Failure};

/// Everything a rule may look at.
#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub(crate) files: Vec<File>,
    pub(crate) crates: Vec<Crate>,
}

impl Repository {
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|it| it.path.ends_with(".rs"))
    }
}

/// A text file.
#[derive(Debug)]
pub(crate) struct File {
    /// From the root of the repository, parted by `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A member of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    /// Without the prefix all published crates share.
    pub(crate) name: String,
    pub(crate) license: String,
    pub(crate) description: String,
    /// The text of `Cargo.toml`, for what cargo does not report: comments.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency on another crate in the file system, which is to say on one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) only_for_tests: bool,
}

/// Reads the repository at `root`.
pub(crate) fn read(root: &Path) -> Result<Repository, Failure> {
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let ignored = ignored_paths(&ignored);
    let mut files = Vec::new();
    read_directory(root, "", &ignored, &mut files)
        .map_err(|it| Failure::task(format!("could not read the repository: {it}")))?;
    let metadata =
        Command::cargo(["metadata", "--format-version", "1", "--no-deps"]).output(root)?;
    let mut crates = crates(&metadata)
        .map_err(|it| Failure::task(format!("could not read `cargo metadata`: {it}")))?;
    for (found, manifest_path) in &mut crates {
        found.manifest = fs::read_to_string(&*manifest_path)
            .map_err(|it| Failure::task(format!("could not read {manifest_path}: {it}")))?;
    }
    let crates = crates.into_iter().map(|(found, _)| found).collect();
    Ok(Repository { files, crates })
}

/// The lines of a `.gitignore` that name one path: `/target`. Patterns are not understood, so what
/// they match is checked; that errs on the side of finding too much.
fn ignored_paths(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|it| it.strip_prefix('/'));
    let paths = lines.map(|it| it.trim_end().trim_end_matches('/').to_owned());
    paths.chain([".git".to_owned()]).collect()
}

fn read_directory(
    directory: &Path,
    prefix: &str,
    ignored: &BTreeSet<String>,
    files: &mut Vec<File>,
) -> io::Result<()> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if ignored.contains(&path) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_directory(&entry.path(), &format!("{path}/"), ignored, files)?;
        } else if kind.is_file()
            // What is not text is a fixture, and none of the rules is about those.
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            files.push(File { path, text });
        }
    }
    Ok(())
}

/// The members of the workspace with the paths of their manifests.
fn crates(metadata: &str) -> Result<Vec<(Crate, String)>, serde_json::Error> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = packages.iter().map(|package| {
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice);
        let ours = dependencies.unwrap_or_default().iter().filter(|it| it["path"].is_string());
        let found = Crate {
            name: short(&text(package, "name")),
            license: text(package, "license"),
            description: text(package, "description"),
            manifest: String::new(),
            dependencies: ours
                .map(|it| Dependency {
                    name: short(&text(it, "name")),
                    only_for_tests: it["kind"] == "dev",
                })
                .collect(),
        };
        (found, text(package, "manifest_path"))
    });
    Ok(found.collect())
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

fn short(package: &str) -> String {
    package.strip_prefix("millstream-").unwrap_or(package).to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::tidy::repository::{
        Crate, Dependency, File, Repository, crates, ignored_paths, read_directory,
    };

    /// A repository with one file.
    pub(crate) fn with_file(path: &str, text: &str) -> Repository {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        Repository { files: vec![file], crates: vec![] }
    }

    /// `"outbox: core (store)"` is a crate that depends on core, and on store in its tests.
    pub(crate) fn with_crate(line: &str) -> Repository {
        let (name, dependencies) = line.split_once(':').expect("name: dependencies");
        let dependencies = dependencies.split_whitespace().map(|it| Dependency {
            name: it.trim_matches(['(', ')']).to_owned(),
            only_for_tests: it.starts_with('('),
        });
        let found = Crate {
            name: name.to_owned(),
            dependencies: dependencies.collect(),
            ..Crate::default()
        };
        Repository { files: vec![], crates: vec![found] }
    }

    #[test]
    fn reads_our_dependencies_from_metadata_and_leaves_out_the_others() {
        let metadata = r#"{"packages": [{
            "name": "millstream-store", "license": "MIT", "description": null,
            "manifest_path": "store/Cargo.toml",
            "dependencies": [
                {"name": "bytes", "kind": null},
                {"name": "millstream-core", "kind": null, "path": "core"},
                {"name": "millstream-sim", "kind": "dev", "path": "sim"}
            ]
        }]}"#;
        let found = crates(metadata).expect("valid JSON");
        let [(store, manifest_path)] = found.as_slice() else { panic!("one crate: {found:?}") };
        assert_eq!((store.name.as_str(), manifest_path.as_str()), ("store", "store/Cargo.toml"));
        assert_eq!((store.license.as_str(), store.description.as_str()), ("MIT", ""));
        let dependency =
            |name: &str, only_for_tests| Dependency { name: name.to_owned(), only_for_tests };
        assert_eq!(store.dependencies, [dependency("core", false), dependency("sim", true)]);
    }

    #[test]
    fn ignores_what_git_ignores_by_path() {
        let ignored = ignored_paths("/target\n/fuzz/corpus/\n*.log\n# /comment\n");
        let expected = [".git", "fuzz/corpus", "target"].map(str::to_owned);
        assert_eq!(ignored.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn walks_this_crate_in_order() {
        let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        let ignored = ignored_paths("/src/tidy");
        read_directory(own, "", &ignored, &mut files).expect("the sources are readable");
        let paths: Vec<&str> = files.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths[..3], ["Cargo.toml", "src/arguments.rs", "src/ci.rs"]);
        assert!(!paths.iter().any(|it| it.starts_with("src/tidy/")), "{paths:?}");
    }
}
