/* The part of DPDK that Shunt uses, behind functions with plain arguments.
 *
 * Only this file depends on DPDK's structures. It is compiled against the installed headers, so it
 * follows the version of DPDK. src/shim.rs has a copy of the structures and prototypes of this file.
 *
 * Functions that return int return 0, or a negative errno.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "libdpdk is too old: Shunt needs 22.11 or later"
#endif

/* Maximum number of frames in a burst. */
#define BURST 64

/* A frame, with the offloads that the device must apply. */
struct shunt_dpdk_frame {
    struct rte_mbuf *mbuf;
    /* Length of the frame in bytes. */
    uint32_t length;
    /* The flags FRAME_* below. */
    uint16_t flags;
    /* Bytes of payload of each segment, with FRAME_TCP_SEGMENTS. */
    uint16_t segment_size;
    /* Lengths of the headers in bytes, with any flag other than FRAME_CHECKSUM_GOOD. */
    uint16_t l2_length;
    uint16_t l3_length;
    uint16_t l4_length;
};

_Static_assert(sizeof(struct shunt_dpdk_frame) == 24, "src/shim.rs has the same size");

/* Received: the device has verified the transport checksum. */
#define FRAME_CHECKSUM_GOOD 1
/* To send: the device completes the checksum of TCP or UDP. */
#define FRAME_TCP_CHECKSUM 2
#define FRAME_UDP_CHECKSUM 4
/* To send: the device makes segments. Not of UDP: the offload of DPDK makes IP fragments. */
#define FRAME_TCP_SEGMENTS 8
/* To send: the frame carries IPv6, else IPv4. */
#define FRAME_IPV6 16

/* The limits and the offloads of a device. */
struct shunt_dpdk_limits {
    uint16_t rx_queues_max;
    uint16_t tx_queues_max;
    /* NUMA node of the device; -1 for any node. */
    int32_t node;
    /* Smallest and largest MTU, in bytes. */
    uint16_t mtu_min;
    uint16_t mtu_max;
    uint8_t tcp_checksum;
    uint8_t udp_checksum;
    uint8_t tcp_segments;
    /* True for a ring: each queue returns the frames that are sent to it. */
    uint8_t is_ring;
    /* True if the device counts a frame that it refuses as an error; the sender has counted it, too. */
    uint8_t errors_are_refusals;
};

_Static_assert(sizeof(struct shunt_dpdk_limits) == 20, "src/shim.rs has the same size");

/* The settings with which a device starts. */
struct shunt_dpdk_settings {
    struct rte_mempool *pool;
    uint16_t rx_queues;
    uint16_t tx_queues;
    uint16_t rx_slots;
    uint16_t tx_slots;
    /* 0 keeps the MTU of the device. */
    uint16_t mtu;
};

_Static_assert(sizeof(struct shunt_dpdk_settings) == 24, "src/shim.rs has the same size");

/* Counters of a device. */
struct shunt_dpdk_counters {
    uint64_t rx_dropped;
    uint64_t tx_dropped;
};

/* A counter of a driver, which DPDK calls an extended statistic. */
struct shunt_dpdk_statistic {
    char name[RTE_ETH_XSTATS_NAME_SIZE];
    uint64_t value;
};

_Static_assert(sizeof(struct shunt_dpdk_statistic) == 72, "src/shim/statistics.rs has the same size");

/* The result of shunt_dpdk_start_device. */
struct shunt_dpdk_start {
    /* The step that failed. */
    uint32_t step;
    /* 0 if the device receives frames for any address, or a negative errno. */
    int32_t promiscuous;
};

/* --- The environment --- */

typedef void (*log_function)(uint32_t level, const char *text, size_t length);

static log_function log_line;

static ssize_t write_log(void *cookie, const char *text, size_t length) {
    (void)cookie;
    int level = rte_log_cur_msg_loglevel();
    log_line(level < 0 ? 0 : (uint32_t)level, text, length);
    return (ssize_t)length;
}

const char *shunt_dpdk_version(void) { return rte_version(); }

/* True for each port with a driver that has reported the removal of the hardware. */
static uint8_t removed[RTE_MAX_ETHPORTS];

