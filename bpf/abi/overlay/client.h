/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The client's side of bypass (NGLB's AVS). */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"
#include "abi/shared/counter.h"

/* A client's workload, by the ifindex of its host-side interface. */
struct overlay_port {
	__u32 vni; /* of its network */
	__u32 flows; /* bypass flows that it began; user space counts them anew */
	__u32 most; /* beyond so many its connections stay with the muxes */
	__u32 pad;
};

/* Whose an address of a virtual network is. */
struct overlay_port_address {
	__u32 ifindex;
	__u8 mac[6];
	__u8 pad[2];
};

enum bypass_timeout {
	BYPASS_VAIN_TICKS = 149, /* 2.5 s without an answer: the server's host may have lost it */
};
ABI_ENUM(bypass_timeout);

/* Which way a client's segments take. By the muxes, but for the last state. */
enum bypass_state {
	BYPASS_NONE = 0,
	BYPASS_HALF_OPEN, /* a SYN was sent */
	BYPASS_BY_MUX, /* a mux has answered it: a SYN cookie, or full NAT */
	BYPASS_LOST, /* in mid-connection: the server's host is not known, or does not answer */
	BYPASS_DIRECT, /* straight to the server's host */
};

enum bypass_flow_mark {
	BYPASS_FLOW_UDP = 0x40000000, /* beside the attachment's number: a flow of datagrams */
};
ABI_ENUM(bypass_flow_mark);

/* A connection with a VIP, as the client's host knows it. */
struct bypass_flow_key {
	struct address client;
	__u32 attachment; /* and bits of enum bypass_flow_mark */
	__be16 client_port;
	__be16 vip_port;
};

/*
 * What is learnt of it. A row that is lost costs one packet by the muxes. The host changes with the
 * whole row only, so that readers see one or the other. Of datagrams there are no numbers: the two
 * are the ticket, with the low bits of its key's id in the third byte of the second.
 */
struct bypass_flow {
	struct address host; /* tunnel address of the server's host */
	__u32 client_next; /* half-open: the client's ISN + 1; else the end of what it sent last */
	__u32 server_next; /* half-open: the end of the SYN's data; else the client's last
			      acknowledgement number */
	__u32 waiting; /* tick since when the host owes an answer; 0: it owes none */
	__u32 seen; /* tick of CLOCK_MONOTONIC */
	enum bypass_state state;
	__u32 events; /* of enum overlay_event: the FINs, and OVERLAY_RESET; of datagrams the tick
			 of the last change of state, never 0 */
};

/* Of an attachment, at the client's host. */
struct bypass_traffic {
	struct counter direct; /* sent straight to servers' hosts */
	struct counter by_mux; /* sent to the muxes */
	struct counter in; /* delivered to clients */
	__u64 begun; /* handshakes */
	__u64 repeated; /* SYNs that were sent again */
	__u64 learnt; /* hosts, by their SYN-ACK */
	__u64 relearnt; /* likewise, in mid-connection */
	__u64 lost;
};

_Static_assert(sizeof(struct overlay_port) == 16, "overlay_port");
_Static_assert(sizeof(struct overlay_port_address) == 12, "overlay_port_address");
_Static_assert(sizeof(struct bypass_flow_key) == 24, "bypass_flow_key");
_Static_assert(sizeof(struct bypass_flow) == 40, "bypass_flow");
_Static_assert(sizeof(struct bypass_traffic) == 88, "bypass_traffic");
