use std::fmt;

use millstream_core::FeedMode;

/// Which processor writes leases of this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignForm {
    /// .NET SDK V3, version 0: a lease per physical partition.
    DotnetPk,
    /// .NET SDK V3, version 1: a lease per range of effective partition keys, after a merge.
    DotnetEpk,
    /// Java SDK V4, `handleChanges`: a lease per physical partition.
    JavaPk,
    /// Java SDK V4, `handleLatestVersionChanges` and `handleAllVersionsAndDeletesChanges`: a lease
    /// per range of effective partition keys.
    JavaEpk,
    /// The change feed processor library for .NET SDK V2: a lease per physical partition.
    DotnetLibrary,
}

impl ForeignForm {
    /// Whether its leases name a physical partition and not a range of keys.
    #[must_use]
    pub fn is_by_partition(self) -> bool {
        match self {
            Self::DotnetPk | Self::JavaPk | Self::DotnetLibrary => true,
            Self::DotnetEpk | Self::JavaEpk => false,
        }
    }

    /// Whether the ids of its leases hold the resource id of the container, which a container of
    /// the same name created later does not have, and not the name alone.
    #[must_use]
    pub fn names_the_resource(self) -> bool {
        match self {
            Self::JavaPk => false,
            Self::DotnetPk | Self::DotnetEpk | Self::JavaEpk | Self::DotnetLibrary => true,
        }
    }

    /// Whether it is one of the Java SDK.
    pub(crate) fn is_java(self) -> bool {
        matches!(self, Self::JavaPk | Self::JavaEpk)
    }

    /// Whether a processor of this form can read the feed in this mode.
    pub(crate) fn supports(self, mode: FeedMode) -> bool {
        match self {
            Self::JavaPk | Self::DotnetLibrary => mode == FeedMode::LatestVersion,
            Self::DotnetPk | Self::DotnetEpk | Self::JavaEpk => true,
        }
    }
}

impl fmt::Display for ForeignForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DotnetPk => ".NET version 0",
            Self::DotnetEpk => ".NET version 1",
            Self::JavaPk => "Java pk",
            Self::JavaEpk => "Java epk",
            Self::DotnetLibrary => ".NET V2 library",
        })
    }
}

/// How the .NET SDK spells a mode in a lease.
pub(crate) fn dotnet_mode(mode: FeedMode) -> &'static str {
    match mode {
        FeedMode::LatestVersion => "Incremental Feed",
        FeedMode::AllVersions => "Full-Fidelity Feed",
    }
}

/// How the Java SDK spells a mode in a lease.
pub(crate) fn java_mode(mode: FeedMode) -> &'static str {
    match mode {
        FeedMode::LatestVersion => "INCREMENTAL",
        FeedMode::AllVersions => "FULL_FIDELITY",
    }
}

/// The mode of that spelling by either SDK.
pub(crate) fn mode_of(text: &str) -> Option<FeedMode> {
    [FeedMode::LatestVersion, FeedMode::AllVersions]
        .into_iter()
        .find(|it| text == dotnet_mode(*it) || text == java_mode(*it))
}
