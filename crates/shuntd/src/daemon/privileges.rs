//! `--user`: the daemon changes to another user, and keeps the capabilities that ports need.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, lchown},
    path::Path,
};

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{self, Gid, Group, Uid, User};
use thiserror::Error;

/// The capabilities that ports need; the daemon drops all others.
///
/// `CAP_NET_RAW` is for packet sockets, and `CAP_NET_ADMIN` for TAP devices. AF_XDP needs
/// `CAP_BPF`, and `CAP_IPC_LOCK` for its memory.
const KEPT: [Capability; 4] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
    Capability::CAP_IPC_LOCK,
];

/// Mode of a run directory that `--user` creates;
/// the systemd unit uses the same mode.
const RUN_DIR_MODE: u32 = 0o750;

/// A user and a group by name, in the form of `--user`: `USER` or `USER:GROUP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The name of the user.
    user: String,
    /// The name of the group; `None` for the group of the user.
    group: Option<String>,
}

/// The error for a text that is not `USER` or `USER:GROUP`.
#[derive(Debug, Error)]
#[error("expected USER or USER:GROUP")]
pub(crate) struct AccountForm;

impl std::str::FromStr for Account {
    type Err = AccountForm;

    fn from_str(text: &str) -> Result<Self, AccountForm> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() || group.is_some_and(str::is_empty) {
            return Err(AccountForm);
        }
        Ok(Self { user: user.to_owned(), group: group.map(str::to_owned) })
    }
}

/// The reason why the daemon cannot run as another user.
#[derive(Debug, Error)]
pub(crate) enum AccountError {
    /// No user has this name.
    #[error("--user: there is no user {0}; create it, or name another one")]
    NoUser(String),
    /// No group has this name.
    #[error("--user: there is no group {0}; create it, or name another one")]
    NoGroup(String),
    /// The daemon was not started by root.
    #[error(
        "--user {0}: only root can become another user; start shuntd as root or without --user"
    )]
    NotRoot(String),
    /// The run directory belongs to another user.
    #[error(
        "--user {user}: {folder} belongs to another user; `chown -R {user} {folder}` gives it to {user}"
    )]
    RunDir {
        /// The user of `--user`.
        user: String,
        /// Path of the run directory.
        folder: String,
    },
    /// A system call for the user failed.
    #[error("--user: cannot {doing}: {reason}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// Error of the operating system.
        reason: String,
    },
}

/// Returns a function that adds the failed operation to an error.
fn failed<E: ToString>(doing: &'static str) -> impl Fn(E) -> AccountError {
    move |error| AccountError::System { doing, reason: error.to_string() }
}

/// Makes the process run as `account`, with only the capabilities that ports need.
///
/// The run directory is created for the account if it does not exist. The call must precede the
/// creation of threads, because capabilities belong to threads.
///
/// # Errors
///
/// If the account does not exist, the process is not run by root, or the run directory belongs to
/// another user.
pub(crate) fn become_account(account: &Account, run_dir: &Path) -> Result<(), AccountError> {
    let user = User::from_name(&account.user).map_err(failed("read the list of users"))?;
    let user = user.ok_or_else(|| AccountError::NoUser(account.user.clone()))?;
    let group = match &account.group {
        Some(name) => {
            let group = Group::from_name(name).map_err(failed("read the list of groups"))?;
            group.ok_or_else(|| AccountError::NoGroup(name.clone()))?.gid
        }
        None => user.gid,
    };
    if !unistd::geteuid().is_root() {
        let is_same = user.uid == unistd::geteuid() && group == unistd::getegid();
        return if is_same { Ok(()) } else { Err(AccountError::NotRoot(account.user.clone())) };
    }
    give_run_dir(run_dir, &account.user, user.uid, group)?;
    switch_user(user.uid, group)
}

/// Creates the run directory for a user, if it does not exist.
fn give_run_dir(folder: &Path, name: &str, user: Uid, group: Gid) -> Result<(), AccountError> {
    match fs::metadata(folder) {
        Ok(found) if found.uid() == user.as_raw() => Ok(()),
        Ok(_) => Err(AccountError::RunDir {
            user: name.to_owned(),
            folder: folder.display().to_string(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = folder.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
                fs::DirBuilder::new().mode(RUN_DIR_MODE).create(folder)?;
                // `lchown` does not follow a symbolic link at this path.
                lchown(folder, Some(user.as_raw()), Some(group.as_raw()))
            });
            made.map_err(failed("create the run directory"))
        }
        Err(error) => Err(failed("read the run directory")(error)),
    }
}

/// Changes the user, and drops all capabilities except those that ports need.
fn switch_user(user: Uid, group: Gid) -> Result<(), AccountError> {
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed("read capabilities"))?;
    let kept: CapsHashSet = KEPT.into_iter().filter(|held| permitted.contains(held)).collect();
    let dropping = failed("drop capabilities");
    let bounding = caps::read(None, CapSet::Bounding).map_err(failed("read capabilities"))?;
    for unused in bounding.difference(&kept) {
        caps::drop(None, CapSet::Bounding, *unused).map_err(&dropping)?;
    }
    // Without this flag, the change of the user would clear all capabilities.
    caps::securebits::set_keepcaps(true).map_err(failed("keep capabilities"))?;
    unistd::setgroups(&[group]).map_err(failed("leave the groups of root"))?;
    unistd::setresgid(group, group, group).map_err(failed("become the group"))?;
    unistd::setresuid(user, user, user).map_err(failed("become the user"))?;
    // The effective set must be a subset of the permitted set at any time.
    caps::clear(None, CapSet::Inheritable).map_err(failed("drop capabilities"))?;
    caps::set(None, CapSet::Effective, &kept).map_err(failed("drop capabilities"))?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed("drop capabilities"))?;
    caps::securebits::set_keepcaps(false).map_err(failed("keep capabilities"))?;
    match unistd::setuid(Uid::from_raw(0)) {
        Err(_) => Ok(()),
        Ok(()) => Err(failed("drop the rights of root")("the process can become root again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_user_with_optional_group() {
        let account = |user: &str, group: Option<&str>| Account {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        };
        assert_eq!("shunt".parse::<Account>().unwrap(), account("shunt", None));
        assert_eq!("shunt:kvm".parse::<Account>().unwrap(), account("shunt", Some("kvm")));
        for wrong in ["", ":kvm", "shunt:"] {
            let refused = wrong.parse::<Account>();
            assert_eq!(refused.unwrap_err().to_string(), "expected USER or USER:GROUP");
        }
    }

    #[test]
    fn an_account_that_does_not_exist_is_named() {
        let refuse = |text: &str| {
            let account = text.parse::<Account>().unwrap();
            become_account(&account, Path::new("/nonexistent")).unwrap_err().to_string()
        };
        let no_user = "--user: there is no user no-such-user; create it, or name another one";
        assert_eq!(refuse("no-such-user"), no_user);
        let no_group = "--user: there is no group no-such-group; create it, or name another one";
        assert_eq!(refuse("root:no-such-group"), no_group);
    }
}
