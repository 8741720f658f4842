/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/address.h"

/* What packets to an endpoint are held against before it takes them. Loaded as one word. */
struct guard {
	/* Numbers of lists of sources: that may come, below, and that may not, above; 0: none. */
	__u64 lists;
};

/* A prefix of a list of sources. */
struct source_key {
	__u32 length; /* bits that count: of the list, then of the address */
	__u32 list; /* SOURCE_LIST_V4 and the list's number */
	struct address address; /* of IPv4 in the first word */
};

enum {
	SOURCE_LIST_SHIFT = 1,
	SOURCE_LIST_V4 = 1, /* bit of source_key.list: so no prefix of IPv6 has IPv4 in it */
};

/* What a VIP may have so much of each second. */
enum vip_limit {
	VIP_LIMIT_PACKETS = 0,
	VIP_LIMIT_BYTES = 1, /* of whole frames as they come in */
	VIP_LIMIT_CONNECTIONS = 2, /* SYNs */
	VIP_LIMITS,
};

/*
 * A VIP's limits: token buckets that all CPUs share, as one word each (GCRA, ITU-T I.371), in a
 * line of their own. User space writes the first line, packets the second.
 */
struct vip_guard {
	__u64 cost[VIP_LIMITS]; /* 2^-16 ns until one comes back; 0: not limited */
	__u64 most[VIP_LIMITS]; /* ns that all in the bucket take to come back */
	__u64 drop; /* so many of 2^32 packets are dropped: the VIP has more than its share */
	__u64 until; /* this time, in ns: who says so must be there to say when it is over */
	__u64 full[VIP_LIMITS]; /* when the bucket will be full again, in ns */
	__u64 pad2[5];
};

enum {
	VIP_COST_SHIFT = 16,
};

_Static_assert(sizeof(struct guard) == 8, "guard");
_Static_assert(sizeof(struct source_key) == 24, "source_key");
_Static_assert(sizeof(struct vip_guard) == 128, "vip_guard");
