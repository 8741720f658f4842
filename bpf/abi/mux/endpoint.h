/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/*
 * Port 0 takes what no other endpoint of the VIP and protocol does. Protocol 0 and port 0 is the
 * row of the VIP itself, which has no buckets.
 */
struct endpoint_key {
	struct address vip;
	__be16 port;
	__u8 protocol;
	__u8 pad[5]; /* to whole words of 64 bits, as keys are compared */
};

_Static_assert(sizeof(struct endpoint_key) == 24, "endpoint_key");

enum endpoint_flag {
	/*
	 * A bucket of it has moved, so the flow table may remember an earlier connection of a
	 * new one's five-tuple at another backend. Until then a SYN need not look.
	 */
	ENDPOINT_REMAPPED = 1,
	ENDPOINT_COOKIES = 2, /* TCP's timestamps may name the backend's slot */
	ENDPOINT_COOKIES_WARMING =
		4, /* connections from before cookies may live: ask the flow table first */
	ENDPOINT_AFFINITY = 8, /* the bucket is that of the client's address */
	ENDPOINT_PING = 16, /* the VIP answers echo requests */
	ENDPOINT_VIP = 32, /* the row of a VIP */
	ENDPOINT_SNAT = 64, /* of a VIP that workloads leave as */
	ENDPOINT_FASTPATH = 128, /* connections may leave the muxes */
	ENDPOINT_SOURCES = 256, /* it has an ACL: its row of `acls` */
	ENDPOINT_SYN_COOKIES = 512, /* SYNs are answered here */
	ENDPOINT_SYN_COUNTED = 1024, /* whether handshakes are completed is looked at */
	ENDPOINT_LIMITED = 2048, /* its VIP has rate limits: its row of `vip_policers` */
	ENDPOINT_FAIR_SHARE = 4096, /* the mux is overloaded: packets are sampled, or dropped */
	ENDPOINT_SYN_SAMPLED =
		8192, /* the SYNs of handshakes that are looked at are answered here */
	ENDPOINT_HARDWARE = 16384, /* of a VIP that switches hold: see relay_hosts */
	ENDPOINT_MULTIPATH = 32768, /* SYNs that join a connection are not answered here */
};

/*
 * An endpoint's row. Its slices are packed into one word, which a packet loads once: the
 * kernel may reuse a replaced row's memory while a packet still reads it, so two words could
 * be of two versions. From the lowest bit:
 *
 *   27  first row of its slice of `buckets`
 *    5  bucket bits: it has 1 << bits buckets; 31: it has none, drop
 *   28  first row of its slice of `backends`
 *    4  slot bits: the slice has 1 << bits rows
 *
 * Of a VIP's row with ENDPOINT_SNAT the first member is the first row of its slice of
 * `snat_ranges`, which has all ranges of the VIP; the others say that there is nothing.
 */
struct endpoint {
	__u64 slices;
	__u64 salt; /* drawn when the endpoint is made: flows of an earlier one are not its own */
	__u32 id; /* index of endpoint_counts; 0 is invalid: a VIP without source NAT */
	enum endpoint_flag flags;
	__u32 vip; /* index of vip_usage; 0 is invalid */
	__u32 flow_limit; /* cells of `flows` that the VIP's trusted flows may have */
	__u32 idle; /* ticks that a silent flow is remembered */
	__u32 udp_packets; /* after which a flow of UDP may leave the muxes; 0: never */
};

_Static_assert(sizeof(struct endpoint) == 40, "endpoint");

enum endpoint_layout {
	ENDPOINT_BUCKET_BITS_SHIFT = 27,
	ENDPOINT_FIRST_BACKEND_SHIFT = 32,
	ENDPOINT_SLOT_BITS_SHIFT = 60,
	ENDPOINT_NO_BUCKETS = 31,
};
ABI_ENUM(endpoint_layout);
