use std::sync::Arc;

use millstream_core::Message;

use crate::filter::Filter;
use crate::log::QUEUE_OUTLET;
use crate::stored::Definition;

/// Where the messages of an entity go.
#[derive(Debug)]
pub(crate) struct Routes {
    outlets: Vec<(u16, Vec<Filter>)>,
    /// All outlets; what most messages get, shared.
    everybody: Arc<[u16]>,
    /// A message without a session is refused.
    pub(crate) requires_session: bool,
}

impl Routes {
    pub(crate) fn of(definition: &Definition) -> Self {
        let (outlets, requires_session): (Vec<_>, _) = match definition {
            Definition::Queue(settings) => {
                (vec![(QUEUE_OUTLET, vec![Filter::True])], settings.receive.requires_session)
            }
            Definition::Topic { subscriptions, .. } => {
                let outlets = subscriptions.iter().map(|it| {
                    let filters = it.settings.rules.iter().map(|rule| rule.filter.clone());
                    (it.number, filters.collect())
                });
                (outlets.collect(), false)
            }
        };
        let everybody = outlets.iter().map(|(number, _)| *number).collect();
        Self { outlets, everybody, requires_session }
    }

    /// One outlet if it wants the message, otherwise nobody.
    pub(crate) fn wanted_by_one(&self, outlet: u16, message: &Message) -> Arc<[u16]> {
        let found = self.outlets.iter().find(|(number, _)| *number == outlet);
        let wants = found.is_some_and(|(_, filters)| filters.iter().any(|it| it.matches(message)));
        if wants { [outlet].into() } else { [].into() }
    }

    /// The outlets that get the message.
    pub(crate) fn wanted_by(&self, message: &Message) -> Arc<[u16]> {
        let wants = |filters: &[Filter]| filters.iter().any(|it| it.matches(message));
        let wanted = self.outlets.iter().filter(|(_, filters)| wants(filters));
        let wanted: Vec<u16> = wanted.map(|(number, _)| *number).collect();
        if wanted.len() == self.everybody.len() {
            return Arc::clone(&self.everybody);
        }
        wanted.into()
    }
}
