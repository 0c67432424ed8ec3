//! Ranges of ports as prefixes, which tuple space search and OpenFlow match.

use std::ops::RangeInclusive;

/// Returns the values and masks of the prefixes that cover a range of ports.
///
/// Each prefix is the largest one that begins at the first port not yet covered. So no cover of the
/// range has fewer prefixes. Ports have 16 bits.
#[must_use]
pub fn port_prefixes(ports: RangeInclusive<u32>) -> Vec<(u32, u32)> {
    let (mut next, high) = ports.into_inner();
    let mut prefixes = Vec::new();
    while next <= high {
        let mut free = next.trailing_zeros().min(16);
        while next + (1 << free) - 1 > high {
            free -= 1;
        }
        prefixes.push((next, 0xffff & !((1 << free) - 1)));
        next += 1 << free;
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_exactly_the_range() {
        for (ports, count) in [
            (0..=65535, 1),
            (1024..=65535, 6),
            (80..=80, 1),
            (1..=65534, 30),
            (7..=9, 2),
            (65535..=65535, 1),
        ] {
            let prefixes = port_prefixes(ports.clone());
            assert_eq!(prefixes.len(), count, "{ports:?}");
            for port in 0..=65535 {
                let covers = prefixes.iter().filter(|(value, mask)| port & mask == *value).count();
                assert_eq!(covers, usize::from(ports.contains(&port)), "{ports:?} {port}");
            }
        }
    }
}
