//! Ten thousand requests at 64 connections, two of five not meant well: the others must not
//! notice, and nothing may be left behind.
//!
//! The server is a process of its own, so that its descriptors and its memory can be counted, and
//! a panic is seen wherever it happens. What the clients do follows from a seed.

mod hostile;
mod malformed;
mod server;
mod valid;
mod wire;

use std::time::Duration;

use tokio::task::JoinSet;

use crate::load::hostile::Held;
use crate::load::server::ServerProcess;
use crate::load::valid::Client;
use crate::load::wire::{Kind, Random};

/// Another seed is another ten thousand requests; write a failing one here to repeat it.
const SEED: u64 = 5;
const CLIENTS: u64 = 64;
const STEPS: u64 = 160;
/// Turns a hang into a failure; the test takes some seconds.
const TIME_MAX: Duration = Duration::from_secs(240);
/// What the second half of the requests may add to the memory of the server: documents, and what
/// its allocator keeps. A few KiB kept of each request would be more.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

#[test]
fn hostile_clients_leave_nothing_behind_and_disturb_nobody() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(TIME_MAX, Box::pin(load())).await.expect("the test ends in time");
    });
}

async fn load() {
    let server = ServerProcess::start();
    valid::make_container(&server).await;
    let before = server.sockets();
    let files_before = server.files();
    // What says nothing, and what never ends what it says, is there from the beginning.
    let held = Held::open(&server).await;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let random = Random::new(SEED << 32 | number);
        clients.push(Client::connect(&server, number, kind(number), random).await);
    }
    let clients = run_half(&server, clients).await;
    let half = server.resident_kib();
    let clients = run_half(&server, clients).await;
    let full = server.resident_kib();
    eprintln!("memory of the server: {half} KiB after half of the requests, {full} KiB after all");
    assert!(full <= half + GROWTH_KIB_MAX, "memory grew from {half} to {full} KiB");

    let mut items = 0;
    for mut client in clients {
        client.check_all().await;
        items += client.count();
    }
    valid::check_total(&server, items).await;
    held.wait_until_disconnected().await;
    server.wait_for_sockets(before).await;
    let files = server.files();
    assert!(files <= files_before + 64, "open files went from {files_before} to {files}");
    server.stop();
}

/// Most clients speak HTTP/1.1; some HTTP/2, some TLS.
fn kind(number: u64) -> Kind {
    match number % 8 {
        0 => Kind::Http2,
        1 => Kind::Secured,
        _ => Kind::Http1,
    }
}

/// Lets every client take half of its steps, all at once.
async fn run_half(server: &ServerProcess, clients: Vec<Client>) -> Vec<Client> {
    let mut running = JoinSet::new();
    for mut client in clients {
        let address = server.address();
        running.spawn(async move {
            for _ in 0..STEPS / 2 {
                match client.random.below(5) {
                    0 => hostile::act(address, &mut client.random).await,
                    1 => malformed::act(&mut client).await,
                    _ => client.act().await,
                }
            }
            client
        });
    }
    let mut clients = Vec::new();
    while let Some(ended) = running.join_next().await {
        clients.push(ended.unwrap());
    }
    clients
}
