//! Tests updates on Open vSwitch: each batch separately, at its time.

use std::{fs, path::Path, process::Command};

use crate::{answer, errors, print_skipped, write};

/// The script that applies the updates of a workload to a private Open vSwitch.
///
/// The script starts Open vSwitch in folder `$1` with a bridge `br0` and the rules of folder `$2`.
/// The script prints the final number of rules and the number of bundles.
const PLAY: &str = r#"
set -e
export OVS_RUNDIR=$1 OVS_LOGDIR=$1 OVS_DBDIR=$1 OVS_SYSCONFDIR=$1
trap 'kill $(cat $1/*.pid)' EXIT
ovsdb-tool create $1/conf.db /usr/share/openvswitch/vswitch.ovsschema
quiet='--detach --no-chdir -vconsole:off -vsyslog:off --log-file'
ovsdb-server $quiet --pidfile --remote=punix:$1/db.sock $1/conf.db > /dev/null 2>&1
ovs-vsctl --no-wait init
/usr/lib/openvswitch-switch/ovs-vswitchd $quiet --pidfile --disable-system \
    --enable-dummy=override > /dev/null 2>&1
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
    protocols=OpenFlow13
ovs-ofctl -O OpenFlow13 add-flows br0 $2/rules.txt
mkdir $1/bin
printf '#!/bin/sh\necho >> %s/bundles\nexec %s "$@"\n' $1 $(command -v ovs-ofctl) > $1/bin/ovs-ofctl
chmod +x $1/bin/ovs-ofctl
PATH=$1/bin:$PATH sh $2/play-updates.sh br0
ovs-ofctl -O OpenFlow13 dump-aggregate br0 | sed 's/.*flow_count=//'
wc -l < $1/bundles
"#;

#[test]
fn another_switch_plays_batches_one_by_one() {
    if !Path::new("/usr/lib/openvswitch-switch/ovs-vswitchd").exists() {
        return print_skipped("Open vSwitch is not installed: apt-get install openvswitch-switch");
    }
    let folder = tempfile::tempdir().unwrap();
    let [switch, workload] = ["switch", "workload"].map(|name| folder.path().join(name));
    fs::create_dir(&switch).unwrap();
    write(
        "classbench-acl:low:500:rules=400:packets=600:rate=10k:gaps=constant:updates=p2@19ms",
        &workload,
    );
    let script = ["-c", PLAY, "sh", switch.to_str().unwrap(), workload.to_str().unwrap()];
    let output = Command::new("sh").args(script).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let message = String::from_utf8(output.stdout).unwrap();
    let message: Vec<usize> = message.lines().map(|line| line.trim().parse().unwrap()).collect();
    let rules = fs::read_to_string(workload.join("rules.txt")).unwrap().lines().count() - 1;
    let updates = fs::read_to_string(workload.join("updates.txt")).unwrap();
    let batches = updates.lines().filter(|line| line.starts_with("# batch")).count();
    let added = updates.lines().filter(|line| line.starts_with("add ")).count() / 2;
    // The batches are: added, deleted, added again.
    assert_eq!(batches, 3);
    assert_eq!(message, [rules + added, 3]);
}

#[test]
fn one_batch_can_be_printed_alone() {
    let name =
        "classbench-acl:low:500:rules=400:packets=600:rate=10k:gaps=constant:updates=p2@19ms";
    let second = answer(&["updates", name, "--batch", "2"]);
    assert!(second.starts_with("# batch 2 at 0.038000000 s: "), "{second}");
    assert!(second.lines().skip(1).all(|line| line.starts_with("delete_strict ")), "{second}");
    let none = crate::pipebench(&["updates", name, "--batch", "4"]);
    assert!(errors(&none).contains("1 to 3"), "{}", errors(&none));
}
