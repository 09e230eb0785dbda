//! What carries requests to a server: a socket, or TLS over one.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{self, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::Result;

/// A server that is silent for so long does not answer any more.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Where a server is, and how it is spoken to.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection over a socket of either kind: one that waits, or one that does not.
pub(super) enum Wire<S: Read + Write> {
    Plain(S),
    Tls(Box<StreamOwned<ClientConnection, S>>),
}

/// Takes every certificate: those of test servers are signed by nobody.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl Endpoint {
    pub(super) fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    pub(super) fn tls(address: SocketAddr) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        Ok(Self { address, tls: Some(Arc::new(config)) })
    }

    /// The same for one client alone: with tickets of its own it resumes its session on each new
    /// connection, as SDKs do, where the server allows it.
    pub(super) fn for_one_client(&self) -> Self {
        let tls = self.tls.as_ref().map(|shared| {
            let mut config = ClientConfig::clone(shared);
            config.resumption = Resumption::in_memory_sessions(1);
            Arc::new(config)
        });
        Self { address: self.address, tls }
    }

    /// A connection that waits for whatever is read.
    pub(super) fn connect(&self) -> Result<Wire<net::TcpStream>> {
        let stream = self.socket()?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        self.wrap(stream)
    }

    /// A connection that never waits, for a poll; the handshake of TLS comes with the first use.
    pub(super) fn connect_to_poll(&self) -> Result<Wire<mio::net::TcpStream>> {
        let stream = self.socket()?;
        stream.set_nonblocking(true)?;
        self.wrap(mio::net::TcpStream::from_std(stream))
    }

    fn socket(&self) -> Result<net::TcpStream> {
        let stream = net::TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn wrap<S: Read + Write>(&self, stream: S) -> Result<Wire<S>> {
        let Some(config) = &self.tls else { return Ok(Wire::Plain(stream)) };
        let name = ServerName::try_from("localhost")?;
        let session = ClientConnection::new(Arc::clone(config), name)?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(session, stream))))
    }
}

impl<S: Read + Write> Wire<S> {
    pub(super) fn socket_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &mut stream.sock,
        }
    }

    /// Whether a read that did not fill its space has taken all there was. Behind TLS it ends with
    /// a record.
    pub(super) fn short_read_is_all(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl<S: Read + Write> Read for Wire<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(space),
            Self::Tls(stream) => stream.read(space),
        }
    }
}

impl<S: Read + Write> Write for Wire<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl<S: Read + Write> fmt::Debug for Wire<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Tls(_) => "Tls",
        })
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
