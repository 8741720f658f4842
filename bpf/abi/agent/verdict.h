/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/*
 * What the agent's programs say of a packet: one name for each reason. Counters are keyed by
 * it, so the names reach Go, the status output and the logs through BTF.
 */
enum verdict {
	VERDICT_NONE = 0, /* go on to the next step; never the last word */

	/* Left untouched: the host's stack, or the wire, gets the packet as it is. */
	VERDICT_PASS_OURS, /* sent by another of our programs, which has counted it */
	VERDICT_PASS_OTHER_MAC, /* to another MAC, or all: the stack takes no tunnel from there */
	VERDICT_PASS_TAGGED, /* belongs to a VLAN interface above this one */
	VERDICT_PASS_OTHER, /* not IP; or from a workload, neither TCP nor UDP */
	VERDICT_PASS_MALFORMED,
	VERDICT_PASS_FRAGMENT,
	VERDICT_PASS_NOT_TUNNEL, /* from the network, but neither IP-in-IP nor GUE */
	VERDICT_PASS_UNKNOWN_TUNNEL, /* encapsulated, to an address that no rule names */
	VERDICT_PASS_NO_SESSION, /* from a workload, but not a reply for a VIP */

	VERDICT_PASS_SNAT_EXEMPT, /* of a workload with source NAT, to a destination that is left
				   * alone
				   */
	VERDICT_PASS_NO_FLOW, /* the same, in the middle of a connection that was not translated */

	/* Towards a workload: decapsulated, VIP rewritten to DIP. */
	VERDICT_DELIVER_NATIVE,
	VERDICT_DELIVER_INTERFACE,

	/* Towards another host: the connection is unknown here. */
	VERDICT_CHAIN_ON, /* to the backend that had its bucket before */
	VERDICT_CHAIN_BACK, /* to the backend that has its bucket, for neither knows it */

	/* Towards another host: of a further subflow of Multipath TCP. */
	VERDICT_JOIN_HOME, /* to a home of its token */
	VERDICT_JOIN_ON, /* to the host that has the connection */
	VERDICT_JOIN_TOLD, /* a copy of a client's packet: tells a host of its connection */
	VERDICT_JOIN_NOTED, /* what another host told of a connection: kept */

	/* Towards another host: a switch brought it here, and the backend is there. */
	VERDICT_STEERED_COOKIE, /* that its timestamp names */
	VERDICT_STEERED_BUCKET, /* that its bucket names */
	VERDICT_STEERED_QUERY, /* likewise; the bucket moved, so the packet names the one before too
				*/
	VERDICT_STEERED_ANSWER, /* to a workload's own connection: its range of ports is there */
	VERDICT_STEERED_ERROR, /* an ICMP error, to the backend of the connection that it is about
				*/

	/* Towards a mux: a switch brought it here, and a host can't tell whose it is. */
	VERDICT_RELAY_FRAGMENT, /* all fragments of a datagram meet at a mux */
	VERDICT_RELAY_ERROR, /* an ICMP error: the mux asks all backends */

	/* Towards a client: DIP rewritten to VIP. */
	VERDICT_REPLY_NATIVE, /* by a native workload, already on its way out */
	VERDICT_REPLY_UPLINK, /* by a workload behind an interface */
	VERDICT_REPLY_INTERFACE, /* to a client that is a workload behind another interface here */
	VERDICT_REPLY_HOST, /* to a client on this host itself */

	VERDICT_REPLY_PING, /* of a VIP that switches hold, to who has sent a ping */

	/* Of connections that have left the muxes. */
	VERDICT_REPLY_DIRECT, /* to the peer's host, encapsulated */
	VERDICT_PUNT_CONTROL, /* what a mux or a host says of them: user space has it */

	/* From a workload to whom it wants: DIP rewritten to a port of the VIP. */
	VERDICT_SNAT_NATIVE, /* of a native workload, already on its way out */
	VERDICT_SNAT_UPLINK, /* of a workload behind an interface */
	VERDICT_SNAT_QUEUE, /* no port yet: user space keeps the packet, and sends it */

	/* Of connections that began by a SYN cookie of a mux. */
	VERDICT_SYNCOOKIE_SOCKET, /* the client's acknowledgement: the host's stack makes a socket
				   */
	VERDICT_SYNCOOKIE_NATIVE, /* it became a SYN to the host's stack */
	VERDICT_SYNCOOKIE_INTERFACE, /* it became a SYN to the workload behind an interface */
	VERDICT_SYNCOOKIE_REQUEUE, /* comes again, behind the segment that a socket is being made of
				    */
	VERDICT_SYNCOOKIE_ANSWER, /* the workload's SYN/ACK became the client's acknowledgement */
	VERDICT_SYNCOOKIE_ANSWER_HOST, /* the same, of the host's own stack */

