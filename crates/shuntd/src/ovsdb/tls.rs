//! The row of the table `SSL`: key and certificates of TLS connections.

use std::path::PathBuf;

use shunt_ovsdb::{DatabaseSnapshot, RowView};
use shunt_switch::Switch;
use shunt_tls::TlsFiles;
use tracing::{info, warn};

/// Sets the TLS files of a row; without a row, those of the configuration file.
pub(super) fn apply_tls(switch: &Switch, row: Option<&TlsFiles>) {
    let tls = switch.tls();
    let before = tls.files();
    tls.replace(row.cloned());
    if tls.files() == before {
        return;
    }
    match (row, tls.check()) {
        (None, _) => info!("ovsdb: SSL removed"),
        (Some(files), Ok(())) => {
            info!(certificate = %files.certificate.display(), "ovsdb: SSL set");
        }
        (Some(_), Err(error)) => {
            // The files are read at each handshake, so the connections work once the files are
            // correct.
            warn!("ovsdb: SSL: {error}; connections with TLS fail until this is corrected");
        }
    }
}

/// Returns the TLS files of the `SSL` row that a row of `Open_vSwitch` references.
pub(super) fn files(snapshot: &DatabaseSnapshot, root: RowView<'_>) -> Option<TlsFiles> {
    let row = root.uuids("ssl").find_map(|uuid| snapshot.row("SSL", uuid))?;
    let path = |column| PathBuf::from(row.string(column).unwrap_or_default());
    Some(TlsFiles {
        private_key: path("private_key"),
        certificate: path("certificate"),
        ca_certificate: Some(path("ca_cert")),
        bootstraps: row.boolean("bootstrap_ca_cert") == Some(true),
    })
}
