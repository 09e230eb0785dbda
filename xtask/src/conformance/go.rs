//! The tests of the SDK for Go, which its published module contains.
//!
//! They are built where Go keeps the module. Go chooses tests by name alone, so that the tests of a
//! file are those whose functions stand in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::Failure;
use crate::conformance::Fetched;
use crate::conformance::gateway::{EMULATOR_PORT, Gateway};
use crate::conformance::summary::Summary;
use crate::conformance::work::Work;

const MODULE: &str = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos";
/// The version whose tests are run. Another one has other tests, and the lists have to follow.
const VERSION: &str = "v1.5.0";
/// A module of our own, so that another one can be fetched.
const MANIFEST: &str = "module millstream-conformance\n\ngo 1.25.0\n";
/// Longest time of one file.
const TIMEOUT: &str = "-test.timeout=600s";

/// The suite, built.
pub(crate) struct Go {
    source: PathBuf,
    program: PathBuf,
}

impl Go {
    /// Fetches the module and builds its tests; both are quick if that was done before.
    ///
    /// # Errors
    ///
    /// The module cannot be fetched or built; Go is missing.
    pub(crate) fn fetch(work: &Work) -> Result<Self, Failure> {
        work.write("go.mod", MANIFEST)?;
        let module = format!("{MODULE}@{VERSION}");
        let fetched = work.step(Command::new("go").args(["mod", "download", "-json", &module]))?;
        let source = directory(&fetched)
            .ok_or_else(|| Failure::task(format!("go did not say where it put {module}")))?;
        let program = work.path("azcosmos.test");
        println!(
            "conformance: building the tests of azcosmos {VERSION}; a minute at the first time"
        );
        let mut build = Command::new("go");
        build.arg("-C").arg(&source).args(["test", "-c", "-o"]).arg(&program).arg(".");
        work.step(&mut build)?;
        Ok(Self { source, program })
    }
}

impl Fetched for Go {
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        out_of_scope: &[String],
    ) -> Result<Summary, Failure> {
        if gateway.port() != Some(EMULATOR_PORT) {
            let message = format!("the tests of the SDK for Go know port {EMULATOR_PORT} only");
            return Err(Failure::task(message));
        }
        let mut names = tests_of(&self.source.join(file))?;
        for test in out_of_scope {
            let name = test.strip_prefix(file).unwrap_or(test).trim_start_matches("::");
            let Some(index) = names.iter().position(|it| it == name) else {
                let message =
                    format!("{test} is listed as out of scope, but there is no such test");
                return Err(Failure::task(message));
            };
            names.swap_remove(index);
        }
        let mut summary = Summary { out_of_scope: out_of_scope.len(), ..Summary::default() };
        if names.is_empty() {
            return Ok(summary);
        }
        let mut command = Command::new(&self.program);
        command
            .args(["-test.v", TIMEOUT, &format!("-test.run=^({})$", names.join("|"))])
            .current_dir(&self.source)
            .env("EMULATOR", "true");
        let (output, succeeded) = work.test(file, &mut command)?;
        summary.count_go(&output, succeeded);
        Ok(summary)
    }
}

/// Where the module was put, by what `go mod download -json` prints.
fn directory(printed: &str) -> Option<PathBuf> {
    let told: Value = serde_json::from_str(printed).ok()?;
    Some(PathBuf::from(told.get("Dir")?.as_str()?))
}

fn tests_of(path: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::task(format!("could not read {}: {error}", path.display())))?;
    Ok(listed(&text))
}

fn listed(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|it| it.strip_prefix("func ")?.split('(').next());
    names.filter(|it| it.starts_with("Test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_file_are_its_functions() {
        let text = "package a\n\nfunc TestOne(t *testing.T) {\n\tfunc TestTwo(\n}\n\
                    func helper() {}\nfunc (e *emulator) TestThree() {}\n\
                    func TestFour(t *testing.T) {}\n";
        assert_eq!(listed(text), ["TestOne", "TestFour"]);
    }

    #[test]
    fn go_says_where_it_put_a_module() {
        let printed = r#"{"Path": "a", "Version": "v1.0.0", "Dir": "/a/b"}"#;
        assert_eq!(directory(printed), Some(PathBuf::from("/a/b")));
        assert_eq!(directory("not found"), None);
    }
}
