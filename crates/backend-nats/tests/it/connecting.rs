//! Who may connect, and what one is told who may not.

use std::fs;
use std::process::{Command, Stdio};

use millstream_backend_nats::{Connection, ConnectionOptions, Credentials, NatsStore};
use millstream_core::{Containers, ErrorKind, Result};

use crate::harness::{Servers, block_on};

/// The example of the documentation of NATS.
const NKEY_SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const NKEY_USER: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

async fn connect(options: ConnectionOptions) -> Result<()> {
    let store = NatsStore::open(Connection::open(options).await?).await?;
    store.list_databases().await?;
    Ok(())
}

#[track_caller]
fn check(options: ConnectionOptions, is_welcome: bool) {
    match (block_on(connect(options)), is_welcome) {
        (Ok(()), true) => {}
        (Ok(()), false) => panic!("a stranger was let in"),
        (Err(error), true) => panic!("one who may was refused: {}", error.report()),
        (Err(error), false) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
            assert!(!error.report().contains("secret"), "{}", error.report());
        }
    }
}

fn parse(url: &str) -> ConnectionOptions {
    ConnectionOptions::parse(url).unwrap()
}

#[test]
fn a_user_needs_the_password() {
    let lines = "authorization { user: ada, password: \"secret p@ss\" }";
    let Some(servers) = Servers::start_with(1, lines) else { return };
    let with = |user: &str| servers.url().replace("nats://", &format!("nats://{user}@"));
    check(parse(&with("ada:secret%20p%40ss")), true);
    check(parse(&with("ada:secret")), false);
    check(parse(&servers.url()), false);
}

#[test]
fn a_token_opens_too() {
    let Some(servers) = Servers::start_with(1, "authorization { token: secret }") else { return };
    check(parse(&servers.url().replace("nats://", "nats://secret@")), true);
    check(parse(&servers.url()).credentials(Credentials::Token("no".to_owned())), false);
}

#[test]
fn an_nkey_comes_from_a_file_or_as_a_seed() {
    let lines = format!("authorization {{ users: [ {{ nkey: {NKEY_USER} }} ] }}");
    let Some(servers) = Servers::start_with(1, &lines) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seed");
    fs::write(&file, format!("{NKEY_SEED}\n")).unwrap();
    check(parse(&format!("{}?nkey={}", servers.url(), file.display())), true);
    check(parse(&servers.url()).credentials(Credentials::NkeySeed(NKEY_SEED.to_owned())), true);
    check(parse(&servers.url()), false);
    let missing = format!("{}?creds={}", servers.url(), directory.path().join("x").display());
    let error = block_on(connect(parse(&missing))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.report());
}

#[test]
fn a_server_may_insist_on_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert"), directory.path().join("key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|it| it.success()) {
        eprintln!("SKIPPED: openssl is needed to make a certificate");
        return;
    }
    let (shown, key) = (certificate.display(), key.display());
    let lines = format!("tls {{ cert_file: \"{shown}\", key_file: \"{key}\" }}");
    let Some(servers) = Servers::start_with(1, &lines) else { return };
    let url = servers.url().replace("nats://", "tls://");
    check(parse(&format!("{url}?ca={shown}")), true);
    check(parse(&url), false);
}

#[test]
fn nobody_there_is_told_soon() {
    let error = block_on(connect(parse("nats://127.0.0.1:1"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
    assert!(error.report().starts_with("could not connect to nats://127.0.0.1:1: "));
}
