//! The public keys of issuers: read from a file, or fetched from a URL and fetched again now and then.

use crate::issuer_table::{IssuerDefinition, KeySource};
use crate::limits::{ISSUER_KEYS_BYTES, ISSUER_KEYS_EVERY, ISSUER_KEYS_LEAST, ISSUER_KEYS_TIMEOUT};
use anyhow::{Context as _, bail};
use gateway::auth::{Issuer, Keys};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Weak};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Makes an issuer that has its keys, or fetches them as long as somebody holds it.
pub fn open(definition: &IssuerDefinition) -> anyhow::Result<Arc<Issuer>> {
    let IssuerDefinition { name, audiences, claims, roles, keys } = definition;
    let issuer = Arc::new(Issuer::new(name, audiences.clone(), claims.clone(), roles.clone()));
    match keys {
        KeySource::File(path) => {
            let read = || anyhow::Ok(Keys::read(&std::fs::read(path)?)?);
            issuer.set_keys(
                read().with_context(|| format!("the keys of issuer `{name}`, {}", path.display()))?,
            );
        }
        KeySource::Url(url) => {
            tokio::spawn(refresh(Arc::downgrade(&issuer), url.clone()));
        }
    }
    Ok(issuer)
}

async fn refresh(issuer: Weak<Issuer>, url: String) {
    while let Some(issuer) = issuer.upgrade() {
        match tokio::time::timeout(ISSUER_KEYS_TIMEOUT, fetch(&url)).await {
            Ok(Ok(keys)) => issuer.set_keys(keys),
            Ok(Err(error)) => {
                tracing::warn!(issuer = %issuer.name, "cannot fetch its keys from {url}: {error:#}")
            }
            Err(_) => {
                tracing::warn!(issuer = %issuer.name, "cannot fetch its keys from {url}: no answer in time")
            }
        }
        tokio::time::sleep(ISSUER_KEYS_LEAST).await;
        // A reload of the configuration makes another one.
        let rest = ISSUER_KEYS_EVERY - ISSUER_KEYS_LEAST;
        let _ = tokio::time::timeout(rest, issuer.unknown_key()).await;
    }
}

async fn fetch(url: &str) -> anyhow::Result<Keys> {
    let uri: Uri = url.parse()?;
    let host = uri.host().context("it names no host")?.trim_matches(['[', ']']).to_owned();
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    if !is_secure {
        return ask(stream, &uri).await;
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    ask(connector.connect(ServerName::try_from(host)?, stream).await?, &uri).await
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    uri: &Uri,
) -> anyhow::Result<Keys> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path).header("host", host).header("accept", "application/json");
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    if !response.status().is_success() {
        bail!("the answer is {}", response.status());
    }
    let body = Limited::new(response.into_body(), ISSUER_KEYS_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    Ok(Keys::read(&body)?)
}
