//! What the sockets of this machine allow: a server that answers as soon as a request is there,
//! without a look at what it says.

use std::net::Ipv4Addr;

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
        wire::Endpoint,
    },
};

/// How a create ends, and what is nowhere else in it. Their lengths differ: a signature is longer
/// the more of its characters have to be escaped.
const END_OF_CREATE: &[u8] = b"}";
const READ_BYTES: usize = 16 * 1024;

/// Answers in this process until it is dropped.
#[derive(Debug)]
pub(super) struct RawServer {
    endpoint: Endpoint,
    listening: JoinHandle<()>,
}

impl RawServer {
    /// Its answers are as long as those of a server to a create.
    pub(super) async fn start(like: &ServerProcess) -> Result<Self> {
        let mut requests = Plan::new(Kind::Create, &Signer::new())?.requests(0);
        requests.advance();
        let mut connection = Connection::new(like.endpoint().clone());
        let (_, answer_bytes) = connection.exchange(requests.current())?;
        Self::answering(answer_bytes).await
    }

    async fn answering(answer_bytes: usize) -> Result<Self> {
        let answer: &'static [u8] = Vec::leak(answer(answer_bytes));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = Endpoint::plain(listener.local_addr()?);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // It ends when its client does.
                tokio::spawn(serve(stream, answer));
            }
        });
        Ok(Self { endpoint, listening })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: &[u8]) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut space = vec![0; READ_BYTES];
    loop {
        let count = stream.read(&mut space).await?;
        if count == 0 {
            return Ok(());
        }
        if space[..count].ends_with(END_OF_CREATE) {
            stream.write_all(answer).await?;
        }
    }
}

/// An answer of so many bytes.
fn answer(bytes: usize) -> Vec<u8> {
    let head = |body: usize| format!("HTTP/1.1 201 Created\r\ncontent-length: {body:06}\r\n\r\n");
    let body = bytes.saturating_sub(head(0).len());
    [head(body).into_bytes(), vec![b' '; body]].concat()
}

#[cfg(test)]
mod tests {
    use tokio::task;

    use super::*;

    #[tokio::test]
    async fn creates_of_any_length_are_answered() {
        let server = RawServer::answering(300).await.unwrap();
        let mut connection = Connection::new(server.endpoint().clone());
        let mut requests = Plan::new(Kind::Create, &Signer::new()).unwrap().requests(0);
        requests.advance();
        let waiting = task::spawn_blocking(move || {
            for more in ["", "a", "longer"] {
                let text = std::str::from_utf8(requests.current()).unwrap();
                let request = text.replace("authorization: ", &format!("authorization: {more}"));
                assert_eq!(connection.exchange(request.as_bytes()).unwrap(), (201, 300));
            }
        });
        waiting.await.unwrap();
    }
}
