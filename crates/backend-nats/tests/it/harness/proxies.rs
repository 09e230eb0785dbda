//! A network between servers that can be cut: connections stay open, but nothing comes through
//! until it is mended, and then everything that was under way comes late.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use millstream_nats_servers::Port;

/// Passes connections to one port on to another.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) port: Port,
    line: Arc<Line>,
}

/// What all connections of a proxy go through.
#[derive(Debug, Default)]
struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    is_over: bool,
}

impl Proxy {
    /// Passes on to a port of this machine, whether somebody listens there or not.
    pub(crate) fn to(target: u16) -> Self {
        let (port, line) = (Port::free().unwrap(), Arc::new(Line::default()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        let accepting = Arc::clone(&line);
        thread::spawn(move || accept(&listener, target, &accepting));
        Self { port, line }
    }

    /// Lets nothing through from now on.
    pub(crate) fn cut(&self) {
        self.line.change(|it| it.is_cut = true);
    }

    /// Lets everything through again.
    pub(crate) fn mend(&self) {
        self.line.change(|it| it.is_cut = false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.line.change(|it| it.is_over = true);
        // Wakes the one who waits for connections.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()));
    }
}

impl Line {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Returns when something can come through; false if that will not be.
    fn pass(&self) -> bool {
        let state = self.state.lock().unwrap();
        let state = self.changed.wait_while(state, |it| it.is_cut && !it.is_over).unwrap();
        !state.is_over
    }
}

fn accept(listener: &TcpListener, target: u16, line: &Arc<Line>) {
    for client in listener.incoming() {
        if line.state.lock().unwrap().is_over {
            return;
        }
        let Ok(client) = client else { continue };
        let line = Arc::clone(line);
        thread::spawn(move || connect(client, target, &line));
    }
}

/// A server that is dead refuses; whoever wanted to talk to it is told by the end of the
/// connection.
fn connect(client: TcpStream, target: u16, line: &Arc<Line>) {
    if !line.pass() {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { return };
    let (Ok(other_client), Ok(other_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let back = Arc::clone(line);
    thread::spawn(move || copy(other_server, other_client, &back));
    copy(client, server, line);
}

/// Copies until one of the two ends.
fn copy(mut from: TcpStream, mut to: TcpStream, line: &Line) {
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !line.pass() || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The end, too, has to come through.
    line.pass();
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