/* A thread of DPDK calls this. */
static int note_removal(uint16_t port, enum rte_eth_event_type event, void *argument, void *result) {
    (void)event, (void)argument, (void)result;
    if (port < RTE_MAX_ETHPORTS) __atomic_store_n(&removed[port], 1, __ATOMIC_RELAXED);
    return 0;
}

/* Starts DPDK; log_to gets each line of its log. Never called twice. */
int shunt_dpdk_start(int argc, char **argv, log_function log_to) {
    cookie_io_functions_t functions = {.write = write_log};
    log_line = log_to;
    FILE *stream = fopencookie(NULL, "w", functions);
    if (stream == NULL) return -errno;
    setvbuf(stream, NULL, _IOLBF, 1024);
    rte_openlog_stream(stream);
    rte_errno = 0;
    if (rte_eal_init(argc, argv) < 0) return rte_errno ? -rte_errno : -EINVAL;
    return rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_INTR_RMV, note_removal, NULL);
}

/* Registers the calling thread with DPDK, so that it has caches of buffers. */
int shunt_dpdk_register_thread(void) { return rte_thread_register() < 0 ? -rte_errno : 0; }

void shunt_dpdk_unregister_thread(void) { rte_thread_unregister(); }

/* --- Buffers --- */

/* Creates a pool of buffers with room for frames of room bytes; NULL: see errno. */
struct rte_mempool *shunt_dpdk_create_pool(const char *name, uint32_t count, uint32_t cache, uint16_t room,
                                           int32_t node, int32_t *error) {
    struct rte_mempool *pool = rte_pktmbuf_pool_create(name, count, cache, 0, RTE_PKTMBUF_HEADROOM + room, node);
    *error = pool == NULL ? -rte_errno : 0;
    return pool;
}

/* Returns the number of free buffers of a pool, including those in the caches of threads. */
uint32_t shunt_dpdk_free_buffers(const struct rte_mempool *pool) { return rte_mempool_avail_count(pool); }

/* --- Devices --- */

/* The device of each attached port, because DPDK cannot find the device of a removed card. */
static struct rte_device *devices[RTE_MAX_ETHPORTS];

/* The number of receive queues of each started port that is a ring. */
static uint16_t ring_queues[RTE_MAX_ETHPORTS];

static int has_driver(const struct rte_eth_dev_info *info, const char *name) {
    return strcmp(info->driver_name, name) == 0;
}

/* Returns the transmit offloads that Shunt uses.
 *
 * net_tap has none of its own: it computes in software, refuses segments as long as the MTU, and does not
 * segment IPv6. */
static uint64_t tx_offloads(const struct rte_eth_dev_info *info) {
    uint64_t wanted = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    if (!has_driver(info, "net_tap"))
        wanted |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
                  RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO;
    return info->tx_offload_capa & wanted;
}

/* Returns the largest MTU that rte_eth_dev_set_mtu accepts. */
static uint16_t largest_mtu(const struct rte_eth_dev_info *info) {
    uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
    if (info->max_mtu != UINT16_MAX && info->max_rx_pktlen > info->max_mtu)
        overhead = info->max_rx_pktlen - info->max_mtu;
    uint32_t room = info->max_rx_pktlen > overhead ? info->max_rx_pktlen - overhead : 0;
    return (uint16_t)RTE_MIN(room, (uint32_t)info->max_mtu);
}

/* Takes the frames out of a ring. net_ring forgets them when it is closed, or a later ring of the same name
 * receives them, and their buffers would be lost. */
static void drain_ring(uint16_t port) {
    struct rte_mbuf *mbufs[BURST];
    for (uint16_t queue = 0; queue < ring_queues[port]; queue++) {
        uint16_t count;
        while ((count = rte_eth_rx_burst(port, queue, mbufs, BURST)) > 0) rte_pktmbuf_free_bulk(mbufs, count);
    }
    ring_queues[port] = 0;
}

/* Forgets the removals of closed ports: a new device may get the number of any of them. The removal of a
 * device that is attached, and not started yet, must not be forgotten. */
static void forget_removals(void) {
    for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; port++)
        if (!rte_eth_dev_is_valid_port(port)) __atomic_store_n(&removed[port], 0, __ATOMIC_RELAXED);
}

