//! Ports for servers that are killed and come back under the same number.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below what systems give to those who ask for any port, or connect. There a port could go to
/// somebody else while its server is dead, even to a connection of ours to it.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port of 127.0.0.1 that is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Other tests look for ports in the same way; this number of the other protocol keeps them
    /// away, whether the server lives or not.
    _held: UdpSocket,
}

impl Port {
    /// One that nobody uses.
    pub(crate) fn free() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let own = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap();
        for _ in 0..COUNT {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            // Processes that follow each other begin far from each other.
            let place = (u32::from(own) * 101 + u32::from(next)) % u32::from(COUNT);
            let number = FIRST + u16::try_from(place).unwrap();
            let address = (Ipv4Addr::LOCALHOST, number);
            let Ok(held) = UdpSocket::bind(address) else { continue };
            if TcpListener::bind(address).is_ok() {
                return Self { number, _held: held };
            }
        }
        panic!("no port is free");
    }
}
