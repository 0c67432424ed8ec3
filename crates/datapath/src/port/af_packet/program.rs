//! Programs of classic BPF that choose the socket of each received frame.
//!
//! The members of a fan-out group have numbers in the order in which they joined. A [`spread`] program
//! returns the number of a member for each frame. The program spreads flows over a range of
//! members: the sockets of a port, or its rings. All packets of a flow, in both directions, go to
//! the same position in the range.
//!
//! The hash of a frame is computed from both IP addresses, and from both ports of TCP, UDP and SCTP. All
//! fragments of a packet have one hash, without ports. Other frames are spread by their MAC addresses.
//! The kernel's own mode `PACKET_FANOUT_HASH` always includes all members of a group, so it cannot choose
//! between sockets and rings.
//!
//! Source: Linux `Documentation/networking/filter.rst`, packet(7).

use libc::sock_filter;

/// A socket filter that drops every frame.
pub(super) const ACCEPT_NONE: [sock_filter; 1] = [instruction(libc::BPF_RET | libc::BPF_K, 0)];

/// Returns a program that spreads flows over `count` members of a group.
///
/// The numbers of these members begin with `first`.
pub(super) fn spread(first: u16, count: u16) -> Vec<sock_filter> {
    if count <= 1 {
        return vec![instruction(libc::BPF_RET | libc::BPF_K, first.into())];
    }
    let mut steps = vec![
        load(libc::BPF_H | libc::BPF_ABS, offset(libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL)),
        ProgramStep::Test(libc::BPF_JEQ, ETHERTYPE_IPV4, Label::Next, Label::NoIpv4),
    ];
    steps.extend(ipv4());
    steps.push(ProgramStep::At(Label::NoIpv4));
    steps.push(ProgramStep::Test(libc::BPF_JEQ, ETHERTYPE_IPV6, Label::Next, Label::NoIp));
    steps.extend(ipv6());
    steps.push(ProgramStep::At(Label::NoIp));
    // The hash of other frames covers the last four bytes of both MAC addresses.
    steps.extend(xor_of_words([offset(libc::SKF_LL_OFF + 2), offset(libc::SKF_LL_OFF + 8)]));
    steps.push(ProgramStep::Do(libc::BPF_ST, ADDRESSES));
    steps.push(ProgramStep::At(Label::NoPorts));
    steps.push(ProgramStep::Do(libc::BPF_LD | libc::BPF_IMM, 0));
    steps.push(ProgramStep::At(Label::Mix));
    steps.extend([
        ProgramStep::Do(libc::BPF_MISC | libc::BPF_TAX, 0),
        ProgramStep::Do(libc::BPF_LD | libc::BPF_MEM, ADDRESSES),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, FACTOR),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, FACTOR),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.into()),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, first.into()),
        ProgramStep::Do(libc::BPF_RET | libc::BPF_A, 0),
    ]);
    assemble(&steps)
}

const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// Protocols with two ports in their first four bytes: TCP, UDP, SCTP.
const WITH_PORTS: [u32; 3] = [6, 17, 132];
/// Bits of the IPv4 header that only fragments have: more fragments, offset.
const FRAGMENT: u32 = 0x3fff;
/// Word of the scratch memory with the XOR of the addresses.
const ADDRESSES: u32 = 0;
/// Word of the scratch memory with the source port.
const PORT: u32 = 1;
/// 2^32 divided by the golden ratio, made odd: spreads neighbouring numbers.
const FACTOR: u32 = 0x9e37_79b1;

