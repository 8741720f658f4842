/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/* What the overlay programs say of a packet: one name for each reason. Counters
 * are keyed by it. */
enum verdict {
	VERDICT_NONE = 0, /* go on to the next step; never the last word */

	/* Left untouched. */
	VERDICT_PASS_OTHER, /* to another MAC, tagged, or not UDP; from a server: not
			       TCP or UDP */
	VERDICT_PASS_NOT_VXLAN,
	VERDICT_PASS_NOT_OURS, /* VXLAN of no VIP that is attached here: the user's
				  own overlay */
	VERDICT_PASS_NOT_LOCAL, /* from a server, to none of the local addresses */
	VERDICT_PASS_NOT_A_VIP, /* from a client, to no VIP that is attached to its network */

	/* Towards a server: decapsulated, client and VIP replaced by local address
	   and backend. */
	VERDICT_DELIVER_NATIVE,
	VERDICT_DELIVER_INTERFACE,

	/* Likewise, of a client that a mux answered by a SYN cookie: the segment becomes a SYN. */
	VERDICT_SYNCOOKIE_NATIVE,
	VERDICT_SYNCOOKIE_INTERFACE,

	/* Towards a client's host: encapsulated. */
	VERDICT_REPLY,
	VERDICT_REPLY_BY_MUX, /* which sends it on */
	VERDICT_REPLY_LOCAL, /* the client is on this host, too */
	VERDICT_RESET_CLIENT, /* a segment of no session became a reset for its sender
			       */

	/* From a client, encapsulated: straight to the server's host, which may be this one, or to
	   the muxes. */
	VERDICT_SEND_DIRECT,
	VERDICT_SEND_LOCAL,
	VERDICT_SEND_MUX,

	/* To a client: decapsulated. */
	VERDICT_DELIVER_CLIENT,

	/* Back to the client that asks. */
	VERDICT_ANSWER_ARP,
	VERDICT_ANSWER_ND,
	VERDICT_ANSWER_TOO_BIG, /* for the uplink, once encapsulated */

	/* Back to the server. */
	VERDICT_RESET_SERVER, /* likewise, by a workload behind an interface */
	VERDICT_RESET_SERVER_NATIVE,
	VERDICT_ANSWER_TOO_BIG_NATIVE, /* to a server on the host itself: a datagram is too big */
	VERDICT_SYNCOOKIE_ANSWER, /* its SYN-ACK became an acknowledgement of it: as above */
	VERDICT_SYNCOOKIE_ANSWER_HOST,

	/* Refused. */
	VERDICT_DROP_INNER_FRAGMENT,
	VERDICT_DROP_INNER_OTHER, /* neither TCP, nor UDP by a mux */
	VERDICT_DROP_INNER_MALFORMED,
	VERDICT_DROP_ECN, /* congestion met on the way by a packet that can't tell it
			     (RFC 6040) */
	VERDICT_DROP_NOT_A_VTEP, /* for a VIP here, from an address that is neither
				    mux nor host */
	VERDICT_DROP_FBT_MISSING, /* from a mux */
	VERDICT_DROP_FBT_KEY, /* its key is not valid any more */
	VERDICT_DROP_FBT_FORGED,
	VERDICT_DROP_FBT_VNI, /* it names another network than the VXLAN header */
	VERDICT_DROP_FBT_HOST, /* it names no host */
	VERDICT_DROP_SYN_PAST_MUX,
	VERDICT_DROP_OTHER_HOST, /* the session's client is elsewhere */
	VERDICT_DROP_NO_SESSION, /* a reset of none */
	VERDICT_DROP_RESET_LIMITED, /* of none, and the tenant's resets are used up */
	VERDICT_DROP_NO_RULE, /* no backend of that VIP and port behind that tunnel
				 address */
	VERDICT_DROP_NO_WORKLOAD,
	VERDICT_DROP_QUOTA, /* the tenant of the network has its sessions */
	VERDICT_DROP_HALF_OPEN, /* it has its half-open ones */
	VERDICT_DROP_SESSION_FULL,
	VERDICT_DROP_SESSION_PENDING, /* another CPU is making the session, or none may begin
					 for a moment */
	VERDICT_DROP_SESSION_GONE, /* its row became another's while the packet passed
				    */
	VERDICT_DROP_SYNCOOKIE_PENDING, /* before the server's answer, or that once more */
	VERDICT_DROP_SYNCOOKIE_REPLAYED, /* the cookie of a session that is over */
	VERDICT_DROP_LOCAL_OTHER, /* to a local address, and neither TCP nor UDP */
	VERDICT_DROP_TOO_BIG, /* for the uplink, once encapsulated */
	VERDICT_DROP_SPOOFED, /* from a client, by an address or MAC that is not its own */
	VERDICT_DROP_TAGGED, /* to a VIP, in a VLAN */
	VERDICT_DROP_NO_MUX, /* no address of the muxes is known, or this host has none */
	VERDICT_DROP_NOT_ACKED, /* a SYN-ACK of another number than the client's SYN */
	VERDICT_DROP_REWRITE, /* the kernel refused to change the packet */

	VERDICT_COUNT,
};
