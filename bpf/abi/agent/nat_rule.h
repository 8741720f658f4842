/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"

/* Backends of one endpoint on one host differ in the outer destination. */
struct nat_rule_key {
	struct address vip;
	struct address tunnel;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

enum nat_rule_flag {
	NAT_RULE_COOKIES = 0x1, /* new connections carry the slot in their timestamps */
	NAT_RULE_FASTPATH = 0x2, /* connections may leave the muxes */
	NAT_RULE_SYN_COOKIES = 0x4, /* muxes may answer SYNs by cookies */
	NAT_RULE_SYN_ALWAYS = 0x8, /* and do: what is in the middle of no connection is forged */
	NAT_RULE_MULTIPATH = 0x10, /* further subflows of Multipath TCP find their connection */
};

struct nat_rule {
	struct address dip;
	__be16 port;
	__u16 slot; /* number of the backend within its endpoint; 0: none */
	enum nat_rule_flag flags; /* bits of it */
	__u32 idle_timeout; /* of open connections and UDP flows, in ms; 0: the agent's own */
};

_Static_assert(sizeof(struct nat_rule_key) == 36, "nat_rule_key");
_Static_assert(sizeof(struct nat_rule) == 28, "nat_rule");
