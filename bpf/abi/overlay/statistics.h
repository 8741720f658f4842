/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/counter.h"

/* A backend of this host, for clients by one attachment. */
struct overlay_backend_key {
	__u32 attachment;
	__u32 rule;
};

struct overlay_backend_traffic {
	struct counter in; /* from clients to the server */
	struct counter out;
	__u64 opened;
	__u64 confirmed; /* of these, those that the client has acknowledged */
	__u64 refused; /* for lack of room */
	__u64 reset; /* by either end */
	__u64 repeated; /* SYNs that were sent again */
};

/* Handshake RTTs: bucket n counts those of less than 2^(n + shift) ns, the last one all longer
 * ones. */
enum overlay_rtt {
	OVERLAY_RTT_SHIFT = 15, /* 33 us */
	OVERLAY_RTT_BUCKETS = 18, /* to 2.1 s */
};
ABI_ENUM(overlay_rtt);

/* Of an attachment: from the server's SYN-ACK to the client's acknowledgement. */
struct overlay_handshakes {
	__u64 ns; /* of all together */
	__u64 buckets[OVERLAY_RTT_BUCKETS];
};

_Static_assert(sizeof(struct overlay_backend_key) == 8, "overlay_backend_key");
_Static_assert(sizeof(struct overlay_backend_traffic) == 72, "overlay_backend_traffic");
_Static_assert(sizeof(struct overlay_handshakes) == 152, "overlay_handshakes");