/* Creates or takes the device of devargs, and finds its port. */
int shunt_dpdk_attach(const char *devargs, uint16_t *port) {
    struct rte_dev_iterator iterator;
    uint16_t found;
    forget_removals();
    int result = rte_dev_probe(devargs);
    if (result < 0) return result;
    *port = RTE_MAX_ETHPORTS;
    RTE_ETH_FOREACH_MATCHING_DEV(found, devargs, &iterator) {
        if (*port == RTE_MAX_ETHPORTS) {
            *port = found;
            devices[found] = iterator.device;
        }
    }
    return *port == RTE_MAX_ETHPORTS ? -ENXIO : 0;
}

/* Stops and closes a port, and detaches its device if the device has no further port. */
int shunt_dpdk_detach(uint16_t port) {
    uint16_t sibling;
    if (!rte_eth_dev_is_valid_port(port)) return -ENODEV;
    drain_ring(port);
    int stopped = rte_eth_dev_stop(port);
    int closed = rte_eth_dev_close(port);
    if (rte_eth_dev_is_valid_port(port)) return stopped < 0 ? stopped : closed < 0 ? closed : -EBUSY;
    RTE_ETH_FOREACH_DEV_OF(sibling, devices[port]) return 0;
    return rte_dev_remove(devices[port]);
}

int shunt_dpdk_limits(uint16_t port, struct shunt_dpdk_limits *limits) {
    struct rte_eth_dev_info info;
    int result = rte_eth_dev_info_get(port, &info);
    if (result < 0) return result;
    uint64_t tx = tx_offloads(&info);
    memset(limits, 0, sizeof *limits);
    limits->rx_queues_max = info.max_rx_queues;
    limits->tx_queues_max = info.max_tx_queues;
    limits->node = rte_eth_dev_socket_id(port);
    limits->mtu_min = info.min_mtu;
    limits->mtu_max = largest_mtu(&info);
    limits->tcp_checksum = !!(tx & RTE_ETH_TX_OFFLOAD_TCP_CKSUM);
    limits->udp_checksum = !!(tx & RTE_ETH_TX_OFFLOAD_UDP_CKSUM);
    int has_segments = (tx & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) && (tx & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM);
    limits->tcp_segments = has_segments && limits->tcp_checksum && (tx & RTE_ETH_TX_OFFLOAD_TCP_TSO);
    limits->is_ring = has_driver(&info, "net_ring");
    limits->errors_are_refusals = has_driver(&info, "net_tap") || has_driver(&info, "net_vhost");
    return 0;
}

/* The step at which shunt_dpdk_start_device failed. */
enum { STEP_CONFIGURE, STEP_MTU, STEP_RX_QUEUE, STEP_TX_QUEUE, STEP_START };

/* Configures and starts a port. */
int shunt_dpdk_start_device(uint16_t port, const struct shunt_dpdk_settings *settings,
                            struct shunt_dpdk_start *start) {
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    uint16_t rx_slots = settings->rx_slots, tx_slots = settings->tx_slots, mtu;
    int node = rte_eth_dev_socket_id(port), result;

    start->step = STEP_CONFIGURE;
    result = rte_eth_dev_info_get(port, &info);
    if (result < 0) return result;
    memset(&conf, 0, sizeof conf);
    uint64_t rx = RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_SCATTER;
    /* With these, virtio hands over frames with incomplete checksums. */
    if (strstr(info.driver_name, "virtio") != NULL || strstr(info.driver_name, "vhost") != NULL)
        rx &= ~(uint64_t)(RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
    conf.rxmode.offloads = info.rx_offload_capa & rx;
    conf.txmode.offloads = tx_offloads(&info);
    uint64_t hashes = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
    if (settings->rx_queues > 1 && hashes != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = hashes;
    }
    if (rte_eth_dev_get_mtu(port, &mtu) == 0) conf.rxmode.mtu = mtu;
    if (settings->mtu != 0) conf.rxmode.mtu = settings->mtu;
    result = rte_eth_dev_configure(port, settings->rx_queues, settings->tx_queues, &conf);
    if (result < 0) return result;
    start->step = STEP_MTU;
    if (settings->mtu != 0) {
        result = rte_eth_dev_set_mtu(port, settings->mtu);
        if (result < 0) return result;
    }
    start->step = STEP_RX_QUEUE;
    result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_slots, &tx_slots);
    if (result < 0) return result;
    for (uint16_t queue = 0; queue < settings->rx_queues; queue++) {
        result = rte_eth_rx_queue_setup(port, queue, rx_slots, node, NULL, settings->pool);
        if (result < 0) return result;
    }
    start->step = STEP_TX_QUEUE;
    for (uint16_t queue = 0; queue < settings->tx_queues; queue++) {
        result = rte_eth_tx_queue_setup(port, queue, tx_slots, node, NULL);
        if (result < 0) return result;
    }
    start->step = STEP_START;
    result = rte_eth_dev_start(port);
    if (result < 0) return result;
    if (has_driver(&info, "net_ring")) ring_queues[port] = settings->rx_queues;
    /* A switch receives frames for any address. */
    start->promiscuous = rte_eth_promiscuous_enable(port);
    rte_eth_allmulticast_enable(port);
    return 0;
}

