/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* 32 buckets in a cache line: the slots that they name, 0 for none. */
enum { BUCKETS_PER_ROW = 32 };

struct bucket_row {
	__u16 slots[BUCKETS_PER_ROW];
};

_Static_assert(sizeof(struct bucket_row) == 64, "bucket_row");
