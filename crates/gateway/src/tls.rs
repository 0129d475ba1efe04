//! The certificates: a CA and a server certificate, made at the first start in `<data>/tls` and kept.
//!
//! The CA's key is thrown away as soon as it has signed the one certificate. A user who trusts `ca.pem` therefore
//! trusts this server and nothing that a thief of the data directory could make up.
//!
//! Cryptography comes from `ring`: it builds with a C compiler alone and in a fraction of the time of `aws-lc-rs`,
//! which wants CMake on some of the systems we build on; both have what TLS 1.2 and 1.3 need.

use crate::limits::CERTIFICATE_YEARS;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Names that the server certificate always has, beside the host's own and those configured.
const NAMES: [&str; 4] = ["localhost", "127.0.0.1", "::1", "*.servicebus.windows.net"];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot make a certificate: {0}; check the names given for it")]
    Make(#[from] rcgen::Error),
    #[error("{} holds no certificate and key that can be used: {why}; remove its folder to have new ones made", path.display())]
    Unusable { path: PathBuf, why: String },
}

/// The files of certificate, key and CA.
#[derive(Debug, Clone)]
pub struct Files {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    fn within(folder: &Path) -> Files {
        Files {
            ca: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        }
    }

    /// Finds the files in `<data>/tls`, or makes them all. The folder appears with all three or not at all.
    pub fn open_or_make(data: &Path, extra_names: &[String]) -> Result<Files, Error> {
        let folder = data.join("tls");
        if folder.exists() {
            return Ok(Files::within(&folder));
        }
        let unfinished = data.join("tls.new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(|source| failed("remove", &unfinished, source))?;
        }
        make_private(&unfinished).map_err(|source| failed("create", &unfinished, source))?;
        make(&Files::within(&unfinished), extra_names)?;
        sync_directory(&unfinished).map_err(|source| failed("sync", &unfinished, source))?;
        fs::rename(&unfinished, &folder).map_err(|source| failed("create", &folder, source))?;
        sync_directory(data).map_err(|source| failed("sync", data, source))?;
        Ok(Files::within(&folder))
    }

    /// Certificate and key of the operator's own. Clients know whom to trust; we name the certificate as what to.
    pub fn given(certificate: &Path, key: &Path) -> Files {
        Files { ca: certificate.to_owned(), certificate: certificate.to_owned(), key: key.to_owned() }
    }

    /// Those of `names` that the certificate does not have.
    pub fn missing_names(&self, names: &[String]) -> Result<Vec<String>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let unusable = |why: String| Error::Unusable { path: self.certificate.clone(), why };
        let certificate = CertificateDer::from_pem_file(&self.certificate);
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        let parsed =
            ParsedCertificate::try_from(&certificate).map_err(|error| unusable(error.to_string()))?;
        let is_missing = |name: &&String| {
            // A client never asks for a star, but for something in its place.
            let asked = name.strip_prefix('*').map_or(name.to_string(), |rest| format!("any{rest}"));
            ServerName::try_from(asked).map_or(true, |asked| verify_server_name(&parsed, &asked).is_err())
        };
        Ok(names.iter().filter(is_missing).cloned().collect())
    }

    fn read(&self) -> Result<CertifiedKey, Error> {
        let unusable = |path: &Path, why: String| Error::Unusable { path: path.to_owned(), why };
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(&self.certificate, error.to_string()))?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unusable(&self.key, error.to_string()))?;
        CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
            .map_err(|error| unusable(&self.certificate, error.to_string()))
    }
}

/// The certificate that is shown to the next connection. It can be changed while connections go on with the old one.
#[derive(Debug)]
pub struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    pub fn load(files: &Files) -> Result<Arc<Certificate>, Error> {
        Ok(Arc::new(Certificate(RwLock::new(Arc::new(files.read()?)))))
    }

    /// Reads the files again. If they cannot be used, everything stays as it is.
    pub fn reload(&self, files: &Files) -> Result<(), Error> {
        let fresh = Arc::new(files.read()?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// What a listener needs to speak TLS 1.2 and 1.3.
pub fn server_config(certificate: &Arc<Certificate>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(certificate) as Arc<dyn ResolvesServerCert>);
    Ok(Arc::new(config))
}

/// The same for the items' ports, where clients may choose HTTP/2 (K-40).
pub fn server_config_with_http2(certificate: &Arc<Certificate>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = Arc::unwrap_or_clone(server_config(certificate)?);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { what, path: path.to_owned(), source }
}

fn make(files: &Files, extra_names: &[String]) -> Result<(), Error> {
    let (from, until) = validity();
    let mut ca = CertificateParams::default();
    ca.distinguished_name = called("Otobus CA of this data directory");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (ca.not_before, ca.not_after) = (from, until);
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;

    let mut server = CertificateParams::new(names(extra_names))?;
    server.distinguished_name = called("Otobus");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    (server.not_before, server.not_after) = (from, until);
    let server_key = KeyPair::generate()?;
    let server_certificate = server.signed_by(&server_key, &rcgen::Issuer::from_params(&ca, &ca_key))?;

    write_secret(&files.key, &server_key.serialize_pem())
        .map_err(|source| failed("write", &files.key, source))?;
    for (path, text) in [(&files.ca, ca_certificate.pem()), (&files.certificate, server_certificate.pem())] {
        write_new(path, &text, 0o644).map_err(|source| failed("write", path, source))?;
    }
    Ok(())
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// From yesterday on, for clients whose clock is behind.
fn validity() -> (time::OffsetDateTime, time::OffsetDateTime) {
    let today = time::OffsetDateTime::now_utc();
    (today - time::Duration::days(1), today + time::Duration::days(365 * i64::from(CERTIFICATE_YEARS)))
}

fn names(extra: &[String]) -> Vec<String> {
    let mut names: Vec<String> = NAMES.into_iter().map(String::from).chain(host_name()).collect();
    names.extend(extra.iter().cloned());
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.to_ascii_lowercase()));
    names
}

