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

_Static_assert(sizeof(struct guard) == 8, "guard");
_Static_assert(sizeof(struct source_key) == 24, "source_key");
