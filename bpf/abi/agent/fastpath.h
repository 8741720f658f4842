/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/redirect.h"
#include "abi/agent/session.h"

/*
 * How far a connection of a workload has left the muxes. The row's key is a struct session_key:
 * the connection as the workload sees it, whoever opened it.
 */
enum fastpath_state {
	FASTPATH_ACCEPT = 1, /* the peer may send here; it has not said that we may send there */
	FASTPATH_SEND = 2,
};

struct fastpath {
	struct address peer; /* tunnel at the other end */
	struct address own; /* tunnel at this end: the outer source */
	struct address vip; /* what the workload's packets leave as */
	__u64 sent; /* when the last packet was sent to the peer, up to 134 ms late */
	__u64 heard; /* when the peer's last packet came, up to 134 ms late */
	__be16 vip_port;
	__u8 client; /* 1: the workload opened the connection */
	__u8 pad;
	enum fastpath_state state;
};

/* What user space asks of the program fastpath_set, and its answer. */
enum fastpath_answer {
	FASTPATH_SET = 0,
	FASTPATH_SAME = 1, /* it was so already */
	FASTPATH_UNKNOWN = 2, /* no such connection here, or none that is established */
	FASTPATH_FORBIDDEN = 3, /* the VIP's connections stay with the muxes */
	FASTPATH_LOCAL = 4, /* both ends are on this host */
	FASTPATH_FULL = 5, /* no room for another row */
	FASTPATH_UNNAMED = 6, /* no redirect has named this peer */
};

struct fastpath_command {
	struct connection connection;
	struct address own;
	struct address peer;
	__u64 time; /* CLOCK_MONOTONIC in ns */
	enum fastpath_state state;
	__u32 client; /* 1: this end opened the connection */
	enum fastpath_answer answer;
	enum fastpath_state now; /* that the row is in after it */
};

enum control_kind {
	CONTROL_MESSAGE = 1, /* bytes of a message */
	CONTROL_STRAY = 2, /* a packet that came past the muxes, of no connection that may */
};

/* A record of the ring `controls`. */
struct control {
	struct address source; /* of the outer header */
	struct address destination;
	enum control_kind kind;
	__u8 from_mux;
	__u8 pad[3];
	struct connection stray; /* as on the wire: the packet's source is the client */
	__u8 message[FASTPATH_MESSAGE];
};

_Static_assert(sizeof(struct fastpath) == 72, "fastpath");
_Static_assert(sizeof(struct fastpath_command) == 96, "fastpath_command");
_Static_assert(sizeof(struct control) == 192, "control");
