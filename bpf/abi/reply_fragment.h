/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/address.h"

/* A datagram that a workload answers in pieces, of which only the first one has ports. */
struct reply_fragment_key {
	struct address client;
	struct address dip;
	__u32 id; /* as on the wire */
	__u8 protocol;
	__u8 pad[3];
};

struct reply_fragment {
	struct address vip;
};

_Static_assert(sizeof(struct reply_fragment_key) == 40, "reply_fragment_key");
_Static_assert(sizeof(struct reply_fragment) == 16, "reply_fragment");
