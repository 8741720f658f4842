/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* Whether packets of a VIP come encapsulated, for the address in inners. */
enum tip {
	TIP_NONE = 0, /* they do not */
	TIP_ANY = 1, /* from any outer source */
	TIP_LISTED = 2, /* from those in tip_sources */
};

/* A VIP: where its ECMP group lies in table ecmp. */
struct host {
	__u32 base;
	__u32 size; /* rows; never 0 */
	__u32 id; /* of its counters, and of its rows in inners and tip_sources */
	enum tip tip;
};

_Static_assert(sizeof(struct host) == 16, "host");
