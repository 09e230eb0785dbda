//! What the sockets of this machine allow: a server that answers as soon as a request is there,
//! without a look at what it says.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{
    Result,
    gateway::{
        http::{Connection, Signer},
        load::Kind,
        process::ServerProcess,
        requests::Plan,
    },
};

/// Answers in this process until it is dropped.
#[derive(Debug)]
pub(super) struct RawServer {
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl RawServer {
    /// Its answers are as long as those of a server to a create.
    pub(super) async fn start(like: &ServerProcess) -> Result<Self> {
        let mut requests = Plan::new(Kind::Create, &Signer::new())?.requests(0);
        requests.advance();
        let mut connection = Connection::new(like.address());
        let (_, answer_bytes) = connection.exchange(requests.current()).await?;
        // All creates are of one length.
        let request_bytes = requests.current().len();
        let answer: &'static [u8] = Vec::leak(answer(answer_bytes));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // It ends when its client does.
                tokio::spawn(serve(stream, request_bytes, answer));
            }
        });
        Ok(Self { address, listening })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(mut stream: TcpStream, request_bytes: usize, answer: &[u8]) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut request = vec![0; request_bytes];
    let mut filled = 0;
    loop {
        match stream.read(&mut request[filled..]).await? {
            0 => return Ok(()),
            count => filled += count,
        }
        if filled == request_bytes {
            stream.write_all(answer).await?;
            filled = 0;
        }
    }
}

/// An answer of so many bytes.
fn answer(bytes: usize) -> Vec<u8> {
    let head = |body: usize| format!("HTTP/1.1 201 Created\r\ncontent-length: {body:06}\r\n\r\n");
    let body = bytes.saturating_sub(head(0).len());
    [head(body).into_bytes(), vec![b' '; body]].concat()
}
