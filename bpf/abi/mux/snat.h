/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * Source NAT (Ananta, section 3.2.3): a VIP's ports belong to workloads by ranges of 8, aligned;
 * range n holds the ports from 8 n on. Identifiers of ICMP echo count as ports.
 */
enum snat_range_layout {
	SNAT_RANGE_SHIFT = 3,
	SNAT_RANGES = 1 << (16 - SNAT_RANGE_SHIFT), /* of a VIP */
	SNAT_RANGES_PER_ROW = 16,
};
ABI_ENUM(snat_range_layout);

/* Owners of 16 ranges, in a cache line: rows of snat_owners; 0: the range is free. */
struct snat_row {
	__u32 owners[SNAT_RANGES_PER_ROW];
};

_Static_assert(sizeof(struct snat_row) == 64, "snat_row");
