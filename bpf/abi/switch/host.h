/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* A VIP: where its ECMP group lies in table ecmp. */
struct host {
	__u32 base;
	__u32 size; /* rows; never 0 */
	__u32 id; /* of its counters, and of its row in inners */
	__u32 tip; /* not 0: packets come encapsulated, for the address in inners */
};

_Static_assert(sizeof(struct host) == 16, "host");
