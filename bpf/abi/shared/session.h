/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/* What has been seen of a connection; bits of overlay_session.events. */
enum overlay_event {
	OVERLAY_CLIENT_ACK = 0x01, /* the client has acknowledged the server's SYN-ACK; of UDP:
				      there was an answer */
	OVERLAY_SERVER_ANSWER = 0x02, /* a segment of the server that is no reset */
	OVERLAY_CLIENT_FIN = 0x04,
	OVERLAY_SERVER_FIN = 0x08,
	OVERLAY_RESET = 0x10, /* by either end, and no segment of the server since */
	OVERLAY_VIA_MUX = 0x20, /* answers go by a mux, as the last FBT says */
	OVERLAY_PROXIED = 0x40, /* it began by a SYN cookie: see shift */
	OVERLAY_UDP = 0x80, /* none that happens: it is of datagrams, and has no numbers */
};
ABI_ENUM(overlay_event);

/*
 * A tag is the table's index of its row: the connection's hash, a generation that tells a
 * connection from one with the same ends before it, and the row's state. A tag of 0: the row is
 * free.
 */
enum overlay_layout {
	OVERLAY_WAYS = 16, /* rows of a set */
	OVERLAY_WAY_BITS = 4,
	OVERLAY_ROW_BITS = 22, /* most rows: as many as 100.64.0.0/10 has addresses */
	OVERLAY_PENDING = 0x1, /* being made, or being ended */
	OVERLAY_LIVE = 0x2,
	OVERLAY_STATE_MASK = 0x3,
	OVERLAY_GENERATION = 0x4, /* counts up by so much */
	OVERLAY_GENERATION_MASK = 0x1c,
	OVERLAY_HASH_SHIFT = 5,
	OVERLAY_TICK_SHIFT = 24, /* a tick is 2^24 ns: 16.8 ms */
	/* Ticks until the row of a connection that is over may be another's. */
	OVERLAY_HALF_OPEN_TICKS = 1788, /* 30 s */
	OVERLAY_RESET_TICKS = 596, /* 10 s */
	OVERLAY_CLOSED_TICKS = 7153, /* 2 min: the server's TIME-WAIT has the row's address */
};
ABI_ENUM(overlay_layout);

/*
 * A connection of a virtual network's client with a server of this host (NGLB, figure 10). The
 * server sees the client as the local address: the local prefix plus the row's number, and the
 * client's port.
 */
struct overlay_session {
	struct address client;
	__u32 host; /* number of the client's host */
	__u16 attachment;
	__u16 answered; /* half-open: when its SYN-ACK left, in 256 ns of the tick; 0: not known */
	__u16 rule; /* backend, own tunnel, timeouts */
	__u16 counters; /* number of those by attachment and backend; 0: none */
	__be16 client_port;
	__be16 vip_port;
	__u8 client_mac[6];
	__u16 events; /* enum overlay_event */
	__u32 client_next; /* the server's last acknowledgement number */
	__u32 server_next; /* the client's; until there is one, what is expected */
	__u32 seen; /* tick of CLOCK_MONOTONIC */
	__u32 shift; /* OVERLAY_PROXIED and the server has answered: what the client's numbers of
			the server are ahead of the server's own */
};

struct overlay_set {
	__u32 tags[OVERLAY_WAYS];
	struct overlay_session rows[OVERLAY_WAYS];
};

_Static_assert(sizeof(struct overlay_session) == 56, "overlay_session");
_Static_assert(sizeof(struct overlay_set) == 960, "overlay_set");