	/* Refused. */
	VERDICT_DROP_NOT_A_MUX, /* encapsulated, but not by a mux or the Fastpath peer */
	VERDICT_DROP_NOT_CHAIN_PEER, /* forwarded by an address that is no chain peer */
	VERDICT_DROP_NOT_A_VIP_HOST, /* steered, by an address that is none of the VIP's hosts */
	VERDICT_DROP_GUE_MALFORMED, /* lengths in the GUE header that contradict the packet */
	VERDICT_DROP_GUE_UNKNOWN, /* a version, flag, step or kind of GUE that is none of ours */
	VERDICT_DROP_GUE_MERGED, /* several GUE packets in one buffer: see host requirements */
	VERDICT_DROP_INNER_MALFORMED,
	VERDICT_DROP_INNER_FRAGMENT,
	VERDICT_DROP_INNER_OTHER, /* neither TCP nor UDP nor an ICMP error inside */
	VERDICT_DROP_NO_RULE, /* no backend of that VIP and port behind that tunnel address */
	VERDICT_DROP_NO_WORKLOAD, /* the rule's DIP has no interface, e.g. while a VM is down */
	VERDICT_DROP_ICMP_UNKNOWN, /* an ICMP error about no connection that we know */
	VERDICT_DROP_ECN, /* congestion marked outside, inside not ECN-capable (RFC 6040) */
	VERDICT_DROP_SESSION_TAKEN, /* same client and DIP in a live session with another VIP */
	VERDICT_DROP_SESSION_FULL, /* no room for a new session */
	VERDICT_DROP_SESSION_GONE, /* its session's row became another's while it passed */
	VERDICT_DROP_CHAIN_FAMILY, /* the host has no address of the other backend's family */
	VERDICT_DROP_CHAIN, /* the kernel refused to change the outer header */
	VERDICT_DROP_STEER_CLOSED, /* a switch brought it, and its VIP has no such endpoint */
	VERDICT_DROP_STEER_PING, /* a ping to a VIP that answers none, or too many */
	VERDICT_DROP_STEER_NO_BACKEND, /* likewise; the endpoint has no backend for it */
	VERDICT_DROP_STEER_MERGED, /* likewise; to be steered, and several packets in one buffer */
	VERDICT_DROP_RELAY_LIMITED, /* for a mux, and as many are relayed as may be */
	VERDICT_DROP_RELAY_NO_MUX, /* for a mux, and none has an address of the tunnel's family */
	VERDICT_DROP_JOIN_UNKNOWN, /* a further subflow, of a connection that no host has */
	VERDICT_DROP_JOIN_CONFLICT, /* told by a host of a connection that another one has */
	VERDICT_DROP_JOIN_FULL, /* told by a host, and the VIP has no room for more */
	VERDICT_DROP_JOIN_STALE, /* a copy that was to tell a host, and there is nothing to tell */
	VERDICT_DROP_SPOOFED_SOURCE, /* the source address does not live behind the interface */
	VERDICT_DROP_TAGGED, /* in a VLAN, from an interface whose own addresses alone are known */
	VERDICT_DROP_OWN_TUNNEL, /* GUE from a workload's tunnel address: that is the agent's to
				    send */
	VERDICT_DROP_PORTS_EXHAUSTED, /* no port, and the manager has none to give */
	VERDICT_DROP_FLOWS_FULL, /* no room for a connection of the workload's own */
	VERDICT_DROP_UNSOLICITED_FULL, /* what remotes may begin at a workload's mappings, they have
					*/
	VERDICT_DROP_FILTERED, /* for a workload's mapping, by whom it has not sent to */
	VERDICT_DROP_SNAT_QUEUE_FULL, /* waits for a port, and too many of the workload do */
	VERDICT_DROP_SNAT_QUEUE_LARGE, /* waits for a port, and is larger than what is kept */
	VERDICT_DROP_SNAT_QUEUE_FRAGMENT, /* waits for a port, and is a fragment */
	VERDICT_DROP_DECAPSULATE, /* the kernel refused to remove the outer header */
	VERDICT_DROP_REWRITE, /* the kernel refused to rewrite */
	VERDICT_DROP_DIRECT, /* the kernel refused to encapsulate for the peer */
	VERDICT_DROP_CONTROL, /* user space has more messages than it can take */
	VERDICT_DROP_SYNCOOKIE_INVALID, /* of no connection, and with no SYN cookie of ours */
	VERDICT_DROP_SYNCOOKIE_EXPIRED, /* with a SYN cookie whose time or secret is over */
	VERDICT_DROP_SYNCOOKIE_REPLAYED, /* with that of a connection that was, and was reset */
	VERDICT_DROP_SYNCOOKIE_PENDING, /* of a connection whose workload has not answered yet */
	VERDICT_DROP_SYNCOOKIE_REWRITE, /* the kernel refused to make a SYN or its acknowledgement
					 */

	VERDICT_COUNT,
};
