//! Asks a system: the one in the data directory, or the process that has that open.

use std::fs::{self, File};
use std::io::{ErrorKind as IoErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Answer, Request};
use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::system::{self, System};

/// Where a running program answers, and what it wants to be shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

/// Whom to ask.
pub(crate) enum Client {
    /// The directory was free, or is none that others could have.
    Here { system: Box<System>, service: JoinHandle<()>, shutdown: CancellationToken },
    /// Somebody has it open.
    There(Address),
}

impl Address {
    /// The file in which it is noted.
    pub(crate) fn file(directory: &Path) -> PathBuf {
        directory.join("millstream.address")
    }

    /// Writes it so that only the owner of the directory can read it.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        // One that was left behind may have other permissions.
        match fs::remove_file(path) {
            Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => (),
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(write!(file, "{}\n{}\n", self.address, self.token)?)
    }

    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        let address = lines.next()?.parse().ok()?;
        Some(Self { address, token: lines.next()?.to_owned() })
    }
}

impl Client {
    /// Opens the directory of the configuration, or finds who has it open.
    pub(crate) async fn connect(config: &Config) -> Result<Self> {
        let directory = config.directory()?;
        if let Some(directory) = directory.as_ref().filter(|it| !system::exists(it)) {
            let path = directory.display();
            return Err(Failure::other(format!(
                "there is no store in {path}; `millstream up` makes one, --store names another"
            )));
        }
        let (system, service) = match (System::open(config).await, &directory) {
            (Ok(opened), _) => opened,
            (Err(failure), Some(directory)) if failure.is_locked() => {
                let address = Address::read(&Address::file(directory));
                return address.map(Self::There).ok_or(failure);
            }
            (Err(failure), _) => return Err(failure),
        };
        let shutdown = CancellationToken::new();
        let service = tokio::spawn(service.run(shutdown.clone()));
        Ok(Self::Here { system: Box::new(system), service, shutdown })
    }

    /// Asks one thing.
    pub(crate) async fn ask(&self, request: Request) -> Result<Answer> {
        match self {
            Self::Here { system, .. } => admin::execute(system, request).await,
            Self::There(address) => post(address, &request).await,
        }
    }

    /// Closes what was opened.
    pub(crate) async fn close(self) {
        if let Self::Here { system, service, shutdown } = self {
            shutdown.cancel();
            // It ends when it has nothing more to write.
            let _ = service.await;
            drop(system);
        }
    }
}

/// An answer is not the one to what was asked.
pub(crate) fn misunderstood() -> Failure {
    Failure::other("the running program answered something else; is it another version?")
}

async fn post(address: &Address, request: &Request) -> Result<Answer> {
    let to = address.address;
    let lost = |error: &dyn std::error::Error| {
        Failure::other(format!(
            "another process has the store open but does not answer at {to}: {error}"
        ))
    };
    let stream = TcpStream::connect(to).await.map_err(|error| lost(&error))?;
    let (mut sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
    let connection = tokio::spawn(connection);
    let request = hyper::Request::post("/admin")
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {}", address.token))
        .body(Full::new(Bytes::from(serde_json::to_vec(request)?)))
        .map_err(|error| lost(&error))?;
    let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| lost(&error))?.to_bytes();
    connection.abort();
    if status.is_success() {
        return Ok(serde_json::from_slice(&body)?);
    }
    let sentence = String::from_utf8_lossy(&body).trim_end().to_owned();
    if status.as_u16() == 422 {
        return Err(Failure::usage(sentence));
    }
    Err(Failure::other(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_file_and_replaces_one_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = Address::file(directory.path());
        assert!(Address::read(&path).is_none());
        for token in ["one", "two"] {
            let address =
                Address { address: ([127, 0, 0, 1], 8081).into(), token: token.to_owned() };
            address.write(&path).unwrap();
            assert!(Address::read(&path) == Some(address));
        }
    }
}
