use std::fmt;
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, TlsOptions, Url,
};

/// Where a Temporal server is, and how to reach it.
///
/// ```
/// use harness_engine_temporal::Endpoint;
///
/// let endpoint = Endpoint::new("http://127.0.0.1:7233").with_namespace("agents").with_api_key("secret");
/// assert!(!format!("{endpoint:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Endpoint {
    /// The address, as a URL: `http://HOST:PORT`, or `https://HOST:PORT` for TLS.
    pub address: String,
    /// The namespace. `default` by default.
    pub namespace: String,
    /// What TLS needs beside the system's certificates. With it, or with a key, TLS is used also where the address says
    /// `http`.
    pub tls: Option<Tls>,
    /// The key that is sent with every request, over TLS alone. It goes to the server and nowhere else.
    pub api_key: Option<String>,
    /// The name of this process in what the server tells of it. The host and the process id by default.
    pub identity: Option<String>,
}

/// Certificates, in PEM.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Tls {
    /// Who signs the server's certificate. Without it, those whom the system trusts.
    pub server_ca: Option<Vec<u8>>,
    /// The name that the server's certificate must have. The address's by default.
    pub server_name: Option<String>,
    /// The client's certificate and private key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Sets who signs the server's certificate.
    #[must_use]
    pub fn with_server_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.server_ca = Some(pem.into());
        self
    }

    /// Sets the name that the server's certificate must have.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sets the client's certificate and private key.
    #[must_use]
    pub fn with_client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client = Some((certificate.into(), key.into()));
        self
    }
}

impl Endpoint {
    /// Takes the server at `address`, a URL.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            namespace: "default".to_owned(),
            tls: None,
            api_key: None,
            identity: None,
        }
    }

    /// Chooses the namespace.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets what TLS needs.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the key that is sent with every request.
    #[must_use]
    pub fn with_api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sets the name of this process.
    #[must_use]
    pub fn with_identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    pub(crate) async fn connect(&self) -> Result<Client, ConnectError> {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let mut url: Url = self.address.parse().map_err(|_| ConnectError::Address {
            address: self.address.clone(),
            expected: "a URL such as http://127.0.0.1:7233",
        })?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(ConnectError::Address {
                address: self.address.clone(),
                expected: "http:// or https://, a host and a port",
            });
        }
        self.check()?;
        if self.tls.is_some() || self.api_key.is_some() {
            // The library goes by the address alone: a key would be sent in clear, and certificates not be asked for.
            url.set_scheme("https").map_err(|()| ConnectError::Address {
                address: self.address.clone(),
                expected: "an address that can be https",
            })?;
        }
        let identity = self.identity.clone().unwrap_or_else(own_identity);
        let tls = (url.scheme() == "https").then(|| match &self.tls {
            Some(tls) => tls_options(tls),
            None => TlsOptions::default(),
        });
        let options = ConnectionOptions::new(url)
            .identity(identity)
            .connect_timeout(TIMEOUT)
            .maybe_tls_options(tls)
            .maybe_api_key(self.api_key.clone())
            .build();
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| ConnectError::Unreachable {
            address: self.address.clone(),
            source,
        };
        // The library waits without a bound for a server that takes the connection and says nothing.
        let connection = tokio::time::timeout(2 * TIMEOUT, Connection::connect(options)).await;
        let connection = connection
            .map_err(|_| unreachable("it takes the connection and does not answer".into()))?
            .map_err(|error| unreachable(error.into()))?;
        let options = ClientOptions::new(self.namespace.clone()).build();
        Client::new(connection, options).map_err(|error| unreachable(error.into()))
    }

    /// Looks at what the library would leave out without a word.
    fn check(&self) -> Result<(), ConnectError> {
        let unusable =
            |setting, reason: &str| Err(ConnectError::Setting { setting, reason: reason.to_owned() });
        if let Some(key) = &self.api_key {
            // What an HTTP header can carry.
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
                return unusable("api_key", "it is empty, or has characters other than printable ASCII");
            }
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        let has_certificate =
            |pem: &[u8]| CertificateDer::pem_slice_iter(pem).next().is_some_and(|first| first.is_ok());
        if tls.server_ca.as_ref().is_some_and(|pem| !has_certificate(pem)) {
            return unusable("server_ca", "there is no certificate in PEM in it");
        }
        if let Some((certificate, key)) = &tls.client {
            if !has_certificate(certificate) {
                return unusable("client", "there is no certificate in PEM in the first part");
            }
            if PrivateKeyDer::from_pem_slice(key).is_err() {
                return unusable("client", "there is no private key in PEM in the second part");
            }
        }
        Ok(())
    }
}

fn tls_options(tls: &Tls) -> TlsOptions {
    let client = tls.client.clone().map(|(client_cert, client_private_key)| {
        ClientTlsOptions::builder().client_cert(client_cert).client_private_key(client_private_key).build()
    });
    TlsOptions::builder()
        .maybe_server_root_ca_cert(tls.server_ca.clone())
        .maybe_domain(tls.server_name.clone())
        .maybe_client_tls_options(client)
        .build()
}

fn own_identity() -> String {
    let host = rustix::system::uname();
    format!("{}@{}", std::process::id(), host.nodename().to_string_lossy())
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("namespace", &self.namespace)
            .field("tls", &self.tls)
            .field("api_key", &self.api_key.as_ref().map(|_| "…"))
            .field("identity", &self.identity)
            .finish()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Why a server cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one.
    #[error("{address:?} is not the address of a server; give {expected}")]
    #[non_exhaustive]
    Address {
        /// The address.
        address: String,
        /// What is expected.
        expected: &'static str,
    },
    /// A key or a certificate cannot be used.
    #[error("the setting {setting} of the server cannot be used: {reason}")]
    #[non_exhaustive]
    Setting {
        /// Which one: `api_key`, `server_ca` or `client`.
        setting: &'static str,
        /// Why.
        reason: String,
    },
    /// Nobody answers there, or not as a server does.
    #[error("the server at {address} cannot be reached")]
    #[non_exhaustive]
    Unreachable {
        /// The address.
        address: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
