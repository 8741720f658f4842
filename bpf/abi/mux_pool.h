/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/address.h"
#include "abi/flowhash.h"

/* What all endpoints share. */
struct pool {
	struct address source4; /* outer source of IPv4 tunnels; all zero: none */
	struct address source6; /* outer source of IPv6 tunnels; all zero: none */
	struct flowhash_key hash_key;
	__u32 mtu; /* of the interface, in bytes from the IP header on */
	__u32 pad;
	__u64 generation; /* of the tables, for the control plane: packets do not read it */
};

_Static_assert(sizeof(struct pool) == 88, "pool");
