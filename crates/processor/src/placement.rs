use std::sync::Arc;

use millstream_core::Container;

/// Where the partition key of a document comes from.
#[derive(Clone, Debug)]
pub(crate) enum Placement {
    /// The container is partitioned by `/id`: every document is a partition of its own.
    ById,
    /// Another property: documents that belong together are one partition, listed by one query.
    ByProperty(Arc<str>),
}

impl Placement {
    /// What the partition key of the container asks for; none if it is not one property at the top
    /// of a document.
    pub(crate) fn of(container: &Container) -> Option<Self> {
        let [path] = container.info.settings.partition_key.segments() else { return None };
        match path.as_slice() {
            [property] if property == "id" => Some(Self::ById),
            [property] => Some(Self::ByProperty(property.as_str().into())),
            _ => None,
        }
    }

    /// The same for documents that have these properties already; none if it is one of them.
    pub(crate) fn beside(properties: &[&str], container: &Container) -> Option<Self> {
        Self::of(container).filter(|it| !properties.contains(&it.property()))
    }

    /// The property that holds the partition key.
    pub(crate) fn property(&self) -> &str {
        match self {
            Self::ById => "id",
            Self::ByProperty(property) => property,
        }
    }
}
