//! The tests of the SDK for Rust, which its published crate contains.
//!
//! Cargo fetches the crate as a dependency of an empty package, and its tests are built where cargo
//! put it. A file of the lists is `emulator_tests/cosmos_batch.rs`: the program `emulator` has its
//! tests, in a module of the same name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process;

use serde_json::Value;

use crate::command::{Command, Failure};
use crate::conformance::Fetched;
use crate::conformance::gateway::{Gateway, PUBLIC_KEY};
use crate::conformance::summary::{Summary, self_skipped};
use crate::conformance::work::Work;

const CRATE: &str = "azure_data_cosmos";
/// The version whose tests are run. Another one has other tests, and the lists have to follow.
const VERSION: &str = "1.1.0-beta.1";
/// What the tests need of the crate beside its default.
const FEATURES: &str = "key_auth,control_plane,fault_injection,unstable_patch";
/// Programs of tests, and the category that each one runs only for.
const PROGRAMS: [&str; 2] = ["emulator", "split"];
/// The host that tests know as the place of an emulator.
const HOST: &str = "127.0.0.1";
/// The same host by a name that they do not know: those that skip themselves where an emulator is,
/// because that of Microsoft cannot do what they ask, are run again there.
const OTHER_HOST: &str = "[::ffff:7f00:1]";
/// What the tests read that somebody may have set for another purpose.
const VARIABLES: [&str; 5] = [
    "ACCOUNT_HOST",
    "AZURE_COSMOS_AUTH_MODE",
    "AZURE_COSMOS_BINARY_ENCODING_ENABLED",
    "DATABASE_NAME",
    "RUST_LOG",
];

/// The suite, built.
pub(crate) struct Rust {
    programs: BTreeMap<String, Program>,
}

struct Program {
    path: PathBuf,
    /// Every test, with its module.
    tests: Vec<String>,
}

impl Rust {
    /// Fetches and builds the tests, unless that was done before.
    ///
    /// # Errors
    ///
    /// The crate cannot be fetched, or its tests do not build.
    pub(crate) fn fetch(work: &Work) -> Result<Self, Failure> {
        let manifest = manifest(work)?;
        println!("conformance: building the tests of {CRATE} {VERSION}; minutes at the first time");
        let mut build = cargo(["test", "--locked", "--no-run", "--message-format=json"]);
        build.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(work.path("target"));
        build.args(["--features", FEATURES]);
        for program in PROGRAMS {
            build.args(["--test", program]);
        }
        let categories = PROGRAMS.map(|name| format!("--cfg test_category=\"{name}\""));
        build.env("RUSTFLAGS", categories.join(" ")).env("CARGO_PROFILE_DEV_DEBUG", "0");
        let mut programs = BTreeMap::new();
        for (name, path) in executables(&work.step(&mut build)?) {
            let list =
                work.step(process::Command::new(&path).args(["--list", "--format=terse"]))?;
            programs.insert(name, Program { path, tests: listed(&list) });
        }
        Ok(Self { programs })
    }
}

impl Fetched for Rust {
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        out_of_scope: &[String],
    ) -> Result<Summary, Failure> {
        let unknown = || Failure::task(format!("the suite has no tests of a file {file:?}"));
        let (program, module) = place(file).ok_or_else(unknown)?;
        let program = self.programs.get(&program).ok_or_else(unknown)?;
        let names = program.tests.iter().map(String::as_str);
        let mut names: Vec<&str> = names.filter(|it| it.starts_with(&module)).collect();
        if names.is_empty() {
            return Err(unknown());
        }
        for test in out_of_scope {
            let name = test.strip_prefix(file).unwrap_or(test).trim_start_matches("::");
            let before = names.len();
            names.retain(|it| it.strip_prefix(&module) != Some(name));
            if names.len() == before {
                let message =
                    format!("{test} is listed as out of scope, but there is no such test");
                return Err(Failure::task(message));
            }
        }
        let mut summary = Summary { out_of_scope: out_of_scope.len(), ..Summary::default() };
        // Without a name every test would be run.
        if names.is_empty() {
            return Ok(summary);
        }
        let mut command = program.command(gateway, HOST, names);
        let (output, succeeded) = work.test(file, &mut command)?;
        summary.count_libtest(&output, succeeded);
        let skipped = self_skipped(&output);
        if skipped.is_empty() {
            return Ok(summary);
        }
        summary.skipped -= skipped.len();
        let mut command = program.command(gateway, OTHER_HOST, skipped);
        let (output, succeeded) = work.test(&format!("{file}.again"), &mut command)?;
        summary.count_libtest(&output, succeeded);
        Ok(summary)
    }
}

