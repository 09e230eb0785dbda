//! What every backend says about databases and containers that are there or are not.

use crate::{ContainerName, Error, ErrorKind};

const ONE: &str = "there is one of this name";
const NONE: &str = "there is none of this name; create it first";
const GONE: &str = "it does not exist, or another one has its name now";
const CHANGED: &str = "they have changed since they were read; read them again";

/// A database cannot be created because it is there.
#[must_use]
pub fn database_exists(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("create database {name:?}")).because(ONE)
}

/// There is no such database.
#[must_use]
pub fn no_database(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("find database {name:?}")).because(NONE)
}

/// A container cannot be created because it is there.
#[must_use]
pub fn container_exists(name: &ContainerName) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("create container \"{name}\"")).because(ONE)
}

/// There is no such container, or no longer the one that was meant.
#[must_use]
pub fn no_container(name: &ContainerName) -> Error {
    Error::new(ErrorKind::NotFound, format!("find container \"{name}\"")).because(GONE)
}

/// The settings of a container are not those that the caller has read.
#[must_use]
pub fn settings_changed(name: &ContainerName) -> Error {
    let attempted = format!("replace the settings of \"{name}\"");
    Error::new(ErrorKind::PreconditionFailed, attempted).because(CHANGED)
}
