/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"
#include "abi/shared/slot.h"

enum bucket_layout {
	BUCKETS_PER_ROW = 32,
	/*
	 * The bucket moved lately: what it named before stands in the same place of as many rows
	 * further on as the endpoint has rows of buckets.
	 */
	BUCKET_HAS_PREVIOUS = 1 << SLOT_BITS,
	/*
	 * A flow of the bucket may be remembered at another slot than the bucket names: it moved.
	 * User space takes the mark away once no such flow was seen for as long as one lasts.
	 */
	BUCKET_MOVED = 1 << (SLOT_BITS + 1),
	ELSEWHERE_PARTS = 64, /* bits of a row of `flows_elsewhere`, by the bucket's hash */
};
ABI_ENUM(bucket_layout);

/* 32 buckets in a cache line: the slots that they name, 0 for none. */
struct bucket_row {
	__u16 slots[BUCKETS_PER_ROW];
};

_Static_assert(sizeof(struct bucket_row) == 64, "bucket_row");
