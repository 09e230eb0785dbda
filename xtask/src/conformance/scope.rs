//! The lists in `conformance/`: which files of a suite are run, and which tests are out of scope.
//!
//! A line of what is out of scope is a file, or `file::Class::test`, and after it `#` and why. A
//! line of what is run is a file, and after it words about it. Lines that begin with `#` are
//! headings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::command::Failure;

/// The tests that do not count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OutOfScope {
    /// The tests of each file; an empty list means all of them.
    tests: BTreeMap<String, Vec<String>>,
}

impl OutOfScope {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line gives no reason.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        Self::parse(&text(path)?)
            .map_err(|line| Failure::task(format!("{}: {line}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut scope = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let parts = line.split_once('#').map(|(test, reason)| (test.trim(), reason.trim()));
            let Some((test, reason)) = parts else {
                return Err(format!("line {number} has no reason after a #"));
            };
            if reason.is_empty() || test.is_empty() {
                return Err(format!("line {number} has no reason after a #"));
            }
            match test.split_once("::") {
                Some((file, name)) => {
                    scope.tests.entry(file.to_owned()).or_default().push(name.to_owned());
                }
                None => drop(scope.tests.insert(test.to_owned(), Vec::new())),
            }
        }
        Ok(scope)
    }

    /// Whether nothing of the file counts.
    pub(crate) fn has_file(&self, file: &str) -> bool {
        self.tests.get(file).is_some_and(Vec::is_empty)
    }

    /// The tests of the file that do not count, as `file::Class::test`.
    pub(crate) fn tests_of(&self, file: &str) -> Vec<String> {
        let tests = self.tests.get(file).into_iter().flatten();
        tests.map(|test| format!("{file}::{test}")).collect()
    }
}

/// A file of a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// `ci`: it is among those that every change has to pass.
    pub(crate) is_in_ci: bool,
    /// `delayed`: its tests expect a server that takes milliseconds to answer.
    pub(crate) is_delayed: bool,
}

/// The files of a suite, one on a line.
///
/// # Errors
///
/// The list cannot be read, or says something about a file that means nothing.
pub(crate) fn files(path: &Path) -> Result<Vec<Listed>, Failure> {
    let lines = text(path)?;
    let lines = lines.lines().map(str::trim);
    let lines = lines.filter(|it| !it.is_empty() && !it.starts_with('#'));
    let files: Result<Vec<Listed>, String> = lines.map(listed).collect();
    files.map_err(|error| Failure::task(format!("{}: {error}", path.display())))
}

fn listed(line: &str) -> Result<Listed, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default().to_owned();
    let mut file = Listed { name, ..Listed::default() };
    for word in words {
        match word {
            "ci" => file.is_in_ci = true,
            "delayed" => file.is_delayed = true,
            unknown => return Err(format!("{unknown:?} after {} means nothing", file.name)),
        }
    }
    Ok(file)
}

fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::task(format!("could not read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_whole_files_are_listed_with_a_reason() {
        let text = "# stored procedures\ntest_crud.py::TestCrud::test_sproc  # not supported\n\n\
                    test_vector.py # no vector index\n";
        let scope = OutOfScope::parse(text).expect("it is well formed");
        assert_eq!(scope.tests_of("test_crud.py"), ["test_crud.py::TestCrud::test_sproc"]);
        assert!(scope.has_file("test_vector.py"));
        assert!(!scope.has_file("test_crud.py"));
        assert!(scope.tests_of("test_other.py").is_empty());
    }

    #[test]
    fn a_file_is_listed_with_words_about_it() {
        let plain = Listed { name: "a.py".to_owned(), ..Listed::default() };
        assert_eq!(listed("a.py"), Ok(plain.clone()));
        let both = Listed { is_in_ci: true, is_delayed: true, ..plain };
        assert_eq!(listed("a.py  delayed ci"), Ok(both));
        assert_eq!(listed("a.py b.py"), Err("\"b.py\" after a.py means nothing".to_owned()));
    }

    #[test]
    fn a_line_without_a_reason_is_refused() {
        for text in ["a.py", "a.py #", "# heading\na.py::B  "] {
            assert!(OutOfScope::parse(text).is_err(), "{text}");
        }
    }
}
