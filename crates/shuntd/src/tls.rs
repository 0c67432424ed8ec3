//! The section `[tls]` of the configuration file.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use shunt_ovsdb::client::OvsdbRemote;
use shunt_switch::{
    ConfigStep, ControllerEndpoint, ControllerTransport, EndpointError, config::BridgeOptions,
};
use shunt_tls::{TlsFiles, TlsIdentity};

/// The files with the key and the certificates of OpenFlow connections over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsOptions {
    /// File with the private key of the switch.
    pub(crate) private_key: PathBuf,
    /// File with the certificate of the switch.
    pub(crate) certificate: PathBuf,
    /// File with certificates of the authorities that sign controllers' certificates.
    pub(crate) ca_certificate: PathBuf,
}

/// The reason why a configuration is wrong, and the path of the wrong key.
pub(crate) type WrongKey = (String, Vec<ConfigStep>);

impl TlsOptions {
    /// Returns the TLS files; `None` if no key is set.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        let Self { private_key, certificate, ca_certificate } = self.clone();
        (!is_empty(&private_key)).then_some(TlsFiles {
            private_key,
            certificate,
            ca_certificate: Some(ca_certificate),
            bootstraps: false,
        })
    }

    /// Checks that all keys are set; or that no key is set and no address needs TLS.
    ///
    /// The files are read at each handshake, not by this check.
    ///
    /// # Errors
    ///
    /// The missing key, or the address that needs the section.
    pub(crate) fn check(&self, bridges: &[BridgeOptions]) -> Result<(), WrongKey> {
        let keys = [
            ("private_key", is_empty(&self.private_key)),
            ("certificate", is_empty(&self.certificate)),
            ("ca_certificate", is_empty(&self.ca_certificate)),
        ];
        let missing = keys.iter().find(|(_, is_missing)| *is_missing);
        match missing {
            None => Ok(()),
            Some((key, _)) if keys.iter().any(|(_, is_missing)| !is_missing) => {
                let message = format!(
                    "TLS needs `{key}` too: set private_key, certificate and ca_certificate of [tls]"
                );
                Err((message, vec![ConfigStep::Field("tls")]))
            }
            Some(_) => bridges
                .iter()
                .enumerate()
                .try_for_each(|(index, bridge)| check_bridge(index, bridge)),
        }
    }

    /// Checks that the keys are set if the connection to a database needs TLS.
    ///
    /// # Errors
    ///
    /// The address that needs the section.
    pub(crate) fn check_database(&self, remote: Option<&OvsdbRemote>) -> Result<(), String> {
        match remote {
            Some(remote @ OvsdbRemote::Tls(_)) if self.files().is_none() => Err(format!(
                "`{remote}` needs TLS: set private_key, certificate and ca_certificate of [tls]"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the keys of `new` with other values than in `self`, one text each.
    pub(crate) fn changes_to(&self, new: &Self) -> Vec<String> {
        let keys = [
            ("private_key", &self.private_key, &new.private_key),
            ("certificate", &self.certificate, &new.certificate),
            ("ca_certificate", &self.ca_certificate, &new.ca_certificate),
        ];
        let differing = keys.into_iter().filter(|(_, old, new)| old != new);
        differing
            .map(|(key, _, path)| {
                if is_empty(path) {
                    format!("tls.{key}: removed")
                } else {
                    format!("tls.{key}={}", path.display())
                }
            })
            .collect()
    }
}

/// Reads the files; returns the reason why they cannot be used.
///
/// The files are read again at each handshake, so the reason is a warning.
pub(crate) fn problem(files: &TlsFiles) -> Option<String> {
    let error = files.check().err()?;
    Some(format!("tls: {error}; connections with TLS fail until this is corrected"))
}

/// Returns the remark about changed keys while a database has other files.
pub(crate) fn not_used(changes: &[String]) -> String {
    format!(
        "{}: not in force for controllers and managers, because the row of `SSL` in the database has \
         precedence: remove the row with `ovs-vsctl del-ssl` to use the files of [tls]",
        changes.join(", ")
    )
}

/// Refuses TLS addresses of a bridge of a command, if the switch has no TLS files.
///
/// # Errors
///
/// The address that needs the files, and how to set these.
pub(crate) fn check_command(tls: &TlsIdentity, bridge: &BridgeOptions) -> Result<(), String> {
    if tls.files().is_some() {
        return Ok(());
    }
    check_bridge(0, bridge).map_err(|(message, _)| {
        let name = &bridge.name;
        format!(
            "bridge {name}: {message} and load the configuration file with `shuntctl reload`, or \
             with a database use `ovs-vsctl set-ssl`"
        )
    })
}

/// Refuses TLS addresses of restored bridges, if the switch has no TLS files.
///
/// # Errors
///
/// As [`check_command`], for the first such bridge.
pub(crate) fn check_restored(tls: &TlsIdentity, bridges: &[BridgeOptions]) -> Result<(), String> {
    bridges.iter().try_for_each(|bridge| check_command(tls, bridge))
}

/// Returns a warning for each TLS address of bridges, if there are no TLS files.
///
/// A start with a state file, or a reload without `[tls]`, does not fail because of such an
/// address: the bridge forwards without this controller.
pub(crate) fn address_warnings(tls: &TlsIdentity, bridges: &[BridgeOptions]) -> Vec<String> {
    if tls.files().is_some() {
        return Vec::new();
    }
    let of_bridge = |bridge: &BridgeOptions| {
        let lists = [&bridge.controllers, &bridge.listen];
        let addresses = lists.into_iter().flatten().filter(|text| needs_tls(text));
        let name = &bridge.name;
        let warning = |text: &String| {
            format!(
                "bridge {name}: `{text}` needs TLS: add the section [tls] with private_key, \
                 certificate and ca_certificate to the configuration file, and load the file with \
                 `shuntctl reload`"
            )
        };
        addresses.map(warning).collect::<Vec<_>>()
    };
    bridges.iter().flat_map(of_bridge).collect()
}

/// Returns whether a text is an address of OpenFlow over TLS.
fn needs_tls(text: &str) -> bool {
    let endpoint: Result<ControllerEndpoint, EndpointError> = text.parse();
    matches!(
        endpoint,
        Ok(ControllerEndpoint::Connect(ControllerTransport::Tls, _)
            | ControllerEndpoint::Listen(ControllerTransport::Tls, _))
    )
}

/// Refuses TLS addresses of the bridge with an index.
fn check_bridge(index: usize, bridge: &BridgeOptions) -> Result<(), WrongKey> {
    check_addresses(index, "controllers", &bridge.controllers)?;
    check_addresses(index, "listen", &bridge.listen)
}

/// Refuses TLS addresses in a list of a bridge.
fn check_addresses(bridge: usize, list: &'static str, texts: &[String]) -> Result<(), WrongKey> {
    for (index, text) in texts.iter().enumerate() {
        if needs_tls(text) {
            let message = format!(
                "`{text}` needs TLS: set private_key, certificate and ca_certificate of [tls]"
            );
            let steps = [ConfigStep::Field("bridge"), ConfigStep::Index(bridge)];
            let value = [ConfigStep::Field(list), ConfigStep::Index(index)];
            return Err((message, [steps, value].concat()));
        }
    }
    Ok(())
}

/// Returns whether no path is given.
fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the options of TLS.
    fn options(text: &str) -> TlsOptions {
        toml::from_str(text).unwrap()
    }

    /// All options of TLS.
    const COMPLETE: &str = "private_key = 'k'\ncertificate = 'c'\nca_certificate = 'a'\n";

    #[test]
    fn all_keys_are_set_or_none() {
        assert!(options("").check(&[]).is_ok());
        assert_eq!(options("").files(), None);
        assert!(options(COMPLETE).check(&[]).is_ok());
        let files = options(COMPLETE).files().unwrap();
        assert_eq!(files.ca_certificate.as_deref(), Some(Path::new("a")));
        let (message, steps) =
            options("private_key = 'k'\ncertificate = 'c'").check(&[]).unwrap_err();
        assert!(message.contains("`ca_certificate`"), "{message}");
        assert_eq!(steps, [ConfigStep::Field("tls")]);
    }

    /// A command has the rule of the file, until a database sets the files.
    #[test]
    fn a_command_with_tls_needs_the_files() {
        let (tls, address) = (TlsIdentity::default(), vec!["pssl:6653".to_owned()]);
        let bridge =
            BridgeOptions { name: "br0".to_owned(), listen: address, ..BridgeOptions::default() };
        let message = check_command(&tls, &bridge).unwrap_err();
        assert!(message.starts_with("bridge br0: `pssl:6653` needs TLS: set "), "{message}");
        assert!(message.contains("ovs-vsctl set-ssl"), "{message}");
        tls.set(options(COMPLETE).files());
        assert_eq!(check_command(&tls, &bridge), Ok(()));
    }

    #[test]
    fn resumed_addresses_with_tls_are_named() {
        let tls = TlsIdentity::default();
        let bridges = [("br0", "tcp:192.0.2.1", "ptcp:1"), ("br1", "ssl:192.0.2.2", "pssl:6653")];
        let bridges = bridges.map(|(name, controller, listener)| BridgeOptions {
            name: name.to_owned(),
            controllers: vec![controller.to_owned()],
            listen: vec![listener.to_owned()],
            ..BridgeOptions::default()
        });
        let warnings = address_warnings(&tls, &bridges);
        let starts = ["ssl:192.0.2.2", "pssl:6653"]
            .map(|text| format!("bridge br1: `{text}` needs TLS: add the section [tls] with "));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(starts.iter().zip(&warnings).all(|(start, text)| text.starts_with(start)));
        // A database cannot be used with the state file that was resumed.
        assert!(warnings.iter().all(|text| text.ends_with("with `shuntctl reload`")));
        tls.set(options(COMPLETE).files());
        assert!(address_warnings(&tls, &bridges).is_empty());
    }

    #[test]
    fn an_address_with_tls_needs_the_section() {
        let bridge = BridgeOptions {
            controllers: vec!["tcp:192.0.2.1".to_owned(), "ssl:192.0.2.2".to_owned()],
            ..BridgeOptions::default()
        };
        let (message, steps) = options("").check(std::slice::from_ref(&bridge)).unwrap_err();
        assert!(message.starts_with("`ssl:192.0.2.2` needs TLS"), "{message}");
        let place = [
            ConfigStep::Field("bridge"),
            ConfigStep::Index(0),
            ConfigStep::Field("controllers"),
            ConfigStep::Index(1),
        ];
        assert_eq!(steps, place);
        assert!(options(COMPLETE).check(&[bridge]).is_ok());
    }

    #[test]
    fn a_database_with_tls_needs_the_section() {
        let remote = |text: &str| text.parse::<OvsdbRemote>().unwrap();
        let refused = options("").check_database(Some(&remote("ssl:192.0.2.1"))).unwrap_err();
        assert!(
            refused.starts_with("`ssl:192.0.2.1:6640` needs TLS: set private_key"),
            "{refused}"
        );
        assert!(options(COMPLETE).check_database(Some(&remote("ssl:192.0.2.1"))).is_ok());
        assert!(options("").check_database(Some(&remote("tcp:192.0.2.1"))).is_ok());
        assert!(options("").check_database(None).is_ok());
    }

    #[test]
    fn keys_behind_a_row_are_not_in_force() {
        let remark = not_used(&options(COMPLETE).changes_to(&options("private_key = 'l'")));
        let expected = "tls.private_key=l, tls.certificate: removed, tls.ca_certificate: removed: \
                        not in force for controllers and managers, because the row of `SSL` ";
        assert!(remark.starts_with(expected), "{remark}");
    }

    #[test]
    fn a_changed_key_is_named() {
        let changed = options(&COMPLETE.replace("'c'", "'d'"));
        assert_eq!(options(COMPLETE).changes_to(&changed), ["tls.certificate=d"]);
        let removed = ["private_key", "certificate", "ca_certificate"]
            .map(|key| format!("tls.{key}: removed"));
        assert_eq!(options(COMPLETE).changes_to(&options("")), removed);
    }
}
