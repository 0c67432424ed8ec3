//! Texts for failed handshakes, with the way to correct the cause.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// The reason if a certificate was signed by another authority.
const UNKNOWN_ISSUER: &str = "\
the certificate of the peer does not come from the CA in ca_certificate: sign it by that CA, or name the \
CA of the peer";

/// The reason if a peer presents the certificate of an authority as its own.
const CA_AS_PEER: &str = "the certificate of the peer is that of a CA, which cannot identify a \
                          peer: make one without CA:TRUE, as `ovs-pki req+sign` does";

/// The correction of a certificate without extensions, as of `openssl x509 -req`.
pub(crate) const VERSION_1: &str = "\
it has version 1 of X.509, and version 3 is needed: sign it as `ovs-pki req+sign` does, or give \
`openssl x509 -req` an -extfile";

/// Replaces the text of a failed handshake by a text with a correction.
///
/// Errors of the network, and errors with clear texts, are returned unchanged.
pub(crate) fn with_remedy(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match cause.and_then(remedy) {
        Some(text) => io::Error::new(error.kind(), text),
        None => error,
    }
}

/// Returns what to do about a failed handshake.
fn remedy(error: &Error) -> Option<String> {
    match error {
        Error::InvalidCertificate(problem) => Some(of_certificate(problem)),
        Error::NoCertificatesPresented => Some(
            "the peer sends no certificate: give it one that the CA in ca_certificate has signed"
                .to_owned(),
        ),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Some("the peer does not speak TLS: use TLS there, or an address without it".to_owned())
        }
        _ => None,
    }
}

/// Returns the reason why the certificate of the peer is not accepted.
fn of_certificate(problem: &CertificateError) -> String {
    match problem {
        // The signature is wrong if the CA was made again with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            UNKNOWN_ISSUER.to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            let remedy = "renew it, and compare the clocks";
            format!("the certificate of the peer has expired: {remedy} ({problem})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of the peer is not valid yet: compare the clocks ({problem})")
        }
        // The type `CertificateError` has no variant for this error.
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => {
            CA_AS_PEER.to_owned()
        }
        problem if is_of_version_1(problem) => {
            format!("the certificate of the peer is not accepted: {VERSION_1}")
        }
        problem => format!("the certificate of the peer is not accepted: {problem}"),
    }
}

/// Returns whether a certificate has a version before 3.
pub(crate) fn is_of_version_1(problem: &CertificateError) -> bool {
    // The type `CertificateError` has no variant for this error.
    matches!(problem, CertificateError::Other(other) if other.to_string() == "UnsupportedCertVersion")
}

/// Returns the reason why the peer does not accept this side, if it is known.
fn of_alert(alert: AlertDescription) -> Option<String> {
    let reason = match alert {
        AlertDescription::UnknownCA => {
            "the peer does not trust the certificate of the switch: give the peer the CA that signed it"
        }
        AlertDescription::CertificateRequired => {
            "the peer asks for a certificate, and the switch has none: set certificate and \
             private_key"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => {
            "the peer does not accept the certificate of the switch: read the reason in the log \
             of the peer"
        }
        AlertDescription::CertificateExpired => {
            "the certificate of the switch has expired by the clock of the peer: renew it, and \
             compare the clocks"
        }
        AlertDescription::ProtocolVersion => {
            "the peer speaks neither TLS 1.2 nor TLS 1.3: update it, or permit one of them there"
        }
        _ => return None,
    };
    Some(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(error: Error) -> String {
        with_remedy(io::Error::new(io::ErrorKind::InvalidData, error)).to_string()
    }

    #[test]
    fn a_refused_certificate_has_its_remedy() {
        let text = message_of(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(text.contains("sign it by that CA"), "{text}");
        let text = message_of(Error::InvalidCertificate(CertificateError::Expired));
        assert!(text.contains("has expired: renew it"), "{text}");
        let text = message_of(Error::InvalidCertificate(CertificateError::BadSignature));
        assert!(text.contains("sign it by that CA"), "{text}");
        let text = message_of(Error::InvalidCertificate(CertificateError::Revoked));
        assert!(text.ends_with("not accepted: Revoked"), "{text}");
        let text = message_of(Error::AlertReceived(AlertDescription::UnknownCA));
        assert!(text.contains("give the peer the CA"), "{text}");
    }

    #[test]
    fn other_tls_failures_keep_their_text() {
        let text = message_of(Error::PeerSentOversizedRecord);
        assert_eq!(text, Error::PeerSentOversizedRecord.to_string());
        let reset = with_remedy(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }
}
