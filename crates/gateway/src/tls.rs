//! TLS: a certificate that somebody brings, or one of our own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// Files of a certificate of our own, in the directory it is kept in.
const CERTIFICATE_FILE: &str = "certificate.pem";
const KEY_FILE: &str = "key.pem";

/// What a server needs to speak TLS.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    certificate: PathBuf,
}

impl Tls {
    /// A certificate chain and its key from two PEM files.
    ///
    /// # Errors
    ///
    /// `Invalid` if a file cannot be read or does not hold what it should.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self> {
        let attempted = || format!("use the certificate {}", certificate.display());
        let refused = |path: &Path, error: &dyn std::fmt::Display| -> Error {
            Error::invalid(attempted(), format!("{}: {error}", path.display()))
        };
        let chain = fs::read(certificate).map_err(|error| refused(certificate, &error))?;
        let secret = fs::read(key).map_err(|error| refused(key, &error))?;
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| refused(certificate, &error))?;
        if chain.is_empty() {
            return Err(refused(certificate, &"there is no certificate in it"));
        }
        let secret =
            PrivateKeyDer::from_pem_slice(&secret).map_err(|error| refused(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(certificate, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, secret);
        let mut config = config.map_err(|error| refused(certificate, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, certificate: certificate.to_owned() })
    }

    /// A certificate of our own for `names`, kept in `directory`: made when there is none, the same
    /// ever after, so that clients can be told to trust it.
    ///
    /// # Errors
    ///
    /// `Invalid` if a name cannot stand in a certificate or a file there cannot be used;
    /// `Unavailable` if the directory cannot be written to.
    pub fn self_signed(directory: &Path, names: &[String]) -> Result<Self> {
        let certificate = directory.join(CERTIFICATE_FILE);
        let key = directory.join(KEY_FILE);
        if !certificate.exists() {
            make(directory, &certificate, &key, names)?;
        }
        Self::load(&certificate, &key)
    }

    /// The file with the certificate.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.acceptor.accept(stream).await
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

fn make(directory: &Path, certificate: &Path, key: &Path, names: &[String]) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(names.to_vec())
        .map_err(|error| Error::invalid("make a certificate", error.to_string()))?;
    let written = fs::create_dir_all(directory)
        .and_then(|()| write_secret(key, &made.signing_key.serialize_pem()))
        // The certificate comes last: whoever finds it finds the key, too.
        .and_then(|()| fs::write(certificate, made.cert.pem()));
    written.map_err(|error| {
        let attempted = format!("keep a certificate in {}", directory.display());
        Error::new(ErrorKind::Unavailable, attempted).because(error)
    })
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_kept_secret() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("tls");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = Tls::self_signed(&kept, &names).unwrap();
        let text = fs::read_to_string(first.certificate()).unwrap();
        Tls::self_signed(&kept, &names).unwrap();
        assert_eq!(fs::read_to_string(first.certificate()).unwrap(), text);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(kept.join(KEY_FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn files_that_are_no_certificate_are_refused_with_their_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.pem");
        fs::write(&file, "nothing").unwrap();
        let error = Tls::load(&file, &file).unwrap_err().report();
        assert!(error.contains("a.pem"), "{error}");
        let missing = Tls::load(&directory.path().join("b.pem"), &file).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Invalid);
    }
}
