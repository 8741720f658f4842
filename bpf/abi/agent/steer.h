/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"
#include "abi/shared/slot.h"

/* An outer source of packets to a VIP that switches hold; VIP not set: to any of the host's. */
struct steer_source {
	struct address vip;
	struct address source;
};

enum steer_role {
	STEER_SWITCH = 1, /* holds the VIP: brings its packets to any of its hosts */
	STEER_HOST = 2, /* one of them: steers packets to this one */
	STEER_SWITCH_BY_HOST = 3, /* a switch that has one tunnel for all backends here */
};
ABI_ENUM(steer_role);

/* The VXLAN network of packets that switches bring, which virtual networks can't have: "WEI". */
enum steer_network {
	STEER_VNI = 0x574549,
};
ABI_ENUM(steer_network);

/*
 * An endpoint of such a VIP, as in struct endpoint_key: port 0 takes what no other one does. Port 0
 * and protocol 0 is the row of the VIP itself: if workloads leave as it, its buckets are ranges of
 * 8 ports, and its backends these workloads.
 */
struct steer_key {
	struct address vip;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

enum steer_range_layout {
	STEER_RANGE_SHIFT = 3,
};
ABI_ENUM(steer_range_layout);

enum steer_flag {
	STEER_COOKIES = 1, /* segments may name their slot */
	STEER_COOKIES_SETTLED = 2, /* and those of all connections do that have timestamps */
	STEER_AFFINITY = 4, /* the bucket is that of the client's address */
	STEER_UDP_LOCAL = 8, /* flows of UDP are served where they arrive */
	STEER_EMPTY = 16, /* no backend takes new connections: there are no buckets */
	STEER_PING = 32, /* of a VIP's row: it answers pings */
	STEER_BY_HOST = 64, /* switches have one tunnel for all backends here: see steer_locals */
};
ABI_ENUM(steer_flag);

struct steer_endpoint {
	__u32 number; /* in the keys of its buckets and backends; not 0 */
	__u32 bucket_mask; /* their number, a power of two, less one */
	__u32 flags; /* enum steer_flag */
	__u32 pad;
};

struct steer_bucket_key {
	__u32 endpoint;
	__u32 row; /* of the bucket's number, less the lowest bits */
};

enum steer_bucket_layout {
	STEER_BUCKETS_PER_ROW = 32,
	STEER_PREVIOUS_SHIFT = 16, /* above the slot stands the one before, while it counts */
};
ABI_ENUM(steer_bucket_layout);

/*
 * Buckets, each a word. The row says whose it is: the kernel may reuse the memory of a replaced one
 * while a packet still reads it.
 */
struct steer_bucket_row {
	struct steer_bucket_key key;
	__u32 buckets[STEER_BUCKETS_PER_ROW];
};

struct steer_backend_key {
	__u32 endpoint;
	__u32 slot;
};

enum steer_backend_flag {
	STEER_BACKEND_DOWN = 1, /* no connection can be there */
	STEER_BACKEND_NEW = 2, /* it takes new connections: buckets name it */
};
ABI_ENUM(steer_backend_flag);

struct steer_backend {
	struct address tunnel;
	__u32 flags; /* enum steer_backend_flag */
};

enum steer_local {
	STEER_LOCALS_MAX = 64,
};
ABI_ENUM(steer_local);

/* Slots of an endpoint's backends on this host that take new connections, by their shares. */
struct steer_locals {
	__u32 count;
	__u16 slots[STEER_LOCALS_MAX];
};

/* A workload that has answered a SYN with timestamps by one with timestamps. */
struct steer_workload {
	struct address dip;
	__be16 port;
	__u16 pad;
};

/* Why a packet that a switch brought went where it did. */
enum steer_reason {
	STEER_BY_ARRIVAL, /* stayed: a new connection, whose cookie will name this backend */
	STEER_BY_SESSION, /* stayed: the connection is known here */
	STEER_BY_COOKIE_HERE, /* stayed: the cookie names a backend of this host */
	STEER_BY_BUCKET_HERE, /* stayed: the bucket does */
	STEER_BY_COOKIE, /* to the backend that the cookie names */
	STEER_BY_BUCKET, /* to the backend that the bucket names */
	STEER_BY_QUOTE, /* an ICMP error, to the backend of the connection that it is about */
	STEER_BY_PORT, /* to or at the workload whose own connections leave by the port */
	STEER_BY_MUX, /* to a mux: a fragment, or an ICMP error whose connection is unknown here */
	STEER_REASONS,
};

enum steer_relay {
	STEER_RELAYS_V4 = 0, /* rows of steer_relays */
	STEER_RELAYS_V6 = 1,
	STEER_RELAY_FAMILIES = 2,
	STEER_RELAYS_MAX = 64, /* a power of two */
};
ABI_ENUM(steer_relay);

/* Muxes of one family, to relay to. */
struct steer_relays {
	__u32 count;
	struct address addresses[STEER_RELAYS_MAX];
};

_Static_assert(sizeof(struct steer_relays) == 4 + 16 * 64, "steer_relays");
_Static_assert(sizeof(struct steer_source) == 32, "steer_source");
_Static_assert(sizeof(struct steer_key) == 20, "steer_key");
_Static_assert(sizeof(struct steer_endpoint) == 16, "steer_endpoint");
_Static_assert(sizeof(struct steer_bucket_row) == 136, "steer_bucket_row");
_Static_assert(sizeof(struct steer_backend) == 20, "steer_backend");
_Static_assert(sizeof(struct steer_locals) == 132, "steer_locals");
_Static_assert(sizeof(struct steer_workload) == 20, "steer_workload");
_Static_assert(SLOT_MASK >> (int)STEER_PREVIOUS_SHIFT == 0, "a bucket is a word");
