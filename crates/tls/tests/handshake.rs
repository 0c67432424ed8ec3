//! Handshakes of two identities, with authorities that each test creates.

#![expect(clippy::unwrap_used, reason = "a certificate that cannot be made fails the test")]

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use shunt_tls::{TlsFiles, TlsIdentity};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

/// A certificate authority, with its files in a directory.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, "Test CA");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a key, and a certificate for a name that is not a host name.
    fn sign(&self, name: &str) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![format!("{name}-id")]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let (private, public) =
            (self.path(&format!("{name}.key")), self.path(&format!("{name}.pem")));
        fs::write(&private, key.serialize_pem()).unwrap();
        fs::write(&public, certificate.pem()).unwrap();
        TlsFiles {
            private_key: private,
            certificate: public,
            ca_certificate: Some(self.path("ca.pem")),
            bootstraps: false,
        }
    }
}

fn identity(files: TlsFiles) -> TlsIdentity {
    let identity = TlsIdentity::default();
    identity.set(Some(files));
    identity
}

/// Connects a client to a server, and sends bytes in both directions.
async fn talk(client: &TlsIdentity, server: &TlsIdentity) -> io::Result<()> {
    let (near, far) = duplex(1 << 16);
    let serve = async {
        let mut stream = server.accept(far).await?;
        let mut question = [0; 4];
        stream.read_exact(&mut question).await?;
        assert_eq!(&question, b"ping");
        stream.write_all(b"pong").await?;
        stream.flush().await
    };
    let ask = async {
        let mut stream = client.connect(near).await?;
        stream.write_all(b"ping").await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"pong");
        Ok(())
    };
    tokio::try_join!(serve, ask).map(drop)
}

#[tokio::test]
async fn both_sides_of_one_authority_trust_each_other() {
    let authority = Authority::new();
    let (client, server) =
        (identity(authority.sign("switch")), identity(authority.sign("controller")));
    talk(&client, &server).await.unwrap();
    // A renewed certificate is used without a restart of the server.
    authority.sign("controller");
    talk(&client, &server).await.unwrap();
}

#[tokio::test]
async fn both_sides_refuse_certificates_of_other_authorities() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (own, foreign) = (identity(ours.sign("switch")), identity(theirs.sign("controller")));
    let error = talk(&own, &foreign).await.unwrap_err().to_string();
    assert!(error.contains("does not come from the CA in ca_certificate"), "{error}");
    // This client trusts the server, but the server does not trust the client.
    let mut files = theirs.sign("switch");
    files.ca_certificate = Some(ours.path("ca.pem"));
    talk(&identity(files), &identity(ours.sign("controller"))).await.unwrap_err();
}

#[tokio::test]
async fn a_server_without_authority_takes_any_client() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let mut server = ours.sign("web");
    server.ca_certificate = None;
    let mut client = theirs.sign("browser");
    client.ca_certificate = Some(ours.path("ca.pem"));
    talk(&identity(client), &identity(server)).await.unwrap();
}

/// OpenSSL accepts the certificate of `openssl req -x509`,
/// which is a CA certificate.
#[tokio::test]
async fn peer_with_certificate_of_ca_gets_advice() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (key, certificate) = (theirs.path("key.pem"), theirs.path("ca.pem"));
    fs::write(&key, theirs.issuer.key().serialize_pem()).unwrap();
    let server =
        TlsFiles { private_key: key, certificate, ca_certificate: None, bootstraps: false };
    let mut client = ours.sign("switch");
    client.ca_certificate = Some(theirs.path("ca.pem"));
    let error = talk(&identity(client), &identity(server)).await.unwrap_err().to_string();
    assert!(
        error.contains("is that of a CA, which cannot identify a peer: make one without CA:TRUE"),
        "{error}"
    );
}

/// The first connection stores the certificate, and later connections are checked.
#[tokio::test]
async fn an_authority_can_come_from_the_first_server() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ca_certificate = Some(ours.path("taken.pem"));
    let client = identity(TlsFiles { ca_certificate, bootstraps: true, ..ours.sign("switch") });
    // A server without the certificate of its authority in its file cannot provide it.
    let mut server = ours.sign("controller");
    client.check().unwrap();
    let error = talk(&client, &identity(server.clone())).await.unwrap_err().to_string();
    assert!(
        error.contains("the server sends only its own certificate, and not that of its CA"),
        "{error}"
    );
    // The certificate of another authority is not stored.
    let chain = |authority: &Authority| {
        let own = fs::read_to_string(&server.certificate).unwrap();
        let path = ours.path("chain.pem");
        fs::write(&path, own + &authority.issuer.pem()).unwrap();
        path
    };
    let wrong = TlsFiles { certificate: chain(&theirs), ..server.clone() };
    let error = talk(&client, &identity(wrong)).await.unwrap_err().to_string();
    assert!(error.contains("did not sign the others"), "{error}");
    assert!(!ours.path("taken.pem").exists());
    server.certificate = chain(&ours);
    let error = talk(&client, &identity(server.clone())).await.unwrap_err().to_string();
    assert!(error.contains("is stored in") && error.contains("connecting again"), "{error}");
    talk(&client, &identity(server)).await.unwrap();
    let stranger = identity(theirs.sign("controller"));
    talk(&client, &stranger).await.unwrap_err();
}

