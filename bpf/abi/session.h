/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/address.h"

/* A connection as the workload sees it, so that its replies find it. */
struct session_key {
	struct address client;
	struct address dip;
	__be16 client_port;
	__be16 dip_port;
	__u8 protocol;
	__u8 pad[3];
};

/* What has been seen of a connection; bits of session.events. Each is set once, by any CPU. */
enum session_event {
	SESSION_CLIENT_ACK = 0x01, /* a segment of the client that is no SYN */
	SESSION_WORKLOAD_ANSWER = 0x02, /* a segment of the workload that is no reset */
	SESSION_CLIENT_FIN = 0x04,
	SESSION_WORKLOAD_FIN = 0x08,
	SESSION_RESET = 0x10, /* by either side, and no answer of the workload since */
};

struct session {
	struct address vip;
	__be16 vip_port;
	__u16 pad;
	enum session_event events; /* bits of it; none for UDP */
	__u64 last_seen; /* CLOCK_MONOTONIC in ns, up to 134 ms late: see session_note() */
};

_Static_assert(sizeof(struct session_key) == 40, "session_key");
_Static_assert(sizeof(struct session) == 32, "session");
