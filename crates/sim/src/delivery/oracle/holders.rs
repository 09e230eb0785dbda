use std::time::Duration;

use crate::delivery::oracle::{Oracle, Subscription};

/// A session that a broker has given to a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) subscription: usize,
    pub(crate) broker: u64,
    pub(crate) session: String,
    /// Different for each.
    pub(crate) number: u64,
}

/// Who has a session, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    number: u64,
    until: Duration,
}

impl Oracle {
    /// A broker has just given out a session; nobody else may have it.
    pub(crate) fn granted(
        &self,
        subscription: usize,
        broker: u64,
        session: &str,
    ) -> Result<Grant, String> {
        let now = self.handle.now();
        let mut state = self.lock();
        state.counts.sessions += 1;
        let number = state.next_tick();
        let holder = Holder { number, until: now + self.rules.lock };
        let holders = &mut state.subscriptions[subscription].holders;
        let before = holders.insert((broker, session.to_owned()), holder);
        if let Some(before) = before.filter(|it| now < it.until) {
            let left = before.until - now;
            return Err(format!(
                "session {session} was given to two receivers, {left:?} too early"
            ));
        }
        Ok(Grant { subscription, broker, session: session.to_owned(), number })
    }

    /// The lock of a session was renewed.
    pub(crate) fn renewed(&self, grant: &Grant) {
        let until = self.handle.now() + self.rules.lock;
        let mut state = self.lock();
        if let Some(holder) = state.subscriptions[grant.subscription].holder(grant) {
            holder.until = until;
        }
    }

    /// A receiver has given its session up.
    pub(crate) fn closed(&self, grant: &Grant) {
        let mut state = self.lock();
        if let Some(holder) = state.subscriptions[grant.subscription].holder(grant) {
            holder.until = Duration::ZERO;
        }
    }
}

impl Subscription {
    /// Whether the session is still with who got it.
    pub(super) fn holds(&mut self, grant: &Grant, now: Duration) -> bool {
        self.holder(grant).is_some_and(|it| now < it.until)
    }

    fn holder(&mut self, grant: &Grant) -> Option<&mut Holder> {
        let key = (grant.broker, grant.session.clone());
        self.holders.get_mut(&key).filter(|it| it.number == grant.number)
    }
}