/* Returns 1 if the link is up. */
int shunt_dpdk_link_is_up(uint16_t port) {
    struct rte_eth_link link;
    memset(&link, 0, sizeof link);
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* Returns 1 if the hardware was removed: the driver has reported the removal, or finds it now. */
int shunt_dpdk_is_removed(uint16_t port) {
    return __atomic_load_n(&removed[port], __ATOMIC_RELAXED) || rte_eth_dev_is_removed(port);
}

int shunt_dpdk_mac(uint16_t port, uint8_t mac[6]) {
    struct rte_ether_addr address;
    int result = rte_eth_macaddr_get(port, &address);
    if (result == 0) memcpy(mac, address.addr_bytes, 6);
    return result;
}

int shunt_dpdk_mtu(uint16_t port, uint16_t *mtu) { return rte_eth_dev_get_mtu(port, mtu); }

int shunt_dpdk_counters(uint16_t port, struct shunt_dpdk_counters *counters) {
    struct rte_eth_stats stats;
    int result = rte_eth_stats_get(port, &stats);
    if (result < 0) return result;
    counters->rx_dropped = stats.imissed + stats.ierrors + stats.rx_nombuf;
    counters->tx_dropped = stats.oerrors;
    return 0;
}

/* Reads at most count counters of the driver of a port. Returns the number of its counters. */
int shunt_dpdk_statistics(uint16_t port, struct shunt_dpdk_statistic *statistics, uint32_t count) {
    int number = rte_eth_xstats_get_names(port, NULL, 0);
    if (number <= 0 || (uint32_t)number > count) return number;
    struct rte_eth_xstat_name *names = calloc((size_t)number, sizeof *names);
    struct rte_eth_xstat *values = calloc((size_t)number, sizeof *values);
    int result = -ENOMEM;
    if (names != NULL && values != NULL) {
        result = rte_eth_xstats_get_names(port, names, (unsigned)number);
        /* The driver may have changed its counters meanwhile. */
        if (result == number && rte_eth_xstats_get(port, values, (unsigned)number) != number) result = -EAGAIN;
    }
    for (int i = 0; i < result && result == number; i++) {
        if (values[i].id >= (uint64_t)number) continue;
        memcpy(statistics[i].name, names[values[i].id].name, sizeof statistics[i].name);
        statistics[i].value = values[i].value;
    }
    free(names);
    free(values);
    return result;
}

/* --- Bursts: count is at most BURST --- */

/* Receives at most count frames. */
uint16_t shunt_dpdk_receive(uint16_t port, uint16_t queue, struct shunt_dpdk_frame *frames, uint16_t count) {
    struct rte_mbuf *mbufs[BURST];
    uint16_t received = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, BURST));
    for (uint16_t i = 0; i < received; i++) rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
    for (uint16_t i = 0; i < received; i++) {
        struct rte_mbuf *mbuf = mbufs[i];
        uint64_t checksum = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
        frames[i].mbuf = mbuf;
        frames[i].length = mbuf->pkt_len;
        frames[i].flags = checksum == RTE_MBUF_F_RX_L4_CKSUM_GOOD ? FRAME_CHECKSUM_GOOD : 0;
    }
    return received;
}

