//! Programs of ours that use the SDK for Java, in gateway mode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Failure;
use crate::conformance::Fetched;
use crate::conformance::gateway::{Gateway, PUBLIC_KEY};
use crate::conformance::summary::Summary;
use crate::conformance::work::Work;

/// The version of the SDK that the programs are written for.
const VERSION: &str = "4.81.0";
/// A logger that says nothing; without one the SDK complains.
const LOGGER_VERSION: &str = "1.7.36";
/// Where Maven writes which files the SDK needs.
const CLASS_PATH: &str = "classpath.txt";

/// The programs, compiled.
pub(crate) struct Java {
    class_path: String,
}

impl Java {
    /// Fetches the SDK, unless it is there, and compiles the programs.
    ///
    /// # Errors
    ///
    /// The SDK cannot be fetched; Maven or a JDK is missing.
    pub(crate) fn fetch(sources: &Path, work: &Work) -> Result<Self, Failure> {
        work.write("pom.xml", &manifest())?;
        // Asked every time: it is quick when everything is there, and repairs what is not.
        let output = format!("-Dmdep.outputFile={CLASS_PATH}");
        let ask = ["--quiet", "--batch-mode", "dependency:build-classpath", &output];
        work.step(Command::new("mvn").args(ask))?;
        let path = work.path(CLASS_PATH);
        let class_path = fs::read_to_string(&path).map_err(|error| {
            Failure::task(format!("could not read {}: {error}", path.display()))
        })?;
        work.copy(&sources.join("java"), "tests")?;
        let mut compile = Command::new("javac");
        compile.args(["-encoding", "UTF-8", "-d", "classes", "-cp", class_path.trim()]);
        compile.args(programs(&work.path("tests"))?);
        work.step(&mut compile)?;
        let classes = work.path("classes");
        Ok(Self { class_path: format!("{}:{}", classes.display(), class_path.trim()) })
    }
}

impl Fetched for Java {
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        _: &[String],
    ) -> Result<Summary, Failure> {
        let mut command = Command::new("java");
        command
            .args(["-cp", &self.class_path])
            // The certificate is of the gateway's own making.
            .arg("-DCOSMOS.EMULATOR_SERVER_CERTIFICATE_VALIDATION_DISABLED=true")
            .arg("-DCOSMOS.EMULATOR_HOST=localhost")
            .arg(file.trim_end_matches(".java"))
            .env("ACCOUNT_HOST", &gateway.address)
            .env("ACCOUNT_KEY", PUBLIC_KEY);
        let (output, succeeded) = work.test(file, &mut command)?;
        let mut summary = Summary::default();
        summary.count_tap(&output, succeeded);
        Ok(summary)
    }
}

fn programs(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let not_read = |error: std::io::Error| {
        Failure::task(format!("could not read {}: {error}", directory.display()))
    };
    let entries = fs::read_dir(directory).map_err(not_read)?;
    let paths = entries.map(|entry| entry.map(|it| it.path()).map_err(not_read));
    paths.collect()
}

/// What Maven needs to know.
fn manifest() -> String {
    let dependency = |group: &str, name: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>millstream</groupId>\
         <artifactId>conformance</artifactId><version>1</version><dependencies>{}{}\
         </dependencies></project>\n",
        dependency("com.azure", "azure-cosmos", VERSION),
        dependency("org.slf4j", "slf4j-nop", LOGGER_VERSION),
    )
}
