/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/*
 * What a vendor chose, and nobody knows: polynomial, seed, and which bits of the sum are the hash.
 * Drawn when the program is loaded.
 */
struct vendor {
	__u32 table[4][256]; /* of the sum, four bytes at a time */
	__u32 seed;
	__u32 offset; /* bits of the sum that are left out, at most 15 */
};

_Static_assert(sizeof(struct vendor) == 4104, "vendor");
