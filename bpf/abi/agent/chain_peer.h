/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/agent/nat_rule.h"

/* An outer source that may hand packets of the rule's endpoint to its backend, or back to it. */
struct chain_peer {
	struct nat_rule_key rule;
	struct address source;
};

/* A prefix of addresses, as the kernel's tries want it: v4 is mapped, so /24 has 120 bits. */
struct prefix {
	__u32 bits;
	struct address address;
};

_Static_assert(sizeof(struct chain_peer) == 52, "chain_peer");
_Static_assert(sizeof(struct prefix) == 20, "prefix");
