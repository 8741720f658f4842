/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* A VIP: where its ECMP group lies in table ecmp. */
struct host {
	__u32 base;
	__u32 size; /* rows; never 0 */
	__u32 id; /* of its counters */
};

_Static_assert(sizeof(struct host) == 12, "host");
