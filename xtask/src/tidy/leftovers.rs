//! Marks of unfinished work.

use crate::tidy::repository::Repository;

/// In pieces, so that this file does not hold what it looks for.
const MARKS: &[(&str, &str)] = &[
    (concat!("todo", "!("), "write it or leave it out"),
    (concat!("unimplemented", "!("), "what cannot be done is data or an error"),
    (concat!("#[", "ignore"), "assert today's behaviour and say why"),
    (concat!("FIX", "ME"), "mend it or open an issue"),
];

/// Marks left in Rust sources.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut findings = Vec::new();
    for file in repository.rust_files() {
        for (index, line) in file.text.lines().enumerate() {
            for (mark, advice) in MARKS.iter().filter(|(mark, _)| line.contains(mark)) {
                findings.push(format!("{}:{} has {mark:?}: {advice}", file.path, index + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use crate::tidy::leftovers::{self, MARKS};
    use crate::tidy::repository::tests::with_file;

    #[test]
    fn every_mark_is_found_with_its_place() {
        for (mark, advice) in MARKS {
            let found = leftovers::check(&with_file("a.rs", &format!("fn a() {{\n    {mark}\n")));
            assert_eq!(found, [format!("a.rs:2 has {mark:?}: {advice}")]);
        }
    }

    #[test]
    fn finished_work_and_other_files_pass() {
        assert!(leftovers::check(&with_file("a.rs", "fn ignore() {}\n")).is_empty());
        assert!(leftovers::check(&with_file("a.md", MARKS[0].0)).is_empty());
    }
}
