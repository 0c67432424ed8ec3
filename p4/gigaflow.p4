/*
 * The LTM cache: K tables of sub-traversals, chained by tags.
 *
 * A packet gets its first tag from a table without a key, and then passes the stages. An entry of a
 * stage matches the tag and, under masks, the headers. Of several entries the one of the longest
 * sub-traversal wins: its length is the priority. The action of the entry rewrites headers, and sets
 * the next tag or ends the traversal. A packet without an entry in a stage continues with the next
 * stage, so tags may skip stages.
 *
 * Actions change a copy of the headers (meta.flow). The frame is written after the last stage, and
 * only if the packet is forwarded: the controller gets the original packet. Checksums are updated
 * incrementally (RFC 1624). So first fragments get a correct checksum, and a corrupt packet stays
 * corrupt.
 *
 * A test compares numbers, names and widths with the table description in
 * crates/p4runtime/src/program.
 */

#include <core.p4>
#include <v1model.p4>

// The port of the controller: the value for --cpu-port of simple_switch_grpc.
#define CPU_PORT 510

#define REASON_MISS     0
#define REASON_UNPARSED 1
#define REASON_PUNTED   2

#define UNDECIDED 0
#define FORWARD   1
#define DROP      2
#define PUNT      3

#define TCI_PRESENT 16w0x1000

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> eth_type;
}

header vlan_t {
    bit<16> tci;
    bit<16> eth_type;
}

header arp_t {
    bit<16> hardware;
    bit<16> protocol;
    bit<16> lengths;
    bit<16> operation;
    bit<48> sha;
    bit<32> spa;
    bit<48> tha;
    bit<32> tpa;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<8>  tos;
    bit<16> length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   tos;
    bit<20>  label;
    bit<16>  length;
    bit<8>   next_header;
    bit<8>   ttl;
    bit<128> src;
    bit<128> dst;
}

