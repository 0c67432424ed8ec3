//! Tests that workloads have the same bytes on every machine and in every version, by their
//! digests.

use std::{ffi::OsStr, fs, path::Path};

use crate::{names, write};

/// Names, and the digest of rules, flows, updates and packets of each.
const DIGESTS: [(&str, u64); 6] = [
    ("ofd:high:500:rules=200:packets=2k", 0x43b5_84d1_afba_9336),
    ("psc:low:500:rules=200:packets=2k:seed=7:updates=p2@10ms:rate=10k", 0xd50e_22a3_865f_8cc8),
    ("ant:low:300:rules=100:packets=1k:arrival=300@50%", 0x3ccb_78f8_f4d1_c36a),
    ("classbench-fw:high:500:rules=500:packets=2k", 0x829e_6e68_32fa_54fa),
    (
        "classbench-of:low:500:rules=500:packets=2k:updates=burst@50ms:rate=10k",
        0xe5fd_b6a4_14c0_210d,
    ),
    ("coflow:low:500:coflowiness=0.25:packets=2k", 0x7db4_8306_caf9_3081),
];

#[test]
fn workload_digests_never_change() {
    let mut digests = Vec::new();
    for (name, _) in DIGESTS {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("workload");
        write(name, &folder);
        let mut digest = Digest::default();
        let is_data = |file: &String| {
            let ending = Path::new(file).extension().and_then(OsStr::to_str);
            ending.is_some_and(|ending| ["csv", "pcap", "txt"].contains(&ending))
        };
        for file in names(&folder).into_iter().filter(is_data) {
            digest.add(file.as_bytes());
            digest.add(&fs::read(folder.join(file)).unwrap());
        }
        digests.push((name, digest.0));
    }
    assert_eq!(digests, DIGESTS, "a name must keep its workload");
}

/// FNV-1a, 64 bits.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
