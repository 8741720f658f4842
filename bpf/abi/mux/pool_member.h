/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/* Address families of tunnels between two muxes. */
enum pool_member_family {
	POOL_MEMBER_V4 = 0,
	POOL_MEMBER_V6 = 1,
	POOL_MEMBER_FAMILIES = 2,
};

/* A mux of the pool: its tunnel addresses and the next hops to them. */
struct pool_member {
	struct address addresses[POOL_MEMBER_FAMILIES]; /* all zero: none of that family */
	__u32 next_hops[POOL_MEMBER_FAMILIES]; /* index of next_hops; 0: not resolved */
	__u64 seed; /* of its name: the same on every mux */
};

enum pool_member_size { POOL_MEMBERS_MAX = 64 };
ABI_ENUM(pool_member_size);

/* The muxes of the pool, this one included. Rows from count on are not valid. */
struct pool_members {
	struct pool_member rows[POOL_MEMBERS_MAX];
	__u32 count; /* at most POOL_MEMBERS_MAX; 0: this mux is alone */
	__u32 self; /* index of rows */
};

_Static_assert(sizeof(struct pool_member) == 48, "pool_member");
_Static_assert(sizeof(struct pool_members) == 48 * 64 + 8, "pool_members");