/// The files of a database replace those of the configuration.
#[test]
fn replaced_files_return_as_last_configured() {
    let files = |key: &str| TlsFiles {
        private_key: key.into(),
        certificate: "c".into(),
        ca_certificate: None,
        bootstraps: false,
    };
    let used = identity(files("first"));
    let configured = used.without_replacement();
    used.replace(Some(files("row")));
    assert!(used.is_replaced() && !configured.is_replaced());
    assert_eq!(used.files(), Some(files("row")));
    used.set(Some(files("second")));
    assert_eq!(used.files(), Some(files("row")));
    assert_eq!(configured.files(), Some(files("second")));
    used.replace(None);
    assert!(!used.is_replaced());
    assert_eq!(used.files(), Some(files("second")));
    used.set(None);
    assert_eq!((used.files(), configured.files()), (None, None));
}

#[tokio::test]
async fn a_peer_without_tls_is_refused() {
    let authority = Authority::new();
    let (mut near, far) = duplex(1 << 10);
    near.write_all(b"\x04\x00\x00\x08\x00\x00\x00\x00").await.unwrap();
    let refused = identity(authority.sign("switch")).accept(far).await.map(drop);
    assert!(refused.unwrap_err().to_string().contains("does not speak TLS"));
}

/// Root can read every file, so a test run by root sees no error.
#[test]
fn foreign_file_is_named_with_advice() {
    let authority = Authority::new();
    let files = authority.sign("switch");
    fs::set_permissions(&files.private_key, fs::Permissions::from_mode(0o000)).unwrap();
    if let Err(error) = files.check() {
        let text = error.to_string();
        assert!(text.contains("cannot read the private key"), "{text}");
        assert!(text.ends_with("let the user of the daemon read the file"), "{text}");
    }
}

#[test]
fn each_file_that_cannot_be_used_is_named() {
    let authority = Authority::new();
    let good = authority.sign("switch");
    good.check().unwrap();
    let other = authority.sign("other");
    let refused = |files: &TlsFiles| files.check().unwrap_err().to_string();

    let text = refused(&TlsFiles { private_key: "/nonexistent/key".into(), ..good.clone() });
    assert!(text.starts_with("cannot read the private key /nonexistent/key: "), "{text}");
    let text = refused(&TlsFiles { certificate: good.private_key.clone(), ..good.clone() });
    assert!(text.ends_with("switch.key: the file has no certificate in PEM format"), "{text}");
    let text = refused(&TlsFiles { private_key: other.private_key, ..good.clone() });
    assert!(text.contains("is it the key of"), "{text}");
    let text = refused(&TlsFiles { ca_certificate: Some("/nonexistent/ca".into()), ..good });
    assert!(text.starts_with("cannot read the CA certificate /nonexistent/ca: "), "{text}");
    let folder = TlsFiles { private_key: "/".into(), ..authority.sign("switch") };
    assert!(refused(&folder).ends_with("it is not a regular file"), "{}", refused(&folder));
    assert!(TlsIdentity::default().check().is_err());
}

/// A certificate of version 1, as `openssl x509 -req` creates without extensions.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBFjCBvQIUeNz1jlPDcaFCe4v3K7AQ0PIO3AAwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwIBcNMjYxMTI3MjMwNjI2WhgPMjEyNjExMDMyMzA2MjZaMA0xCzAJ
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEJWTg7sYxr7NHvFMv
FnOyCCyIB8t9iINkXnRl1yb/4YZA+4LueHnkngJM9vHG6B2gpQdbZAof29eJ3VWo
yuFbkjAKBggqhkjOPQQDAgNIADBFAiBA2QzzE4CxADJSN9IDXRiz5SNwexdx/NMg
zhisyJ8LOgIhAOEKY0UV/dUx1vCaE/0rH7GPMyvQ7bVfNv/C806J3TkM
-----END CERTIFICATE-----
";

#[test]
fn a_certificate_of_version_1_has_advice() {
    let authority = Authority::new();
    let files = authority.sign("switch");
    fs::write(&files.certificate, VERSION_1).unwrap();
    let text = files.check().unwrap_err().to_string();
    assert!(text.starts_with("cannot use the certificate"), "{text}");
    assert!(text.contains("it has version 1 of X.509") && text.contains("-extfile"), "{text}");
}
