/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/* Until when this mux may answer ARP and NDP for the VIPs in `neighbors`: all of them have one
 * lease. */
struct neighbor_lease {
	__u64 until; /* of CLOCK_BOOTTIME, in ns; 0: it never had one */
};

_Static_assert(sizeof(struct neighbor_lease) == 8, "neighbor_lease");

enum neighbor_size { NEIGHBORS_MAX = 1024 };
ABI_ENUM(neighbor_size);
