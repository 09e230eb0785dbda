//! The line that shows what goes on.

use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use std::time::Duration;

use crate::admin::lag;
use crate::demo::DemoFigures;
use crate::http::parked;
use crate::output::say;
use crate::relaying::Board;
use crate::system::System;

/// How often the line of a terminal is written again.
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);
/// How often a line is written to a file.
const FILE_INTERVAL: Duration = Duration::from_secs(10);
/// How soon the first line comes.
const FIRST: Duration = Duration::from_secs(1);

/// Writes what the relays do, again and again.
pub(crate) struct Live {
    system: System,
    board: Arc<Board>,
    demo: Option<DemoFigures>,
    is_terminal: bool,
    published: u64,
    at: Duration,
}

impl Live {
    pub(crate) fn new(system: System, board: Arc<Board>, demo: Option<DemoFigures>) -> Self {
        let (is_terminal, at) = (stdout().is_terminal(), system.clock.monotonic());
        Self { system, board, demo, is_terminal, published: 0, at }
    }

    /// Goes on for ever.
    pub(crate) async fn run(&mut self) {
        let mut wait = FIRST;
        loop {
            self.system.clock.sleep(wait).await;
            wait = if self.is_terminal { TERMINAL_INTERVAL } else { FILE_INTERVAL };
            let line = self.line().await;
            // On a terminal the line takes the place of the one before it, which works only if it
            // is not wrapped.
            say(&match self.is_terminal {
                true => format!("\r\x1b[2K\x1b[?7l{line}\x1b[?7h"),
                false => format!("{line}\n"),
            });
        }
    }

    /// What to write after the last line.
    pub(crate) fn end(&self, text: &str) -> String {
        if self.is_terminal { format!("\n{text}\n") } else { format!("{text}\n") }
    }

    async fn line(&mut self) -> String {
        let views = self.board.views();
        let published: u64 = views.iter().map(|it| it.published).sum();
        let now = self.system.clock.monotonic();
        let new = u32::try_from(published.saturating_sub(self.published)).unwrap_or(u32::MAX);
        let per_second = f64::from(new) / now.saturating_sub(self.at).as_secs_f64().max(0.001);
        (self.published, self.at) = (published, now);
        let mut lags = lag(&self.system).await.unwrap_or_default();
        lags.retain(|lag| views.iter().any(|view| view.name == lag.relay));
        let commits: u64 = lags.iter().map(|it| it.commits).sum();
        let seconds = lags.iter().filter_map(|it| it.seconds).fold(0.0, f64::max);
        let mut keys_parked = 0;
        for view in &views {
            keys_parked += parked(&self.system, &view.name).await.unwrap_or(0);
        }
        let time = self.system.clock.now().to_rfc3339();
        let time = time.get(11..19).unwrap_or(&time).to_owned();
        let mut line = format!(
            "{time}  {per_second:.1} sent/s  lag {commits} ({seconds:.1} s)  parked {keys_parked}"
        );
        if let Some(demo) = &self.demo {
            line = format!("{line}{}", consumers(demo));
        }
        if let Some(view) = views.iter().find(|it| it.trouble.is_some()) {
            line = format!("{line}  |  relay {} is not running", view.name);
        }
        line
    }
}

/// What the consumers of the demonstration have got.
fn consumers(demo: &DemoFigures) -> String {
    let (made, search, hook) = (demo.generator.get(), demo.projection.get(), demo.receiver.get());
    format!(
        "  |  {} changes, search {}, webhook {}, duplicates {}, out of order {}",
        made.created + made.updated + made.deleted,
        search.handled,
        hook.received,
        search.duplicates + hook.duplicates,
        search.gaps + search.late + hook.out_of_order,
    )
}