header tcp_t {
    bit<16> src;
    bit<16> dst;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4>  data_offset;
    bit<12> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

header icmp_t {
    bit<8>  kind;
    bit<8>  code;
    bit<16> checksum;
    bit<32> rest;
}

@controller_header("packet_in")
header packet_in_t {
    @id(1) bit<16> ingress_port;
    @id(2) bit<8>  reason;
    @id(3) bit<16> miss_tag;
    @id(4) bit<8>  last_stage;
}

@controller_header("packet_out")
header packet_out_t {
    @id(1) bit<16> egress_port;
    @id(2) bit<16> ingress_port;
    @id(3) bit<8>  resubmit;
}

struct headers_t {
    packet_in_t  packet_in_header;
    packet_out_t packet_out_header;
    ethernet_t   ethernet;
    vlan_t       vlan;
    arp_t        arp;
    ipv4_t       ipv4;
    ipv6_t       ipv6;
    tcp_t        tcp;
    udp_t        udp;
    icmp_t       icmp;
}

// The header fields that the stages match and rewrite.
struct flow_t {
    bit<16>  tag;
    bit<16>  in_port;
    bit<48>  eth_dst;
    bit<48>  eth_src;
    bit<16>  eth_type;
    bit<16>  vlan_tci;  // bit 12: set if the packet has a VLAN tag
    bit<32>  ip_src;    // or the sender address of ARP
    bit<32>  ip_dst;    // or the target address of ARP
    bit<16>  nw_proto;  // or the operation of ARP
    bit<8>   nw_tos;
    bit<8>   nw_ttl;
    bit<2>   ip_frag;   // 1: first fragment, 3: later fragment
    bit<16>  tp_src;    // or the type of ICMP
    bit<16>  tp_dst;    // or the code of ICMP
    bit<12>  tcp_flags;
    bit<128> ipv6_src;
    bit<128> ipv6_dst;
}

struct meta_t {
    flow_t  flow;
    bit<8>  verdict;
    bit<16> port;
    bit<8>  reason;
    bit<8>  last_stage;
    bit<32> address_delta;  // change of the checksums that cover the addresses
    bit<32> sum;
    bit<32> left;          // bytes of the packet after the headers parsed so far
    bit<16> tag_kept;      // bit 12: set while the VLAN tag is that of the received packet
}

parser parse(packet_in packet, out headers_t hdr, inout meta_t meta,
             inout standard_metadata_t standard) {
    state start {
        meta.flow.in_port = (bit<16>)standard.ingress_port;
        meta.left = standard.packet_length;
        transition select(standard.ingress_port) {
            CPU_PORT: packet_out_state;
            default: ethernet;
        }
    }
    state packet_out_state {
        packet.extract(hdr.packet_out_header);
        meta.left = meta.left - 5;
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        meta.left = meta.left - 14;
        meta.flow.eth_dst = hdr.ethernet.dst;
        meta.flow.eth_src = hdr.ethernet.src;
        meta.flow.eth_type = hdr.ethernet.eth_type;
        transition select(hdr.ethernet.eth_type) {
            0x0800: ipv4;
            0x86dd: ipv6;
            0x0806: arp;
            0x8035: arp;
            0x8100: vlan;
            0x88a8: refuse;
            0x894f: refuse;
            0x0000 &&& 0xfc00: refuse;  // values below 0x0600 are lengths
            0x0400 &&& 0xfe00: refuse;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
        meta.left = meta.left - 4;
        meta.flow.vlan_tci = hdr.vlan.tci | TCI_PRESENT;
        meta.tag_kept = TCI_PRESENT;
        meta.flow.eth_type = hdr.vlan.eth_type;
        transition select(hdr.vlan.eth_type) {
            0x0800: ipv4;
            0x86dd: ipv6;
            0x0806: arp;
            0x8035: arp;
            0x8100: refuse;
            0x88a8: refuse;
            0x894f: refuse;
            0x0000 &&& 0xfc00: refuse;
            0x0400 &&& 0xfe00: refuse;
            default: accept;
        }
    }
    state arp {
        packet.extract(hdr.arp);
        transition select(hdr.arp.hardware, hdr.arp.protocol, hdr.arp.lengths) {
            (0x0001, 0x0800, 0x0604): arp_addresses;
            default: refuse;
        }
    }
    state arp_addresses {
        meta.flow.ip_src = hdr.arp.spa;
        meta.flow.ip_dst = hdr.arp.tpa;
        transition select(hdr.arp.operation) {
            0x0000 &&& 0xff00: arp_known;
            default: accept;
        }
    }
    state arp_known {
        meta.flow.nw_proto = hdr.arp.operation;
        transition accept;
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.flow.ip_src = hdr.ipv4.src;
        meta.flow.ip_dst = hdr.ipv4.dst;
        meta.flow.nw_proto = (bit<16>)hdr.ipv4.protocol;
        meta.flow.nw_tos = hdr.ipv4.tos;
        meta.flow.nw_ttl = hdr.ipv4.ttl;
        transition select(hdr.ipv4.version_ihl) {
            0x45: ipv4_part;
            default: refuse;
        }
    }
    state ipv4_part {
        transition select(hdr.ipv4.offset, hdr.ipv4.flags) {
            (0, 0 &&& 1): ipv4_inside;
            (0, 1 &&& 1): ipv4_first;
            default: ipv4_later;
        }
    }
    state ipv4_first {
        meta.flow.ip_frag = 1;
        transition ipv4_inside;
    }
    state ipv4_later {
        meta.flow.ip_frag = 3;
        transition accept;
    }
    state ipv4_inside {
        transition select(hdr.ipv4.protocol) {
            1: icmp;
            6: tcp;
            17: udp;
            2: refuse;
            132: refuse;
            58: refuse;   // ICMP of the other IP version
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.flow.ipv6_src = hdr.ipv6.src;
        meta.flow.ipv6_dst = hdr.ipv6.dst;
        meta.flow.nw_proto = (bit<16>)hdr.ipv6.next_header;
        meta.flow.nw_tos = hdr.ipv6.tos;
        meta.flow.nw_ttl = hdr.ipv6.ttl;
        transition select(hdr.ipv6.version) {
            6: ipv6_inside;
            default: refuse;
        }
    }
    state ipv6_inside {
        transition select(hdr.ipv6.next_header) {
            58: icmpv6;
            6: tcp;
            17: udp;
            2: refuse;
            132: refuse;
            0: refuse;    // this and the next ones are extension headers
            43: refuse;
            44: refuse;
            51: refuse;
            60: refuse;
            135: refuse;
            1: refuse;    // ICMP of the other IP version
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        meta.flow.tp_src = hdr.tcp.src;
        meta.flow.tp_dst = hdr.tcp.dst;
        meta.flow.tcp_flags = hdr.tcp.flags;
        transition accept;
    }
    state udp {
        packet.extract(hdr.udp);
        meta.flow.tp_src = hdr.udp.src;
        meta.flow.tp_dst = hdr.udp.dst;
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        meta.flow.tp_src = (bit<16>)hdr.icmp.kind;
        meta.flow.tp_dst = (bit<16>)hdr.icmp.code;
        transition accept;
    }
    state icmpv6 {
        packet.extract(hdr.icmp);
        meta.flow.tp_src = (bit<16>)hdr.icmp.kind;
        meta.flow.tp_dst = (bit<16>)hdr.icmp.code;
        transition select(hdr.icmp.kind) {
            135: refuse;  // neighbour discovery: rules may match fields that are not parsed
            136: refuse;
            default: accept;
        }
    }
    state refuse {
        meta.reason = REASON_UNPARSED;
        transition accept;
    }
}

control verify_nothing(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

// Writes the bits of a mask; the other bits keep their values.
#define WRITE(FIELD) \
    meta.flow.FIELD = (meta.flow.FIELD & ~FIELD##_mask) | (FIELD & FIELD##_mask)

#define WRITE_ETHERNET \
    WRITE(eth_dst); WRITE(eth_src); WRITE(vlan_tci); \
    meta.tag_kept = meta.tag_kept & meta.flow.vlan_tci
#define WRITE_IP WRITE(ip_src); WRITE(ip_dst); WRITE(nw_tos); WRITE(nw_ttl)
#define WRITE_TRANSPORT WRITE(tp_src); WRITE(tp_dst)
#define WRITE_ALL \
    WRITE_ETHERNET; WRITE_IP; WRITE_TRANSPORT; WRITE(ipv6_src); WRITE(ipv6_dst)

#define SET_NEXT_TAG meta.flow.tag = tag
#define SET_EGRESS meta.verdict = FORWARD; meta.port = port

// One stage: its table, and the counters of its entries.
#define STAGE(NUMBER, TABLE_ID, COUNTER_ID) \
    @id(COUNTER_ID) direct_counter(CounterType.packets_and_bytes) ltm_##NUMBER##_hits; \
    @id(TABLE_ID) table ltm_##NUMBER { \
        key = { \
            meta.flow.tag : exact @name("tag"); \
            meta.flow.in_port : ternary @name("in_port"); \
            meta.flow.eth_dst : ternary @name("eth_dst"); \
            meta.flow.eth_src : ternary @name("eth_src"); \
            meta.flow.eth_type : ternary @name("eth_type"); \
            meta.flow.vlan_tci : ternary @name("vlan_tci"); \
            meta.flow.ip_src : ternary @name("ip_src"); \
            meta.flow.ip_dst : ternary @name("ip_dst"); \
            meta.flow.nw_proto : ternary @name("nw_proto"); \
            meta.flow.nw_tos : ternary @name("nw_tos"); \
            meta.flow.nw_ttl : ternary @name("nw_ttl"); \
            meta.flow.ip_frag : ternary @name("ip_frag"); \
            meta.flow.tp_src : ternary @name("tp_src"); \
            meta.flow.tp_dst : ternary @name("tp_dst"); \
            meta.flow.tcp_flags : ternary @name("tcp_flags"); \
            meta.flow.ipv6_src : ternary @name("ipv6_src"); \
            meta.flow.ipv6_dst : ternary @name("ipv6_dst"); \
        } \
        actions = { \
            @tableonly next; \
            @tableonly forward; \
            @tableonly drop; \
            @tableonly punt; \
            @tableonly set_ethernet; \
            @tableonly set_ethernet_forward; \
            @tableonly set_ip; \
            @tableonly set_ip_forward; \
            @tableonly set_transport; \
            @tableonly set_transport_forward; \
            @tableonly rewrite; \
            @tableonly rewrite_forward; \
            @defaultonly miss; \
        } \
        const default_action = miss(); \
        size = 8192; \
        support_timeout = true; \
        counters = ltm_##NUMBER##_hits; \
    }

#define PASS(NUMBER) \
    if (meta.verdict == UNDECIDED) { \
        if (ltm_##NUMBER.apply().hit) { \
            meta.last_stage = NUMBER; \
        } \
    }

// The change of a checksum when 16 bits change.
#define DELTA(OLD, NEW) (0xffff - (bit<32>)(OLD) + (bit<32>)(NEW))
#define DELTA32(OLD, NEW) \
    DELTA((OLD)[15:0], (NEW)[15:0]) + DELTA((OLD)[31:16], (NEW)[31:16])
#define DELTA128(OLD, NEW) \
    DELTA32((OLD)[31:0], (NEW)[31:0]) + DELTA32((OLD)[63:32], (NEW)[63:32]) + \
    DELTA32((OLD)[95:64], (NEW)[95:64]) + DELTA32((OLD)[127:96], (NEW)[127:96])
// An updated checksum is never 0xffff: both forms of zero become 0.
#define UPDATE_CHECKSUM(CHECKSUM) \
    meta.sum = meta.sum + (0xffff - (bit<32>)CHECKSUM); \
    meta.sum = (meta.sum & 0xffff) + (meta.sum >> 16); \
    meta.sum = (meta.sum & 0xffff) + (meta.sum >> 16); \
    CHECKSUM = (bit<16>)(0xffff - meta.sum)

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    @id(0x01000001) action next(bit<16> tag) {
        SET_NEXT_TAG;
    }
    @id(0x01000002) action forward(bit<16> port) {
        SET_EGRESS;
    }
    @id(0x01000003) action drop() {
        meta.verdict = DROP;
    }
    @id(0x01000004) action punt() {
        meta.verdict = PUNT;
        meta.reason = REASON_PUNTED;
    }
    @id(0x01000005) action set_ethernet(
        bit<48> eth_dst, bit<48> eth_dst_mask, bit<48> eth_src, bit<48> eth_src_mask,
        bit<16> vlan_tci, bit<16> vlan_tci_mask, bit<16> tag) {
        WRITE_ETHERNET;
        SET_NEXT_TAG;
    }
    @id(0x01000006) action set_ethernet_forward(
        bit<48> eth_dst, bit<48> eth_dst_mask, bit<48> eth_src, bit<48> eth_src_mask,
        bit<16> vlan_tci, bit<16> vlan_tci_mask, bit<16> port) {
        WRITE_ETHERNET;
        SET_EGRESS;
    }
    @id(0x01000007) action set_ip(
        bit<32> ip_src, bit<32> ip_src_mask, bit<32> ip_dst, bit<32> ip_dst_mask,
        bit<8> nw_tos, bit<8> nw_tos_mask, bit<8> nw_ttl, bit<8> nw_ttl_mask, bit<16> tag) {
        WRITE_IP;
        SET_NEXT_TAG;
    }
    @id(0x01000008) action set_ip_forward(
        bit<32> ip_src, bit<32> ip_src_mask, bit<32> ip_dst, bit<32> ip_dst_mask,
        bit<8> nw_tos, bit<8> nw_tos_mask, bit<8> nw_ttl, bit<8> nw_ttl_mask, bit<16> port) {
        WRITE_IP;
        SET_EGRESS;
    }
    @id(0x01000009) action set_transport(
        bit<16> tp_src, bit<16> tp_src_mask, bit<16> tp_dst, bit<16> tp_dst_mask, bit<16> tag) {
        WRITE_TRANSPORT;
        SET_NEXT_TAG;
    }
    @id(0x0100000a) action set_transport_forward(
        bit<16> tp_src, bit<16> tp_src_mask, bit<16> tp_dst, bit<16> tp_dst_mask, bit<16> port) {
        WRITE_TRANSPORT;
        SET_EGRESS;
    }
    @id(0x0100000b) action rewrite(
        bit<48> eth_dst, bit<48> eth_dst_mask, bit<48> eth_src, bit<48> eth_src_mask,
        bit<16> vlan_tci, bit<16> vlan_tci_mask,
        bit<32> ip_src, bit<32> ip_src_mask, bit<32> ip_dst, bit<32> ip_dst_mask,
        bit<8> nw_tos, bit<8> nw_tos_mask, bit<8> nw_ttl, bit<8> nw_ttl_mask,
        bit<16> tp_src, bit<16> tp_src_mask, bit<16> tp_dst, bit<16> tp_dst_mask,
        bit<128> ipv6_src, bit<128> ipv6_src_mask, bit<128> ipv6_dst, bit<128> ipv6_dst_mask,
        bit<16> tag) {
        WRITE_ALL;
        SET_NEXT_TAG;
    }
    @id(0x0100000c) action rewrite_forward(
        bit<48> eth_dst, bit<48> eth_dst_mask, bit<48> eth_src, bit<48> eth_src_mask,
        bit<16> vlan_tci, bit<16> vlan_tci_mask,
        bit<32> ip_src, bit<32> ip_src_mask, bit<32> ip_dst, bit<32> ip_dst_mask,
        bit<8> nw_tos, bit<8> nw_tos_mask, bit<8> nw_ttl, bit<8> nw_ttl_mask,
        bit<16> tp_src, bit<16> tp_src_mask, bit<16> tp_dst, bit<16> tp_dst_mask,
        bit<128> ipv6_src, bit<128> ipv6_src_mask, bit<128> ipv6_dst, bit<128> ipv6_dst_mask,
        bit<16> port) {
        WRITE_ALL;
        SET_EGRESS;
    }
    @id(0x0100000d) action miss() { }

    // The first tag. The controller may change the default action, and with it the tag.
    @id(0x0100000e) action start(bit<16> tag) {
        SET_NEXT_TAG;
    }
    @id(0x02000100) table start_table {
        actions = { start; }
        default_action = start(0);
        size = 1;
    }

    STAGE(1, 0x02000001, 0x13000001)
    STAGE(2, 0x02000002, 0x13000002)
    STAGE(3, 0x02000003, 0x13000003)
    STAGE(4, 0x02000004, 0x13000004)

    // Sends the original packet to the controller: the frame has not been changed.
    action to_controller() {
        hdr.packet_in_header.setValid();
        hdr.packet_in_header.ingress_port = meta.flow.in_port;
        hdr.packet_in_header.reason = meta.reason;
        hdr.packet_in_header.miss_tag = meta.flow.tag;
        hdr.packet_in_header.last_stage = meta.last_stage;
        standard.egress_spec = CPU_PORT;
    }

    action commit_link() {
        standard.egress_spec = (bit<9>)meta.port;
        hdr.ethernet.dst = meta.flow.eth_dst;
        hdr.ethernet.src = meta.flow.eth_src;
    }
    action set_tag() {
        // Bit 12 of the frame is not the presence bit, and no rule writes it. It is 0 in a tag that
        // was removed and pushed again.
        hdr.vlan.tci = (hdr.vlan.tci & meta.tag_kept) | (meta.flow.vlan_tci & ~TCI_PRESENT);
    }
    action push_tag() {
        hdr.vlan.setValid();
        hdr.vlan.eth_type = hdr.ethernet.eth_type;
        hdr.ethernet.eth_type = 0x8100;
        hdr.vlan.tci = meta.flow.vlan_tci & ~TCI_PRESENT;
    }
    action pop_tag() {
        hdr.ethernet.eth_type = hdr.vlan.eth_type;
        hdr.vlan.setInvalid();
    }
    action commit_ipv4() {
        meta.address_delta = DELTA32(hdr.ipv4.src, meta.flow.ip_src) +
                             DELTA32(hdr.ipv4.dst, meta.flow.ip_dst);
        meta.sum = meta.address_delta + DELTA(hdr.ipv4.tos, meta.flow.nw_tos) +
                   DELTA((bit<16>)hdr.ipv4.ttl << 8, (bit<16>)meta.flow.nw_ttl << 8);
        UPDATE_CHECKSUM(hdr.ipv4.checksum);
        hdr.ipv4.src = meta.flow.ip_src;
        hdr.ipv4.dst = meta.flow.ip_dst;
        hdr.ipv4.tos = meta.flow.nw_tos;
        hdr.ipv4.ttl = meta.flow.nw_ttl;
    }
    action commit_ipv6() {
        meta.address_delta = DELTA128(hdr.ipv6.src, meta.flow.ipv6_src) +
                             DELTA128(hdr.ipv6.dst, meta.flow.ipv6_dst);
        hdr.ipv6.src = meta.flow.ipv6_src;
        hdr.ipv6.dst = meta.flow.ipv6_dst;
        hdr.ipv6.tos = meta.flow.nw_tos;
        hdr.ipv6.ttl = meta.flow.nw_ttl;
    }
    action commit_arp() {
        hdr.arp.spa = meta.flow.ip_src;
        hdr.arp.tpa = meta.flow.ip_dst;
    }
    action commit_tcp() {
        meta.sum = meta.address_delta + DELTA(hdr.tcp.src, meta.flow.tp_src) +
                   DELTA(hdr.tcp.dst, meta.flow.tp_dst);
        UPDATE_CHECKSUM(hdr.tcp.checksum);
        hdr.tcp.src = meta.flow.tp_src;
        hdr.tcp.dst = meta.flow.tp_dst;
    }
    action sum_udp() {
        meta.sum = meta.address_delta + DELTA(hdr.udp.src, meta.flow.tp_src) +
                   DELTA(hdr.udp.dst, meta.flow.tp_dst);
        UPDATE_CHECKSUM(hdr.udp.checksum);
    }
    action commit_icmp() {
        meta.sum = meta.sum + DELTA(hdr.icmp.kind ++ hdr.icmp.code,
                                   meta.flow.tp_src[7:0] ++ meta.flow.tp_dst[7:0]);
        UPDATE_CHECKSUM(hdr.icmp.checksum);
        hdr.icmp.kind = meta.flow.tp_src[7:0];
        hdr.icmp.code = meta.flow.tp_dst[7:0];
    }

    apply {
        if (hdr.packet_out_header.isValid()) {
            if (hdr.packet_out_header.resubmit == 0) {
                standard.egress_spec = (bit<9>)hdr.packet_out_header.egress_port;
                hdr.packet_out_header.setInvalid();
                return;
            }
            meta.flow.in_port = hdr.packet_out_header.ingress_port;
            hdr.packet_out_header.setInvalid();
        }
        if (standard.parser_error != error.NoError) {
            meta.reason = REASON_UNPARSED;
        }
        // The IP length exceeds the frame, or has no room for the transport header: then the parsed
        // header is padding, or does not exist.
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.length < 20 || (bit<32>)hdr.ipv4.length > meta.left) {
                meta.reason = REASON_UNPARSED;
            }
            meta.left = (bit<32>)hdr.ipv4.length - 20;
        } else if (hdr.ipv6.isValid()) {
            if ((bit<32>)hdr.ipv6.length + 40 > meta.left) {
                meta.reason = REASON_UNPARSED;
            }
            meta.left = (bit<32>)hdr.ipv6.length;
        }
        if (hdr.tcp.isValid()) {
            if (hdr.tcp.data_offset < 5 || (bit<32>)hdr.tcp.data_offset << 2 > meta.left) {
                meta.reason = REASON_UNPARSED;
            }
        } else if (hdr.udp.isValid() || hdr.icmp.isValid()) {
            if (meta.left < 8) {
                meta.reason = REASON_UNPARSED;
            }
        }
        if (meta.reason != REASON_MISS) {
            to_controller();
            return;
        }
        start_table.apply();
        PASS(1)
        PASS(2)
        PASS(3)
        PASS(4)
        if (meta.verdict == DROP) {
            mark_to_drop(standard);
            return;
        }
        if (meta.verdict != FORWARD) {
            to_controller();
            return;
        }
        if (meta.port == meta.flow.in_port) {
            mark_to_drop(standard);
            return;
        }
        commit_link();
        if ((meta.flow.vlan_tci & TCI_PRESENT) != 0) {
            if (hdr.vlan.isValid()) {
                set_tag();
            } else {
                push_tag();
            }
        } else if (hdr.vlan.isValid()) {
            pop_tag();
        }
        if (hdr.ipv4.isValid()) {
            commit_ipv4();
        } else if (hdr.ipv6.isValid()) {
            commit_ipv6();
        } else if (hdr.arp.isValid()) {
            commit_arp();
        }
        if (hdr.tcp.isValid()) {
            commit_tcp();
        } else if (hdr.udp.isValid()) {
            // 0 means that there is no checksum, so a sum of 0 is written as 0xffff.
            if (hdr.udp.checksum != 0) {
                sum_udp();
                if (hdr.udp.checksum == 0) {
                    hdr.udp.checksum = 0xffff;
                }
            }
            hdr.udp.src = meta.flow.tp_src;
            hdr.udp.dst = meta.flow.tp_dst;
        } else if (hdr.icmp.isValid()) {
            // Only the checksum of ICMPv6 covers the addresses.
            meta.sum = 0;
            if (hdr.ipv6.isValid()) {
                meta.sum = meta.address_delta;
            }
            commit_icmp();
        }
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    apply { }
}

control compute_nothing(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in_header);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.icmp);
    }
}

V1Switch(parse(), verify_nothing(), ingress(), egress(), compute_nothing(), deparse()) main;
