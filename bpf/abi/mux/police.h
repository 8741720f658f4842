/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/* The ACL of an endpoint. Packets load it as one word. */
struct acl {
	/*
	 * Numbers of source lists: of those allowed in the lower half, of those denied in the upper
	 * one; 0: none. With SOURCE_SET the row of `source_sets` that names several.
	 */
	__u64 lists;
};

enum source_set_layout {
	SOURCE_SET = 1 << 30, /* more than there are lists */
	SOURCE_SET_LISTS = 8,
};
ABI_ENUM(source_set_layout);

/* A set of lists, which match as one. */
struct source_set {
	__u32 lists[SOURCE_SET_LISTS]; /* their numbers; from the first 0 on there are none */
};

/* The name of a prefix list, by which a restarted daemon knows it again. */
struct source_name {
	char name[64];
};

/* A prefix of a list of sources. */
struct source_key {
	__u32 length; /* bits that count: of the list, then of the address */
	__u32 list; /* SOURCE_LIST_V4 and the list's number */
	struct address address; /* of IPv4 in the first word */
};

enum source_list_layout {
	SOURCE_LIST_SHIFT = 1,
	SOURCE_LIST_V4 = 1, /* bit of source_key.list: so no prefix of IPv6 has IPv4 in it */
};
ABI_ENUM(source_list_layout);

/* What a VIP's rate limits count. */
enum vip_limit {
	VIP_LIMIT_PACKETS = 0,
	VIP_LIMIT_BYTES = 1, /* of whole frames as they come in */
	VIP_LIMIT_CONNECTIONS = 2, /* SYNs */
	VIP_LIMITS,
};
ABI_ENUM(vip_limit);

/*
 * A VIP's limits: token buckets that all CPUs share, as one word each (GCRA, ITU-T I.371), in a
 * line of their own. User space writes the first line, packets the second.
 */
struct vip_policer {
	__u64 emission_interval[VIP_LIMITS]; /* 2^-16 ns until one comes back; 0: not limited */
	__u64 burst_tolerance[VIP_LIMITS]; /* ns that all in the bucket take to come back */
	__u64 drop; /* so many of 2^32 packets are dropped: the VIP exceeds its fair share */
	__u64 until; /* time in ns at which that ends, unless the daemon renews it */
	__u64 tat[VIP_LIMITS]; /* when the bucket will be full again, in ns */
	__u64 pad2[5];
};

enum vip_cost_layout {
	VIP_COST_SHIFT = 16,
};
ABI_ENUM(vip_cost_layout);

_Static_assert(sizeof(struct acl) == 8, "acl");
_Static_assert(sizeof(struct source_key) == 24, "source_key");
_Static_assert(sizeof(struct source_set) == 32, "source_set");
_Static_assert(sizeof(struct source_name) == 64, "source_name");
_Static_assert(sizeof(struct vip_policer) == 128, "vip_policer");