/* Copies all bytes of a frame. */
void shunt_dpdk_read(const struct shunt_dpdk_frame *frame, uint8_t *to) {
    size_t left = frame->length;
    for (const struct rte_mbuf *mbuf = frame->mbuf; mbuf != NULL && left > 0; mbuf = mbuf->next) {
        size_t part = RTE_MIN((size_t)mbuf->data_len, left);
        memcpy(to, rte_pktmbuf_mtod(mbuf, const void *), part);
        to += part;
        left -= part;
    }
    /* If a driver reports a wrong length, no bytes of another packet may remain in the copy. */
    memset(to, 0, left);
}

/* Takes buffers for count frames, all or none; returns their number. */
uint16_t shunt_dpdk_allocate(struct rte_mempool *pool, struct shunt_dpdk_frame *frames, uint16_t count) {
    struct rte_mbuf *mbufs[BURST];
    count = RTE_MIN(count, BURST);
    if (rte_pktmbuf_alloc_bulk(pool, mbufs, count) != 0) return 0;
    for (uint16_t i = 0; i < count; i++) frames[i].mbuf = mbufs[i];
    return count;
}

/* Copies length bytes into an empty frame, which gets further buffers if it is long. */
int shunt_dpdk_write(struct rte_mempool *pool, const struct shunt_dpdk_frame *frame, const uint8_t *from) {
    struct rte_mbuf *first = frame->mbuf, *last = first;
    size_t left = frame->length;
    first->pkt_len = 0;
    for (;;) {
        last->data_len = 0;
        size_t part = RTE_MIN((size_t)rte_pktmbuf_tailroom(last), left);
        memcpy(rte_pktmbuf_mtod(last, void *), from, part);
        last->data_len = (uint16_t)part;
        first->pkt_len += (uint32_t)part;
        from += part;
        left -= part;
        if (left == 0) return 0;
        struct rte_mbuf *next = rte_pktmbuf_alloc(pool);
        if (next == NULL) return -ENOBUFS;
        last->next = next;
        last = next;
        first->nb_segs++;
    }
}

static void set_offloads(struct rte_mbuf *mbuf, const struct shunt_dpdk_frame *frame) {
    int is_tcp = frame->flags & (FRAME_TCP_CHECKSUM | FRAME_TCP_SEGMENTS);
    mbuf->l2_len = frame->l2_length;
    mbuf->l3_len = frame->l3_length;
    mbuf->l4_len = frame->l4_length;
    mbuf->ol_flags |= frame->flags & FRAME_IPV6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
    mbuf->ol_flags |= is_tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
    if (frame->flags & FRAME_TCP_SEGMENTS) {
        mbuf->tso_segsz = frame->segment_size;
        mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
        if (!(frame->flags & FRAME_IPV6)) mbuf->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
    }
}

/* Sends frames; returns the number of frames that the device has taken. The caller keeps the other frames.
 * refused is 1 if the device will never take the first of the other frames. */
uint16_t shunt_dpdk_send(uint16_t port, uint16_t queue, const struct shunt_dpdk_frame *frames, uint16_t count,
                         uint8_t *refused) {
    struct rte_mbuf *mbufs[BURST];
    count = RTE_MIN(count, BURST);
    for (uint16_t i = 0; i < count; i++) {
        mbufs[i] = frames[i].mbuf;
        if (frames[i].flags != 0) set_offloads(mbufs[i], &frames[i]);
    }
    /* It also refuses lengths that would stop a queue of the device. */
    uint16_t prepared = rte_eth_tx_prepare(port, queue, mbufs, count);
    uint16_t sent = rte_eth_tx_burst(port, queue, mbufs, prepared);
    *refused = sent == prepared && prepared < count;
    return sent;
}

/* Returns the buffers of frames to their pools. */
void shunt_dpdk_release(const struct shunt_dpdk_frame *frames, uint16_t count) {
    struct rte_mbuf *mbufs[BURST];
    count = RTE_MIN(count, BURST);
    for (uint16_t i = 0; i < count; i++) mbufs[i] = frames[i].mbuf;
    rte_pktmbuf_free_bulk(mbufs, count);
}
