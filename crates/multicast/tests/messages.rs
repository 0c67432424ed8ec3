//! Messages of every kind, and frames that are refused.
#![cfg(feature = "testing")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shunt_multicast::{
    Membership, MembershipError, MembershipMessage, MembershipRecord,
    testing::{igmp_frame, mld_frame},
};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const HOST6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 1);

fn igmp(kind: u8, group: Ipv4Addr) -> Vec<u8> {
    igmp_frame(HOST, GROUP, &[&[kind, 0, 0, 0], &group.octets()[..]].concat())
}

fn mld(kind: u8, group: Ipv6Addr) -> Vec<u8> {
    mld_frame(HOST6, GROUP6, &[&[kind, 0, 0, 0, 0, 0, 0, 0], &group.octets()[..]].concat())
}

/// Returns an IGMPv3 or MLDv2 report with the given records.
///
/// Each record has a type, a number of sources, and a group.
fn report(records: &[(u8, u8, IpAddr)]) -> Vec<u8> {
    let is_mld = records.iter().any(|(_, _, group)| group.is_ipv6());
    let kind = if is_mld { 143 } else { 0x22 };
    let count = u8::try_from(records.len()).unwrap_or(u8::MAX);
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, count];
    for (kind, sources, group) in records {
        message.extend([*kind, 1, 0, *sources]);
        let group = match group {
            IpAddr::V4(group) => group.octets().to_vec(),
            IpAddr::V6(group) => group.octets().to_vec(),
        };
        message.extend(&group);
        message.extend(group.repeat(usize::from(*sources)));
        message.extend([0xee; 4]);
    }
    match is_mld {
        true => mld_frame(HOST6, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16), &message),
        false => igmp_frame(HOST, Ipv4Addr::new(224, 0, 0, 22), &message),
    }
}

fn single_report(group: impl Into<IpAddr>, membership: Membership) -> MembershipMessage {
    MembershipMessage::Report(vec![MembershipRecord { group: group.into(), membership }])
}

#[test]
fn each_kind_of_message_has_its_meaning() {
    use Membership::{Join, Leave};
    let parse = |frame: Vec<u8>| MembershipMessage::parse(&frame);
    assert_eq!(parse(igmp(0x11, Ipv4Addr::UNSPECIFIED)), Ok(MembershipMessage::Query));
    assert_eq!(parse(igmp(0x11, GROUP)), Ok(MembershipMessage::Query));
    assert_eq!(parse(igmp(0x12, GROUP)), Ok(single_report(GROUP, Join)));
    assert_eq!(parse(igmp(0x16, GROUP)), Ok(single_report(GROUP, Join)));
    assert_eq!(parse(igmp(0x17, GROUP)), Ok(single_report(GROUP, Leave)));
    assert_eq!(parse(mld(130, Ipv6Addr::UNSPECIFIED)), Ok(MembershipMessage::Query));
    assert_eq!(parse(mld(131, GROUP6)), Ok(single_report(GROUP6, Join)));
    assert_eq!(parse(mld(132, GROUP6)), Ok(single_report(GROUP6, Leave)));
}

/// A record that includes no source leaves its group.
///
/// A record of an unknown type is ignored, and the following records are used.
#[test]
fn records_of_reports_join_and_leave() {
    for group in [IpAddr::V4(GROUP), IpAddr::V6(GROUP6)] {
        let read = |records: &[(u8, u8)]| {
            let records: Vec<_> =
                records.iter().map(|(kind, count)| (*kind, *count, group)).collect();
            let Ok(MembershipMessage::Report(read)) = MembershipMessage::parse(&report(&records))
            else {
                panic!("a report");
            };
            read.iter().map(|record| record.membership).collect::<Vec<_>>()
        };
        use Membership::{Join, Leave};
        assert_eq!(read(&[(1, 0), (2, 0), (3, 0), (4, 0)]), [Leave, Join, Leave, Join]);
        assert_eq!(read(&[(1, 2), (2, 1), (3, 1), (4, 3)]), [Join; 4]);
        assert_eq!(read(&[(5, 1), (6, 1), (0, 0), (7, 2), (4, 0)]), [Join; 3]);
        assert_eq!(read(&[]), []);
    }
}

