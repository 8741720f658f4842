/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"
#include "abi/shared/slot.h"

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
	/* A segment of the client that is no SYN; after a SYN, one that acknowledges the SYN/ACK.
	 */
	SESSION_CLIENT_ACK = 0x01,
	SESSION_WORKLOAD_ANSWER = 0x02, /* a segment of the workload that is no reset */
	SESSION_CLIENT_FIN = 0x04, /* that the workload has acknowledged */
	SESSION_WORKLOAD_FIN = 0x08,
	/* By the workload, or by the client with the right number, and no answer of the workload
	   since. */
	SESSION_RESET = 0x10,
	SESSION_PROXIED =
		0x20, /* begun by a SYN cookie: the agent shakes hands with the workload */
	SESSION_REPLAYED = 0x40, /* and has: numbers are translated */
	SESSION_OWN_TICKS = 0x80, /* its cookie is for timestamps alone: muxes do not go by it */
	SESSION_CLIENT_SYN = 0x100, /* it began by a SYN: what the client acknowledges is known */
	SESSION_CLIENT_RESET =
		0x200, /* by the client, maybe forged: user space asks the workload */
	SESSION_FIN_NOTED = 0x400, /* of the client, maybe forged: client_fin is its number */
	/* The row was copied from new_sessions to sessions: events are noted there. */
	SESSION_MOVED = 0x800,
	/* Of Multipath TCP: segments without a cookie come by another host, which counts them. */
	SESSION_JOINED = 0x1000,
};

/*
 * A cookie is the backend's slot in the low bits of the TSval that the client sees. Above them
 * stands the workload's own, shifted left by cookie_scale: 10 makes ticks of 8 of its units.
 */
enum session_layout {
	COOKIE_BITS = SLOT_BITS,
	SESSION_TICKS = 16, /* a power of two */
};
ABI_ENUM(session_layout);

/* A connection without a cookie uses the first 64 bytes only: one cache line. */
struct session {
	struct address vip;
	__be16 vip_port;
	__u16 cookie; /* slot in the client's timestamps; 0: they are not rewritten */
	enum session_event events; /* bits of it; none for UDP */
	__u64 last_seen; /* CLOCK_MONOTONIC in ns, up to 134 ms late: see session_seen() */
	__u64 last_sent; /* when tsval was, or client_next and workload_seq */
	__u32 tsval; /* the workload's last one, as it sent it; 0: none yet */
	__u32 client_tsval; /* the client's last one */
	__u32 client_next; /* the workload's acknowledgement number, up to 134 ms late */
	__u32 workload_seq; /* its sequence number, up to 134 ms late */
	__u32 tag; /* see session_tag(); 0: made by a version without tags */
	__u16 offer; /* cookie if the answer to the client's SYN carries a timestamp */
	__u8 cookie_scale;
	__u8 direct; /* 1: a row of fastpath says where the workload's packets go */
	__u32 tsvals[SESSION_TICKS]; /* by tick, the last TSval that the workload sent in it */
	__u32 idle_timeout; /* the rule's */
	__u32 overflow; /* its place in overflow_keys, from 1; 0: it is within quotas */
	__u32 client_fin; /* what acknowledges the client's FIN, if SESSION_FIN_NOTED */

	/* Of connections that began by a SYN cookie; see agent/syncookie.h. */
	__u32 isn; /* the cookie: what the client took for the workload's first number; 0: none */
	__u32 shift; /* what the client sees of the workload's numbers is so much more */
	__u32 clock_shift; /* likewise of its TSval: those above are with it */
	__u16 window; /* the client's, as it sent it with the cookie */
	__s8 window_shift; /* what the client sees of the workload's windows is so many bits higher
			    */
	__u8 pad;
	__be32 token; /* of a connection of Multipath TCP: see agent/multipath.h; 0: none */
};

_Static_assert(sizeof(struct session_key) == 40, "session_key");
_Static_assert(sizeof(struct session) == 160, "session");
