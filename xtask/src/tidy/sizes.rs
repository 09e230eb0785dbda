//! Limits on what one has to read at once.

use crate::tidy::repository::{File, Repository};

const FILE_LINES_MAX: usize = 800;
const LINE_COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;

/// Files that may be longer. The list may only shrink.
const EXCUSED: &[&str] = &[];

/// Files and lines that are too long.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    repository.rust_files().flat_map(|file| check_file(file, EXCUSED)).collect()
}

/// Functions that are too long: said, not refused, since the end of a function is guessed from its
/// indentation.
pub(crate) fn long_functions(repository: &Repository) -> Vec<String> {
    repository.rust_files().flat_map(long_functions_of).collect()
}

fn check_file(file: &File, excused: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = lines_without_tests(&file.text);
    if FILE_LINES_MAX < lines && !excused.contains(&file.path.as_str()) {
        findings.push(format!(
            "{} has {lines} lines without its tests, more than {FILE_LINES_MAX}: split it by idea",
            file.path,
        ));
    }
    for (index, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if LINE_COLUMNS_MAX < columns && can_be_broken(line) {
            findings.push(format!(
                "{}:{} has {columns} columns, more than {LINE_COLUMNS_MAX}",
                file.path,
                index + 1,
            ));
        }
    }
    findings
}

/// Leaves out `mod tests { ... }`. A file that is all tests counts whole: it can be split as well.
fn lines_without_tests(text: &str) -> usize {
    let mut count = 0;
    let mut in_tests = false;
    for line in text.lines() {
        if line.ends_with("mod tests {") && !line.starts_with(' ') {
            in_tests = true;
        }
        if !in_tests {
            count += 1;
        }
        if line == "}" {
            in_tests = false;
        }
    }
    count
}

/// One word, such as an address in a comment or a test vector, has no place to break it, and in a
/// raw string a line feed would be content.
fn can_be_broken(line: &str) -> bool {
    !line.contains("r#\"") && line.trim_start_matches([' ', '/', '!']).trim_end().contains(' ')
}

fn long_functions_of(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some((indent, name)) = function_start(line) else { continue };
        if !has_body(&lines[start..]) {
            continue;
        }
        let end = format!("{indent}}}");
        let Some(length) = lines[start..].iter().position(|it| *it == end) else { continue };
        let length = length + 1;
        if FUNCTION_LINES_MAX < length {
            findings.push(format!(
                "{}:{} function {name} has {length} lines, more than {FUNCTION_LINES_MAX}",
                file.path,
                start + 1,
            ));
        }
    }
    findings
}

/// The indentation and name of a function that starts on `line` and goes on below it.
fn function_start(line: &str) -> Option<(&str, &str)> {
    let code = line.trim_start();
    let indent = &line[..line.len() - code.len()];
    let (before, after) = code.split_once("fn ")?;
    let is_modifier = |it: &str| it.starts_with("pub") || ["async", "const"].contains(&it);
    let is_signature = before.split_whitespace().all(is_modifier) && !line.ends_with('}');
    let name = after.split(['(', '<']).next()?;
    is_signature.then_some((indent, name))
}

/// A signature ends at its first `{` or, in a trait, `;` at the end of a line.
fn has_body(lines: &[&str]) -> bool {
    lines.iter().find(|it| it.ends_with(['{', ';'])).is_some_and(|it| it.ends_with('{'))
}

#[cfg(test)]
mod tests {
    use crate::tidy::repository::File;
    use crate::tidy::repository::tests::with_file;
    use crate::tidy::sizes;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(sizes::check(&with_file("a.rs", text)), expected);
    }

    #[track_caller]
    fn check_functions(text: &str, expected: &[&str]) {
        assert_eq!(sizes::long_functions(&with_file("a.rs", text)), expected);
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        check(&"// a\n".repeat(800), &[]);
        let sentence = "a.rs has 801 lines without its tests, more than 800: split it by idea";
        check(&"// a\n".repeat(801), &[sentence]);
    }

    #[test]
    fn tests_at_the_end_do_not_count_but_code_after_them_does() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a\n".repeat(700));
        check(&format!("{}{tests}", "// a\n".repeat(700)), &[]);
        let sentence = "a.rs has 801 lines without its tests, more than 800: split it by idea";
        check(&format!("{}{tests}{}", "// a\n".repeat(400), "// a\n".repeat(400)), &[sentence]);
    }

    #[test]
    fn an_excused_file_may_be_longer() {
        let file = File { path: "a.rs".to_owned(), text: "// a\n".repeat(900) };
        assert!(sizes::check_file(&file, &["a.rs"]).is_empty());
        assert_eq!(sizes::check_file(&file, &["b.rs"]).len(), 1);
    }

    #[test]
    fn a_long_line_is_found_unless_it_cannot_be_broken() {
        let word = "ä".repeat(95);
        check(&format!("// a\n// a {word}\n"), &[]);
        check(&format!("// a\n// ab cd {word}\n"), &["a.rs:2 has 104 columns, more than 100"]);
        check(&format!("    /// {word}{word}\n"), &[]);
        check(&format!("let a = r#\"{{\"a\": \"{word}\"}}\"#;\n"), &[]);
    }

    #[test]
    fn other_files_may_have_any_size() {
        assert!(sizes::check(&with_file("a.md", &"a b ".repeat(90))).is_empty());
    }

    #[test]
    fn a_long_function_is_named() {
        let body = |lines| "        work();\n".repeat(lines);
        let signature = "pub(crate) async fn a<T>(\n        it: T,\n    ) {";
        check_functions(&format!("impl A {{\n    pub fn a() {{\n{}    }}\n}}\n", body(68)), &[]);
        check_functions(
            &format!("impl A {{\n    {signature}\n{}    }}\n}}\n", body(67)),
            &["a.rs:2 function a has 71 lines, more than 70"],
        );
    }

    #[test]
    fn a_function_without_a_body_has_no_length() {
        let rest = "    // a\n".repeat(90);
        check_functions(&format!("trait A {{\n    fn b();\n{rest}}}\n"), &[]);
        check_functions(&format!("fn b(\n    it: A,\n);\n{rest}}}\n"), &[]);
        check_functions(&format!("/// The fn a {{\n{rest}}}\n"), &[]);
    }
}
