/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/* Ways between two muxes. */
enum member_way {
	MEMBER_V4 = 0,
	MEMBER_V6 = 1,
	MEMBER_WAYS = 2,
};

/* A mux of the pool. */
struct member {
	struct address addresses[MEMBER_WAYS]; /* all zero: none of that family */
	__u32 next_hops[MEMBER_WAYS]; /* index of next_hops; 0: not resolved */
	__u64 seed; /* of its name: the same on every mux */
};

enum member_size { MEMBERS_MAX = 64 };
ABI_ENUM(member_size);

/* The pool as this mux knows it. Those beyond count are not to be read. */
struct members {
	struct member rows[MEMBERS_MAX];
	__u32 count; /* at most MEMBERS_MAX; 0: this mux is alone */
	__u32 self; /* index of rows */
};

_Static_assert(sizeof(struct member) == 48, "member");
_Static_assert(sizeof(struct members) == 48 * 64 + 8, "members");
