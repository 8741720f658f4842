/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"

enum backend_flag {
	BACKEND_VALID = 1, /* the slot has a backend */
	BACKEND_V4 = 2, /* the tunnel's address is IPv4 */
	BACKEND_DOWN = 4, /* flows that remember it are chosen anew */
	BACKEND_HOST_SHIFT =
		8, /* from here on: the number of its host, an index of host_keys; 0: none */
};

struct backend {
	struct address tunnel; /* destination of the outer header */
	__u32 next_hop; /* index of next_hops; 0: not resolved */
	enum backend_flag flags;
};

_Static_assert(sizeof(struct backend) == 24, "backend");
