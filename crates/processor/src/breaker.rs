use std::time::Duration;

use crate::retry::Backoff;

/// Transient failures in a row, without a success of any batch between them, that stop deliveries.
pub(crate) const FAILURES_TO_OPEN: u32 = 3;

/// Stops all deliveries of an instance while something the handler needs is down.
///
/// It is closed as long as deliveries reach the outside. Open, nothing is delivered until a pause
/// is over. Then one delivery at a time tries: a transient failure begins a longer pause,
/// everything else closes. What comes back late, from deliveries that began before it opened,
/// counts the same: a success shows that the outside is there again, a failure during the pause
/// changes nothing.
#[derive(Debug)]
pub(crate) struct Breaker {
    pauses: Backoff,
    state: State,
}

/// Whether a batch may be delivered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// It may.
    Yes,
    /// It may, and it decides for all others. Its outcome must be told, or
    /// [`Breaker::release_probe`] be called.
    Probe,
    /// It may not; ask again at this time or later.
    NotBefore(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// With the transient failures in a row.
    Closed { failures: u32 },
    /// Nothing is delivered until then.
    Open { until: Duration, openings: u32 },
    /// The pause is over, and perhaps a delivery tries.
    HalfOpen { probing: bool, openings: u32 },
}

impl Breaker {
    /// A closed breaker with pauses of this length.
    pub(crate) fn new(pauses: Backoff) -> Self {
        Self { pauses, state: State::Closed { failures: 0 } }
    }

    /// Whether a batch may be delivered at `now`, on a clock that never goes back.
    pub(crate) fn may_deliver(&mut self, now: Duration) -> Permit {
        match self.state {
            State::Closed { .. } => Permit::Yes,
            State::Open { until, .. } if now < until => Permit::NotBefore(until),
            // How long the probe takes is not known; looking again must not be a busy loop.
            State::HalfOpen { probing: true, .. } => {
                Permit::NotBefore(now.saturating_add(self.pauses.delay(1, u64::MAX)))
            }
            State::Open { openings, .. } | State::HalfOpen { openings, .. } => {
                self.state = State::HalfOpen { probing: true, openings };
                Permit::Probe
            }
        }
    }

    /// A delivery succeeded. Says whether that closed the breaker.
    pub(crate) fn on_success(&mut self) -> bool {
        self.close()
    }

    /// A delivery failed for a reason of its own: it reached the outside. Says whether that closed
    /// the breaker.
    pub(crate) fn on_other_failure(&mut self) -> bool {
        self.close()
    }

    /// A delivery failed because something outside is down. Says whether that opened the breaker;
    /// a failed probe does not, as it was never closed.
    pub(crate) fn on_transient(&mut self, now: Duration, random: u64) -> bool {
        let openings = match self.state {
            State::Closed { failures } if failures + 1 < FAILURES_TO_OPEN => {
                self.state = State::Closed { failures: failures + 1 };
                return false;
            }
            State::Open { .. } => return false,
            State::Closed { .. } => 1,
            State::HalfOpen { openings, .. } => openings.saturating_add(1),
        };
        let until = now.saturating_add(self.pauses.delay(openings, random));
        self.state = State::Open { until, openings };
        openings == 1
    }

    /// The probe was cancelled and says nothing; another may try.
    pub(crate) fn release_probe(&mut self) {
        if let State::HalfOpen { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// Whether deliveries are stopped, or one of them tries.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    fn close(&mut self) -> bool {
        let was_open = self.is_open();
        self.state = State::Closed { failures: 0 };
        was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script and compares what happened: `t` is a transient failure, `s` a success, `f`
    /// another failure, `?` asks, `r` releases the probe, and `+200` lets milliseconds pass.
    /// Answers: `opened`, `closed`, `yes`, `probe`, `wait 100` (milliseconds from now).
    #[track_caller]
    fn check(script: &str, expected: &str) {
        let (min, max) = (Duration::from_millis(100), Duration::from_millis(400));
        let (mut breaker, mut now) = (Breaker::new(Backoff { min, max }), Duration::ZERO);
        let mut found = Vec::new();
        for step in script.split_whitespace() {
            match step {
                "t" if breaker.on_transient(now, u64::MAX) => found.push("opened".to_owned()),
                "s" if breaker.on_success() => found.push("closed".to_owned()),
                "f" if breaker.on_other_failure() => found.push("closed".to_owned()),
                "t" | "s" | "f" => (),
                "r" => breaker.release_probe(),
                "?" => found.push(match breaker.may_deliver(now) {
                    Permit::Yes => "yes".to_owned(),
                    Permit::Probe => "probe".to_owned(),
                    Permit::NotBefore(then) => format!("wait {}", (then - now).as_millis()),
                }),
                _ => now += Duration::from_millis(step[1..].parse().unwrap()),
            }
        }
        assert_eq!(found.join(", "), expected, "{script}");
    }

    #[test]
    fn opens_after_three_transient_failures_in_a_row() {
        check("? t t ?", "yes, yes");
        check("t t t ?", "opened, wait 100");
        check("t t s t t ?", "yes");
        check("t t f t t ?", "yes");
    }

    #[test]
    fn one_probe_at_a_time_after_the_pause() {
        check("t t t +99 ? +1 ? ?", "opened, wait 1, probe, wait 100");
        check("t t t +100 ? r ? ?", "opened, probe, probe, wait 100");
    }

    #[test]
    fn whatever_reaches_the_outside_closes() {
        check("t t t +100 ? s ? ?", "opened, probe, closed, yes, yes");
        check("t t t +100 ? f ?", "opened, probe, closed, yes");
        // A delivery that began before it opened.
        check("t t t s ? t t ?", "opened, closed, yes, yes");
    }

    #[test]
    fn pauses_grow_with_failed_probes_and_begin_anew_after_a_success() {
        let again = "+1000 ? t ?";
        check(
            &format!("t t t ? {again} {again} {again} +400 ? s t t t ?"),
            "opened, wait 100, probe, wait 200, probe, wait 400, probe, wait 400, probe, closed, \
             opened, wait 100",
        );
    }

    #[test]
    fn late_failures_do_not_make_the_pause_longer() {
        check("t t t t t +50 t ?", "opened, wait 50");
    }

    #[test]
    fn pauses_have_jitter() {
        let (min, max) = (Duration::from_millis(100), Duration::from_millis(400));
        let mut breaker = Breaker::new(Backoff { min, max });
        for _ in 0..FAILURES_TO_OPEN {
            breaker.on_transient(Duration::ZERO, 0);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.may_deliver(Duration::ZERO), Permit::NotBefore(min / 2));
    }
}
