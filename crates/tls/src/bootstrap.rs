//! Stores the authority's certificate that the first server sends (`bootstrap_ca_cert`).
//!
//! As in Open vSwitch, the server of the first connection determines which authority is trusted
//! from then on. So the first connection is closed after the certificate is stored, and later
//! connections are checked.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustls::{
    RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

use crate::files::TlsError;

/// Stores the last certificate of a server's chain in a new file.
///
/// # Errors
///
/// If the server does not send the certificate of the authority that signed its certificate, or the
/// file cannot be written.
pub(crate) fn store_authority(
    chain: &[CertificateDer<'_>],
    path: &Path,
    provider: &CryptoProvider,
) -> Result<(), TlsError> {
    let refused =
        |reason: String| TlsError::NotBootstrapped { path: path.display().to_string(), reason };
    let [leaf, intermediates @ .., authority] = chain else {
        return Err(refused(
            "the server sends only its own certificate, and not that of its CA".to_owned(),
        ));
    };
    let checked = || {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let algorithms = provider.signature_verification_algorithms.all;
        let leaf = ParsedCertificate::try_from(leaf)?;
        let now = UnixTime::now();
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, intermediates, now, algorithms)
    };
    checked().map_err(|error: rustls::Error| {
        refused(format!(
            "the last certificate that the server sends did not sign the others: {error}"
        ))
    })?;
    write_new(path, &pem(authority)).map_err(|error| refused(error.to_string()))
}

/// Writes a file as a whole, unless it exists.
///
/// A file that is incomplete, as on a full disk, would end the search for an authority.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    /// Number of the next temporary file.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    // Relaxed: the number guards no other memory.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}", std::process::id()));
    let temporary = PathBuf::from(name);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    // Unlike a renamed file, a link replaces no other file.
    let linked = written.and_then(|()| fs::hard_link(&temporary, path));
    // The temporary file may not exist.
    let _ = fs::remove_file(&temporary);
    match linked {
        // Another connection has stored the certificate.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Returns a certificate in PEM format (RFC 7468).
fn pem(certificate: &[u8]) -> String {
    /// The digits of Base64.
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    /// Number of bytes that are encoded as a line of 64 characters.
    const LINE_BYTES: usize = 48;
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in certificate.chunks(LINE_BYTES) {
        for part in line.chunks(3) {
            let byte = |index: usize| u32::from(part.get(index).copied().unwrap_or_default());
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for (digit, shift) in [18, 12, 6, 0].into_iter().enumerate() {
                let value = usize::try_from(bits >> shift & 0x3f).unwrap_or_default();
                let own = ALPHABET.get(value).copied().unwrap_or_default();
                text.push(if digit <= part.len() { char::from(own) } else { '=' });
            }
        }
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_written_whole_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let path = folder.path().join("ca.pem");
        write_new(&path, "first").unwrap();
        // The certificate of the first connection stays.
        write_new(&path, "second").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("first", 1));
        write_new(&folder.path().join("no/ca.pem"), "text").unwrap_err();
        // Nothing can be linked to the name of a folder that does not exist.
        assert_eq!(names(), 1);
    }

    #[test]
    fn pem_has_lines_of_64_characters_and_padding() {
        let lines = |bytes: &[u8]| pem(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
        // The test vectors of RFC 4648, section 10.
        for (bytes, expected) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(lines(bytes.as_bytes())[1], expected);
        }
        let long = lines(&[0xff; 49]);
        assert_eq!(long[1..3], ["/".repeat(64), "/w==".to_owned()]);
    }
}
