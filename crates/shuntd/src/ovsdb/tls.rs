//! The row of the table `SSL`: key and certificates of TLS connections.

use std::path::PathBuf;

use shunt_ovsdb::{DatabaseSnapshot, RowView};
use shunt_tls::{TlsFiles, TlsIdentity};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

/// Sets the TLS files of a row; without a row, those of the configuration file.
///
/// The files are read on a blocking thread, because a disk may be slow.
pub(super) async fn apply_tls(tls: &TlsIdentity, row: Option<&TlsFiles>) {
    let before = tls.files();
    tls.replace(row.cloned());
    if tls.files() == before {
        return;
    }
    let Some(files) = row.cloned() else {
        info!("ovsdb: the row of SSL was removed, so the TLS files of the configuration count");
        return;
    };
    let certificate = files.certificate.clone();
    match spawn_blocking(move || files.check()).await {
        Ok(Ok(())) => info!(certificate = %certificate.display(), 
            "ovsdb: the TLS files of the row of SSL are in force"),
        Ok(Err(error)) => {
            // The files are read at each handshake, so the connections work once the files are
            // correct.
            warn!("ovsdb: SSL: {error}; connections with TLS fail until this is corrected");
        }
        // The daemon ends.
        Err(_) => {}
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

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, sync::mpsc::channel, task::Poll};

    use tokio::runtime::Builder;

    use super::*;

    /// The only blocking thread is busy, so the files are read later.
    #[test]
    fn tls_files_are_read_on_a_blocking_thread() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (end, is_over) = channel::<()>();
            let busy = spawn_blocking(move || is_over.recv());
            let tls = TlsIdentity::default();
            let files = TlsFiles {
                private_key: "/none/k".into(),
                certificate: "/none/c".into(),
                ca_certificate: Some("/none/a".into()),
                bootstraps: false,
            };
            let mut applying = pin!(apply_tls(&tls, Some(&files)));
            let first = poll_fn(|context| Poll::Ready(applying.as_mut().poll(context))).await;
            assert!(first.is_pending(), "the files were read by the caller");
            assert_eq!(tls.files(), Some(files.clone()), "the files are set at once");
            drop(end);
            assert!(busy.await.unwrap().is_err());
            applying.await;
        });
    }
}
