//! The Cosmos DB protocol and TLS on the port of the program.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use millstream_gateway::{AccountKey, Gateway, GatewayOptions, Server, Tls};
use tokio::net::TcpListener;

use crate::config::{Config, GatewayConfig};
use crate::failure::{Failure, Result};
use crate::places::Place;
use crate::system::System;

/// Where a certificate of our own is kept, below the directory of the store.
const TLS_DIRECTORY: &str = "tls";

/// How long clients may go on with a container of Azure Cosmos DB that others have changed.
const COSMOS_CONTAINER_AGE_MAX: Duration = Duration::from_secs(60);

/// How clients get in.
#[derive(Debug)]
pub(crate) struct Entrance {
    options: GatewayOptions,
    tls: Option<Tls>,
    key_env: String,
}

impl Entrance {
    /// Reads keys and certificate. `variable` looks into the environment.
    pub(crate) fn prepare(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let options = Self::options(config, variable)?;
        let tls = if config.gateway.tls { certificate(config)? } else { None };
        Ok(Self { options, tls, key_env: config.gateway.key_env.clone() })
    }

    /// Refuses what [`Entrance::prepare`] would, and makes nothing.
    pub(crate) fn check(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Result<()> {
        Self::options(config, variable)?;
        if config.gateway.tls {
            named_certificate(config)?;
        }
        Ok(())
    }

    fn options(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<GatewayOptions> {
        let gateway = &config.gateway;
        let mut options = GatewayOptions::default()
            .enforce_throughput(gateway.enforce_throughput)
            .names(gateway.names.clone());
        if let Some(key) = key(&gateway.key_env, &variable)? {
            options = options.keys(vec![key]);
        }
        if let Some(key) = key(&gateway.read_only_key_env, &variable)? {
            options = options.read_only_keys(vec![key]);
        }
        if let Place::Cosmos(_) = Place::parse("store", &config.store)? {
            // Azure allows few requests for what a container is.
            options = options.container_age_max(COSMOS_CONTAINER_AGE_MAX);
        }
        check_reach(config.listen, &options, gateway)?;
        Ok(options)
    }

    /// A server of the gateway to the store, with `router` for what is not part of the protocol.
    /// It speaks TLS, too, if that is wanted.
    pub(crate) async fn server(
        &self,
        system: &System,
        listener: TcpListener,
        router: Router,
    ) -> Result<Server> {
        let (clock, ids) = (Arc::clone(&system.clock), Arc::clone(&system.ids));
        let store = system.traces.containers(Arc::clone(&system.store.containers));
        let gateway = Gateway::open(store, clock, ids, self.options.clone()).await?;
        // Not merged: what the router would answer to unknown paths gives way to the protocol.
        let router = router.fallback_service(gateway.router());
        let server = Server::new(listener, router).gateway(gateway);
        Ok(match &self.tls {
            Some(tls) => server.tls(tls.clone()),
            None => server,
        })
    }

    /// What to tell people who want to come in.
    pub(crate) fn describe(&self, address: SocketAddr) -> String {
        let mut text = format!("  cosmos     http://{address}/");
        if let Some(tls) = &self.tls {
            let certificate = tls.certificate().display();
            text += &format!(", https://{address}/ with the certificate {certificate}");
        }
        let key = if self.options.has_public_key() {
            "the public key of the Cosmos DB emulators".to_owned()
        } else {
            format!("the one in {}", self.key_env)
        };
        format!("{text}\n  key        {key}\n")
    }
}

fn key(name: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<AccountKey>> {
    let Some(text) = variable(name).filter(|it| !it.is_empty()) else { return Ok(None) };
    let key = AccountKey::new(&text).map_err(|error| {
        let reason = error.report();
        Failure::usage(format!(
            "{name}: {reason}; `openssl rand -base64 64` makes a good one (on one line)"
        ))
    })?;
    Ok(Some(key))
}

/// With the public key everybody who reaches the port is the owner.
fn check_reach(listen: SocketAddr, options: &GatewayOptions, config: &GatewayConfig) -> Result<()> {
    if listen.ip().is_loopback() || !options.has_public_key() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "listening on {listen} with the public key of the emulators would let everybody in: set {} \
         to a key of your own in base64, or listen on 127.0.0.1",
        config.key_env
    )))
}

/// The certificate that is named.
fn named_certificate(config: &Config) -> Result<Option<Tls>> {
    let gateway = &config.gateway;
    let named = gateway.certificate.as_ref().zip(gateway.certificate_key.as_ref());
    let loaded = named.map(|(certificate, key)| Tls::load(certificate, key)).transpose();
    loaded.map_err(|error| {
        Failure::usage(format!(
            "gateway.certificate and gateway.certificate_key cannot be used: {}",
            error.report()
        ))
    })
}

/// The certificate that is named, or one of our own if there is a directory to keep it in.
fn certificate(config: &Config) -> Result<Option<Tls>> {
    if let Some(tls) = named_certificate(config)? {
        return Ok(Some(tls));
    }
    let Some(directory) = config.directory()? else { return Ok(None) };
    let mut names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    if !config.listen.ip().is_unspecified() && !config.listen.ip().is_loopback() {
        names.push(config.listen.ip().to_string());
    }
    names.extend(config.gateway.names.iter().cloned());
    Ok(Some(Tls::self_signed(&directory.join(TLS_DIRECTORY), &names)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(listen: &str, key: Option<&str>) -> Result<Entrance> {
        let gateway = GatewayConfig { tls: false, ..GatewayConfig::default() };
        let config = Config { listen: listen.parse().unwrap(), gateway, ..Config::default() };
        let key = key.map(str::to_owned);
        Entrance::prepare(&config, |name| {
            if name == "MILLSTREAM_ACCOUNT_KEY" { key.clone() } else { None }
        })
    }

    #[test]
    fn the_public_key_is_for_this_machine_only() {
        prepare("127.0.0.1:0", None).unwrap();
        prepare("[::1]:0", None).unwrap();
        let failure = prepare("0.0.0.0:8081", None).unwrap_err().to_string();
        assert!(failure.contains("MILLSTREAM_ACCOUNT_KEY"), "{failure}");
        prepare("0.0.0.0:8081", Some(millstream_gateway::PUBLIC_EMULATOR_KEY)).unwrap_err();
        prepare("0.0.0.0:8081", Some("c2VjcmV0IHNlY3JldA==")).unwrap();
    }

    #[test]
    fn a_key_that_is_none_is_refused_with_its_name() {
        let failure = prepare("127.0.0.1:0", Some("not base64!")).unwrap_err().to_string();
        assert!(failure.contains("MILLSTREAM_ACCOUNT_KEY"), "{failure}");
    }
}
