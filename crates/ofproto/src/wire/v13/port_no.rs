//! Port numbers in 16 bits, and the 32-bit numbers that have a form in 16 bits.
//!
//! OpenFlow 1.0 and Nicira actions have numbers of 16 bits.

use shunt_flow::PortNo;

use crate::error::ErrorCode;

/// Returns the port of a 16-bit number: reserved ports start at 0xff00.
pub(in crate::wire) fn widen(number: u16) -> PortNo {
    let number = u32::from(number);
    PortNo::new(if number >= 0xff00 { number | 0xffff_0000 } else { number })
}

/// Returns the 16-bit number of a port; `None` if it has none.
pub(in crate::wire) fn narrow(port: PortNo) -> Option<u16> {
    let number = port.number();
    match number {
        0..0xff00 => u16::try_from(number).ok(),
        0xffff_ff00.. => u16::try_from(number & 0xffff).ok(),
        _ => None,
    }
}

/// Returns the port that selects rules by their outputs, from its 32-bit number.
///
/// Open vSwitch refuses the numbers that have no form in 16 bits.
pub(in crate::wire) fn read_out_port(number: u32) -> Result<PortNo, ErrorCode> {
    let port = PortNo::new(number);
    narrow(port).map(|_| port).ok_or(ErrorCode::ActionOutPort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_ports_round_trip() {
        for number in 0..=u16::MAX {
            assert_eq!(narrow(widen(number)), Some(number));
        }
        assert_eq!(narrow(PortNo::new(0x1_0000)), None);
    }
}