#[test]
fn records_of_unicast_addresses_are_left_out() {
    let own = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let records = [(4, 0, own(1)), (4, 0, GROUP.into()), (4, 0, own(2))];
    assert_eq!(
        MembershipMessage::parse(&report(&records)),
        Ok(single_report(GROUP, Membership::Join))
    );
    let nothing = Ok(MembershipMessage::Report(Vec::new()));
    assert_eq!(MembershipMessage::parse(&igmp(0x16, HOST)), nothing);
    assert_eq!(MembershipMessage::parse(&mld(131, HOST6)), nothing);
}

#[test]
fn a_frame_with_tags_and_padding_is_read() {
    for frame in [igmp(0x16, GROUP), mld(131, GROUP6)] {
        let plain = MembershipMessage::parse(&frame);
        assert!(plain.is_ok());
        let (addresses, rest) = frame.split_at(12);
        let tags = [0x88, 0xa8, 0x20, 5, 0x81, 0, 0, 7];
        let tagged = [addresses, &tags, rest, &[0; 9]].concat();
        assert_eq!(MembershipMessage::parse(&tagged), plain);
    }
}

#[test]
fn a_frame_shorter_than_its_headers_is_refused() {
    for frame in [igmp(0x16, GROUP), mld(131, GROUP6), report(&[(4, 0, GROUP6.into())])] {
        for length in 0..frame.len() {
            let cut = MembershipMessage::parse(&frame[..length]);
            assert_eq!(cut, Err(MembershipError::Short { length }));
        }
    }
}

#[test]
fn broken_frames_are_refused_with_their_reason() {
    let parse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = igmp(0x16, GROUP);
        change(&mut frame);
        MembershipMessage::parse(&frame).unwrap_err()
    };
    assert_eq!(parse(&|frame| frame[13] = 6), MembershipError::NotIp);
    assert_eq!(parse(&|frame| frame[14] = 0x56), MembershipError::NotIp);
    assert_eq!(parse(&|frame| frame[14] = 0x44), MembershipError::Short { length: 46 });
    assert_eq!(parse(&|frame| frame[14] = 0x4f), MembershipError::Short { length: 46 });
    assert_eq!(parse(&|frame| frame[20] = 0x20), MembershipError::Fragment);
    assert_eq!(parse(&|frame| frame[21] = 1), MembershipError::Fragment);
    assert_eq!(parse(&|frame| frame[23] = 17), MembershipError::Protocol(17));
    assert_eq!(parse(&|frame| frame[41] ^= 1), MembershipError::Checksum);
    let other = MembershipMessage::parse(&igmp(0x13, GROUP));
    assert_eq!(other, Err(MembershipError::MessageType(0x13)));
    let message = [[0x11, 0, 0, 0], [0; 4]].concat();
    let silent = igmp_frame(Ipv4Addr::UNSPECIFIED, GROUP, &message);
    let silent = MembershipMessage::parse(&silent);
    assert_eq!(silent, Err(MembershipError::QueryWithoutSource));
}

#[test]
fn broken_mld_frames_are_refused_with_reason() {
    let parse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = mld(131, GROUP6);
        change(&mut frame);
        MembershipMessage::parse(&frame).unwrap_err()
    };
    assert_eq!(parse(&|frame| frame[14] = 0x40), MembershipError::NotIp);
    assert_eq!(parse(&|frame| frame[20] = 6), MembershipError::Protocol(6));
    assert_eq!(parse(&|frame| frame[54] = 44), MembershipError::Fragment);
    assert_eq!(parse(&|frame| frame[65] ^= 1), MembershipError::Checksum);
    assert_eq!(parse(&|frame| frame[30] ^= 1), MembershipError::Checksum, "of the pseudo-header");
    let solicitation = MembershipMessage::parse(&mld(135, GROUP6));
    assert_eq!(solicitation, Err(MembershipError::MessageType(135)));
    let message = [130, 0, 0, 0].into_iter().chain([0; 20]).collect::<Vec<_>>();
    let silent = mld_frame(Ipv6Addr::UNSPECIFIED, GROUP6, &message);
    let silent = MembershipMessage::parse(&silent);
    assert_eq!(silent, Err(MembershipError::QueryWithoutSource));
}

/// The headers before the message may include routing and destination options.
#[test]
fn extension_headers_are_skipped() {
    let frame = mld(131, GROUP6);
    let plain = MembershipMessage::parse(&frame);
    let mut other = frame;
    // Destination options of 16 octets follow the hop-by-hop header.
    other[54] = 60;
    let options = [58, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    other.splice(62..62, options);
    other[19] += 16;
    assert_eq!(MembershipMessage::parse(&other), plain);
}