/// The machine's own name, where it is easily had and fit for a certificate.
fn host_name() -> Option<String> {
    let name =
        fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok())?;
    let name = name.trim();
    let is_fit =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    is_fit.then(|| name.to_owned())
}

/// Makes a directory that its owner alone may enter.
fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Writes a file that its owner alone may read, from the first instant on.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    write_new(path, text, 0o600)
}

/// Makes a directory's entries durable: files that were made or renamed in it.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Writes a file that is not there yet and has it synced.
fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

    /// A folder of its own for each test, removed at the end.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new() -> Folder {
            let folder = std::env::temp_dir().join(format!("otobus-{}", uuid::Uuid::new_v4()));
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    pub(crate) fn client_config(files: &Files) -> Arc<ClientConfig> {
        client_config_for(files, rustls::ALL_VERSIONS)
    }

    fn client_config_for(
        files: &Files,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// Shakes hands in memory; the client believes the CA file alone.
    fn shake_hands(
        client: Arc<ClientConfig>,
        server: Arc<ServerConfig>,
        name: &str,
    ) -> Result<(), rustls::Error> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(client, name).unwrap();
        let mut server = ServerConnection::new(server).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets()?;
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn a_client_that_trusts_the_ca_file_shakes_hands_under_every_name_and_version() {
        let folder = Folder::new();
        let files = Files::open_or_make(&folder.0, &["bus.example".to_owned()]).unwrap();
        let server = server_config(&Certificate::load(&files).unwrap()).unwrap();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let client = client_config_for(&files, &[version]);
            for name in ["localhost", "127.0.0.1", "::1", "mine.servicebus.windows.net", "bus.example"] {
                shake_hands(client.clone(), server.clone(), name).unwrap();
            }
            assert!(shake_hands(client, server.clone(), "other.example").is_err());
        }
    }

    #[test]
    fn files_once_made_are_kept() {
        let folder = Folder::new();
        let files = Files::open_or_make(&folder.0, &[]).unwrap();
        let first = fs::read(&files.certificate).unwrap();
        Files::open_or_make(&folder.0, &["other".to_owned()]).unwrap();
        assert_eq!(fs::read(&files.certificate).unwrap(), first);
    }

    #[test]
    fn a_name_that_was_added_later_is_missed() {
        let folder = Folder::new();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let files = Files::open_or_make(&folder.0, &names(&["bus.example", "10.1.2.3"])).unwrap();
        let known = ["localhost", "BUS.example", "10.1.2.3", "*.servicebus.windows.net"];
        assert_eq!(files.missing_names(&names(&known)).unwrap(), names(&[]));
        let later = ["new.example", "10.1.2.4", "*.example", "no name"];
        assert_eq!(files.missing_names(&names(&later)).unwrap(), names(&later));
    }

    #[test]
    fn a_start_that_died_half_way_is_taken_up_again() {
        let folder = Folder::new();
        fs::create_dir(folder.0.join("tls.new")).unwrap();
        fs::write(folder.0.join("tls.new/server.key"), "half a k").unwrap();
        let files = Files::open_or_make(&folder.0, &[]).unwrap();
        server_config(&Certificate::load(&files).unwrap()).unwrap();
    }

    #[test]
    fn a_folder_without_its_key_is_named() {
        let folder = Folder::new();
        let files = Files::open_or_make(&folder.0, &[]).unwrap();
        fs::remove_file(&files.key).unwrap();
        let error = Certificate::load(&files).unwrap_err().to_string();
        assert!(error.contains("server.key"), "{error}");
    }

    // T1
    #[test]
    fn a_reloaded_certificate_is_shown_to_the_next_and_a_broken_one_changes_nothing() {
        let (first, second) = (Folder::new(), Folder::new());
        let files = Files::open_or_make(&first.0, &[]).unwrap();
        let others = Files::open_or_make(&second.0, &[]).unwrap();
        let certificate = Certificate::load(&files).unwrap();
        let server = server_config(&certificate).unwrap();
        let trusts = |files: &Files| shake_hands(client_config(files), server.clone(), "localhost").is_ok();
        assert!(trusts(&files) && !trusts(&others));
        certificate.reload(&Files::given(&others.certificate, &others.key)).unwrap();
        assert!(!trusts(&files) && trusts(&others));
        fs::write(&files.key, "no key").unwrap();
        assert!(certificate.reload(&files).is_err());
        assert!(trusts(&others));
    }

    #[cfg(unix)]
    #[test]
    fn the_key_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        let files = Files::open_or_make(&folder.0, &[]).unwrap();
        assert_eq!(fs::metadata(&files.key).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
