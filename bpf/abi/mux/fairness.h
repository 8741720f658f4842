/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/* What comes for a VIP from one prefix of sources: a /24 of IPv4, a /56 of IPv6. */
struct share_key {
	__u64 prefix; /* the bytes as they come, SHARE_V4 of IPv4, in the top one */
	__u32 vip; /* index of vip_usage */
	__u32 pad;
};

/*
 * A cell of a majority-vote sketch (MV-Sketch, Tang et al., INFOCOM 2019): all is the number of
 * sampled packets that fell into it, lead by how many the candidate's outvote the others'.
 */
struct heavy_hitter {
	struct share_key candidate;
	__u64 all;
	__u64 lead;
};

enum share_layout {
	SHARE_PREFIX_V4 = 24, /* bits of a source prefix */
	SHARE_PREFIX_V6 = 56,
	SHARE_V4 = 4, /* top byte of share_key.prefix */
	SHARE_SAMPLE = 16, /* one packet of so many is sampled */
	HEAVY_HITTER_ROWS = 2, /* of the sketch, each with a hash of its own */
	HEAVY_HITTER_COLUMNS = 1024,
	HEAVY_HITTER_CELLS = HEAVY_HITTER_ROWS * HEAVY_HITTER_COLUMNS,
	SHARE_SOURCES = 256, /* prefixes with a drop probability of their own */
};
ABI_ENUM(share_layout);

_Static_assert(sizeof(struct share_key) == 16, "share_key");
_Static_assert(sizeof(struct heavy_hitter) == 32, "heavy_hitter");
