/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/*
 * Sessions by the tenant of the client's network. Each tenant has rows of its
 * own; beyond them it borrows, and all may borrow together what is nobody's
 * own. Row 0: what all borrow, in rows, own.
 */
struct overlay_tenant {
	__s32 rows;
	__s32 half_open; /* of these */
	__u32 own; /* user space writes these three */
	__u32 most;
	__u32 half_open_most;
	__u32 pad;
	__u64 refused;
	__u64 reset_tat; /* of the bucket of resets for segments of no session */
};

_Static_assert(sizeof(struct overlay_tenant) == 40, "overlay_tenant");
