/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"
#include "abi/shared/flowhash.h"

enum settings_flag {
	SETTINGS_GUE = 1, /* encapsulate in GUE, not in IP alone */
	SETTINGS_SPREAD4 = 2, /* the source of IPv4 tunnels is any of a prefix, by flow hash */
	SETTINGS_SPREAD6 = 4,
	SETTINGS_ALL_PORTS = 8, /* some endpoint has port 0 */
	SETTINGS_SNAT = 16, /* some VIP has source NAT */
};

/* What holds for all endpoints of a mux. */
struct mux_settings {
	struct address source4; /* outer source of IPv4 tunnels; all zero: none */
	struct address source6; /* outer source of IPv6 tunnels; all zero: none */
	struct address spread4; /* with SETTINGS_SPREAD4: bits of the source that the hash fills */
	struct address spread6;
	struct flowhash_key hash_key;
	__u32 mtu; /* of the interface, in bytes from the IP header on */
	enum settings_flag flags;
	__u64 generation; /* of the tables, for the control plane: packets do not read it */
	__u64 mac; /* of the interface: the first 8 bytes of a frame to it, less the last 2 */
	__u32 mss4; /* what an answer to a SYN announces: it fits every tunnel; 0: the least */
	__u32 mss6;
};

_Static_assert(sizeof(struct mux_settings) == 136, "mux_settings");