impl Program {
    /// Runs the tests of these names.
    fn command<'a>(
        &self,
        gateway: &Gateway,
        host: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> process::Command {
        let mut command = process::Command::new(&self.path);
        command.args(["--show-output", "--exact"]).args(names);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let address = gateway.address.replace("localhost", host);
        let connection = format!("AccountEndpoint={address};AccountKey={PUBLIC_KEY};");
        command
            .env("AZURE_COSMOS_CONNECTION_STRING", connection)
            .env("AZURE_COSMOS_ALLOW_INVALID_CERT", "true")
            // The same for the few that make a client without the options of the others.
            .env("AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED", "true")
            .env("AZURE_COSMOS_EMULATOR_HOST", host)
            .env("AZURE_COSMOS_TEST_MODE", "required");
        command
    }
}

/// Where cargo put the manifest of the crate.
fn manifest(work: &Work) -> Result<PathBuf, Failure> {
    let text = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\n{CRATE} = \"={VERSION}\"\n[workspace]\n"
    );
    work.write("fetch/Cargo.toml", &text)?;
    work.write("fetch/lib.rs", "")?;
    // Asked for this machine only: the crates of other systems are many and large.
    let version = work.step(&mut cargo(["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let mut ask = cargo(["metadata", "--format-version=1", "--manifest-path=fetch/Cargo.toml"]);
    let metadata = work.step(ask.args(["--filter-platform", host]))?;
    let found = manifest_in(&metadata);
    found.ok_or_else(|| Failure::task(format!("cargo did not say where it put {CRATE}")))
}

fn manifest_in(metadata: &str) -> Option<PathBuf> {
    let metadata: Value = serde_json::from_str(metadata).ok()?;
    let mut packages = metadata["packages"].as_array()?.iter();
    let package = packages.find(|it| it["name"] == CRATE && it["version"] == VERSION)?;
    package["manifest_path"].as_str().map(PathBuf::from)
}

/// The programs that cargo says it has built, by name.
fn executables(messages: &str) -> Vec<(String, PathBuf)> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = |message: Value| {
        let path = message["executable"].as_str()?;
        let name = message["target"]["name"].as_str()?;
        Some((name.to_owned(), PathBuf::from(path)))
    };
    messages.filter_map(executable).collect()
}

/// The tests in the output of `--list`.
fn listed(output: &str) -> Vec<String> {
    let names = output.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// The program that has the tests of a file, and what their names begin with.
fn place(file: &str) -> Option<(String, String)> {
    let (directory, name) = file.split_once('/')?;
    let program = directory.strip_suffix("_tests")?;
    let module = name.strip_suffix(".rs")?;
    Some((program.to_owned(), format!("{directory}::{module}::")))
}

fn cargo<const N: usize>(arguments: [&str; N]) -> process::Command {
    Command::cargo(arguments).prepared(".".as_ref())
}

#[cfg(test)]
mod tests {
    use crate::conformance::rust::{executables, listed, manifest_in, place};

    #[test]
    fn a_file_has_a_program_and_a_module() {
        let found = place("split_tests/cosmos_query_split.rs").expect("it is well formed");
        assert_eq!(found, ("split".to_owned(), "split_tests::cosmos_query_split::".to_owned()));
        for file in ["cosmos_batch.rs", "emulator/cosmos_batch.rs", "emulator_tests/cosmos_batch"] {
            assert_eq!(place(file), None, "{file}");
        }
    }

    #[test]
    fn what_cargo_prints_is_understood() {
        let metadata = r#"{"packages": [
            {"name": "azure_data_cosmos", "version": "0.1.0", "manifest_path": "/old"},
            {"name": "azure_data_cosmos", "version": "1.1.0-beta.1", "manifest_path": "/new"}]}"#;
        assert_eq!(manifest_in(metadata), Some("/new".into()));
        assert_eq!(manifest_in("{}"), None);
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\nnonsense\n\
                        {\"target\":{\"name\":\"split\"},\"executable\":\"/deps/split-1\"}\n";
        assert_eq!(executables(messages), [("split".to_owned(), "/deps/split-1".into())]);
    }

    #[test]
    fn tests_are_listed_with_their_module() {
        assert_eq!(listed("a::b: test\na::bench: benchmark\n\n2 tests\n"), ["a::b"]);
    }
}