/// Stores the hash of the IPv4 addresses, and jumps with the hash of the ports.
///
/// Offsets begin at the network header.
fn ipv4() -> Vec<ProgramStep> {
    let mut steps = vec![
        ProgramStep::Do(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        ProgramStep::Test(libc::BPF_JGE, 20, Label::Next, Label::NoIp),
    ];
    steps.extend(xor_of_words([12, 16]));
    steps.extend([
        ProgramStep::Do(libc::BPF_ST, ADDRESSES),
        load(libc::BPF_H | libc::BPF_ABS, 6),
        ProgramStep::Test(libc::BPF_JSET, FRAGMENT, Label::NoPorts, Label::Next),
        load(libc::BPF_B | libc::BPF_ABS, 9),
    ]);
    steps.extend(only_with_ports(Label::Ipv4Ports));
    steps.extend([
        ProgramStep::At(Label::Ipv4Ports),
        // Loads the length of the IPv4 header.
        ProgramStep::Do(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0),
        ProgramStep::Do(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        ProgramStep::Test(libc::BPF_JGE | libc::BPF_X, 0, Label::Next, Label::NoPorts),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X, 0),
        ProgramStep::Test(libc::BPF_JGE, 4, Label::Next, Label::NoPorts),
        load(libc::BPF_H | libc::BPF_IND, 0),
        ProgramStep::Do(libc::BPF_ST, PORT),
        load(libc::BPF_H | libc::BPF_IND, 2),
        ProgramStep::Do(libc::BPF_LDX | libc::BPF_MEM, PORT),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        ProgramStep::Jump(Label::Mix),
    ]);
    steps
}

/// Stores the hash of the IPv6 addresses, and jumps with the hash of the ports.
///
/// The hash of packets with extension headers covers addresses alone.
fn ipv6() -> Vec<ProgramStep> {
    let mut steps = vec![
        ProgramStep::Do(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        ProgramStep::Test(libc::BPF_JGE, 40, Label::Next, Label::NoIp),
    ];
    steps.extend(xor_of_words([8, 12, 16, 20, 24, 28, 32, 36]));
    steps.extend([ProgramStep::Do(libc::BPF_ST, ADDRESSES), load(libc::BPF_B | libc::BPF_ABS, 6)]);
    steps.extend(only_with_ports(Label::Ipv6Ports));
    steps.extend([
        ProgramStep::At(Label::Ipv6Ports),
        ProgramStep::Do(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        ProgramStep::Test(libc::BPF_JGE, 44, Label::Next, Label::NoPorts),
        load(libc::BPF_H | libc::BPF_ABS, 40),
        ProgramStep::Do(libc::BPF_MISC | libc::BPF_TAX, 0),
        load(libc::BPF_H | libc::BPF_ABS, 42),
        ProgramStep::Do(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        ProgramStep::Jump(Label::Mix),
    ]);
    steps
}

/// Jumps to `ports` if the accumulator holds the number of a protocol with ports.
fn only_with_ports(ports: Label) -> [ProgramStep; 3] {
    let [tcp, udp, sctp] = WITH_PORTS;
    [
        ProgramStep::Test(libc::BPF_JEQ, tcp, ports, Label::Next),
        ProgramStep::Test(libc::BPF_JEQ, udp, ports, Label::Next),
        ProgramStep::Test(libc::BPF_JEQ, sctp, ports, Label::NoPorts),
    ]
}

/// Loads the exclusive or of the words at some offsets.
fn xor_of_words<const N: usize>(offsets: [u32; N]) -> Vec<ProgramStep> {
    let mut steps = Vec::new();
    for (number, offset) in offsets.into_iter().enumerate() {
        if number > 0 {
            steps.push(ProgramStep::Do(libc::BPF_MISC | libc::BPF_TAX, 0));
        }
        steps.push(load(libc::BPF_W | libc::BPF_ABS, offset));
        if number > 0 {
            steps.push(ProgramStep::Do(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0));
        }
    }
    steps
}

/// A position in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    /// The next instruction of the program.
    Next,
    NoIpv4,
    NoIp,
    NoPorts,
    Ipv4Ports,
    Ipv6Ports,
    Mix,
}

/// A line of a program.
#[derive(Clone, Copy, Debug)]
enum ProgramStep {
    /// An instruction with its constant.
    Do(u32, u32),
    /// A comparison with a constant, and the positions to jump to if true and if false.
    Test(u32, u32, Label, Label),
    Jump(Label),
    /// The position of a label.
    At(Label),
}

/// Loads a value of the packet, or about it, into the accumulator.
const fn load(code: u32, offset: u32) -> ProgramStep {
    ProgramStep::Do(libc::BPF_LD | code, offset)
}

/// Returns a special offset (`SKF_*`) as the constant of an instruction.
const fn offset(offset: i32) -> u32 {
    offset.cast_unsigned()
}

/// Returns an instruction without a jump.
#[expect(clippy::cast_possible_truncation, reason = "codes have eight bits")]
const fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Replaces labels by distances of jumps.
fn assemble(steps: &[ProgramStep]) -> Vec<sock_filter> {
    let is_label = |step: &&ProgramStep| matches!(step, ProgramStep::At(_));
    // All jumps go forward.
    let distance = |from: usize, to: Label| {
        let target =
            steps.iter().position(|step| matches!(step, ProgramStep::At(own) if *own == to));
        let between = target.and_then(|target| steps.get(from + 1..target)).unwrap_or_default();
        between.iter().filter(|step| !is_label(step)).count()
    };
    let short = |from, to| u8::try_from(distance(from, to)).unwrap_or(u8::MAX);
    let code = steps.iter().enumerate().filter_map(|(place, step)| match *step {
        ProgramStep::At(_) => None,
        ProgramStep::Do(code, k) => Some(instruction(code, k)),
        ProgramStep::Jump(to) => {
            let distance = distance(place, to);
            debug_assert!(distance < steps.len(), "a jump stays in the program");
            let k = u32::try_from(distance).unwrap_or(u32::MAX);
            Some(instruction(libc::BPF_JMP | libc::BPF_JA, k))
        }
        ProgramStep::Test(code, k, yes, no) => {
            let (jt, jf) = (short(place, yes), short(place, no));
            Some(sock_filter { jt, jf, ..instruction(libc::BPF_JMP | code, k) })
        }
    });
    code.collect()
}
