//! What a node tells its parent, line by line.

use std::io::{self, Write};

/// Prints a line and flushes it, so that the parent has it whatever happens to us next.
///
/// Ends the process if nobody listens any more.
pub(crate) fn say(mut line: String) {
    line.push('\n');
    let mut output = io::stdout().lock();
    if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}
