//! Ports for servers that are killed and come back under the same number.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::Error;

/// Below what systems give to those who ask for any port, or connect. There a port could go to
/// somebody else while its server is dead, even to a connection of ours to it.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port of 127.0.0.1 that is ours until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Others look for ports in the same way; this number of the other protocol keeps them away,
    /// whether the server lives or not.
    _held: UdpSocket,
}

impl Port {
    /// One that nobody uses.
    ///
    /// # Errors
    ///
    /// If all are taken.
    pub fn free() -> Result<Self, Error> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let own = std::process::id() % u32::from(COUNT);
        for _ in 0..COUNT {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            // Processes that follow each other begin far from each other.
            let place = (own * 101 + u32::from(next)) % u32::from(COUNT);
            let number = FIRST + u16::try_from(place).unwrap_or_default();
            let address = (Ipv4Addr::LOCALHOST, number);
            let Ok(held) = UdpSocket::bind(address) else { continue };
            if TcpListener::bind(address).is_ok() {
                return Ok(Self { number, _held: held });
            }
        }
        Err(Error::new("find a port that is free"))
    }

    /// Which one it is.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::ports::Port;

    #[test]
    fn a_port_is_given_once_while_it_is_held() {
        let ports: Vec<Port> = (0..50).map(|_| Port::free().unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }
}
