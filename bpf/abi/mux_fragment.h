/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/address.h"

/* What all fragments of a datagram have in common (RFC 791, RFC 8200). */
struct fragment_key {
	struct address source;
	struct address destination;
	__u32 id; /* as on the wire */
	__u8 protocol; /* that the IP or fragment header names: IPPROTO_TCP or IPPROTO_UDP */
	__u8 pad[3];
};

/* What the first fragment told. */
struct fragment {
	__u64 seen; /* when, on the coarse monotonic clock, in ns */
	__be16 source_port;
	__be16 destination_port;
	__u16 slot; /* that the first one was sent to */
	__u16 other_slot; /* that was named with it, 0: none */
};

_Static_assert(sizeof(struct fragment_key) == 40, "fragment_key");
_Static_assert(sizeof(struct fragment) == 16, "fragment");
