//! Workloads are the same bytes on every machine and with every later version: what they were is kept
//! here, as a number.

use std::fs;

use crate::{names, write};

/// Names, and the digest of all files that each of them makes.
const DIGESTS: [(&str, u64); 6] = [
    ("ofd:high:500:rules=200:packets=2k", 0xe203_fd7e_cc07_417b),
    ("psc:low:500:rules=200:packets=2k:seed=7:updates=p2@10ms:rate=10k", 0x923c_4926_6e2c_1ada),
    ("ant:low:300:rules=100:packets=1k:arrival=300@50%", 0x709a_f0d6_cd57_ee91),
    ("classbench-fw:high:500:rules=500:packets=2k", 0xe86f_e726_a02a_024c),
    (
        "classbench-of:low:500:rules=500:packets=2k:updates=burst@50ms:rate=10k",
        0xc4f0_ecfa_7daf_35ce,
    ),
    ("coflow:low:500:coflowiness=0.25:packets=2k", 0x70b5_08f2_3a1c_e334),
];

#[test]
fn workloads_are_what_they_have_always_been() {
    let mut digests = Vec::new();
    for (name, _) in DIGESTS {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("workload");
        write(name, &folder);
        let mut digest = Digest::default();
        for file in names(&folder) {
            digest.add(file.as_bytes());
            digest.add(&fs::read(folder.join(file)).unwrap());
        }
        digests.push((name, digest.0));
    }
    assert_eq!(digests, DIGESTS, "who has a name must get what it stood for");
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
