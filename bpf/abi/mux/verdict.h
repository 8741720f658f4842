/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/*
 * What became of a packet at the mux. The counter map's key has this type, so Go reads the
 * names from BTF; a new verdict needs a line in finish() and a packet test that produces it.
 */
enum verdict {
	VERDICT_NONE = 0, /* not decided yet; never counted */

	/* The packet goes on into the kernel, unchanged. */
	VERDICT_PASS_MALFORMED, /* lengths and versions that contradict the frame */
	VERDICT_PASS_OTHER_MAC, /* not to the interface's MAC: broadcast, what a switch floods */
	VERDICT_PASS_NOT_IP, /* ARP, LLDP, three VLAN tags, ... */
	VERDICT_PASS_FRAGMENT, /* for no endpoint, or of neither TCP nor UDP */
	VERDICT_PASS_ICMP, /* for no VIP, or of a kind that says nothing of a connection */
	VERDICT_PASS_OTHER_PROTOCOL, /* neither TCP, UDP nor ICMP directly behind the IP header */
	VERDICT_PASS_NO_LEASE, /* ARP or NDP for a VIP that the mux may not answer for any more */
	VERDICT_PASS_NO_ENDPOINT, /* TCP or UDP to no endpoint: BGP and SSH of the mux itself */

	/* The packet is sent, encapsulated, to a backend's host. */
	VERDICT_FORWARD_SYN, /* a new connection: chosen by its bucket */
	VERDICT_FORWARD_COOKIE, /* to the backend that its timestamp names */
	VERDICT_FORWARD_FLOW, /* to the backend that the flow table remembers */
	VERDICT_FORWARD_KNOWN, /* to its bucket's: a flow with its bit was found lately */
	VERDICT_FORWARD_BUCKET, /* not remembered: chosen by its bucket, remembered from now on */
	VERDICT_FORWARD_FAILOVER, /* what was remembered is down or gone: chosen by its bucket */
	VERDICT_FORWARD_UNTRACKED, /* by its bucket, and there is no room to remember it */
	VERDICT_FORWARD_CHAINED, /* by its bucket, which moved: names the previous backend too */

	VERDICT_FORWARD_SNAT, /* an answer, to the workload that has the port or identifier */

	VERDICT_FORWARD_FRAGMENT, /* to the backend of its datagram */
	VERDICT_FORWARD_ICMP, /* an error, to the backend of the connection that it is about */

	/* The packet is sent elsewhere. */
	VERDICT_RELAY_FRAGMENT, /* to the mux of the pool that owns its datagram */
	VERDICT_RELAY_ANSWER, /* a server's, to the host of a virtual network's client */
	VERDICT_REPLY_ECHO, /* to the sender: a VIP answers a ping */
	VERDICT_REPLY_TOO_BIG, /* to the sender: it would not fit the MTU once encapsulated */
	VERDICT_REPLY_NEIGHBOR, /* to the sender: ARP or NDP for a VIP of this mux */
	VERDICT_REPLY_SYN, /* to the sender: a SYN is answered with a cookie */

	/* The packet is handed to user space, which sends it on; here it ends. */
	VERDICT_PUNT_FRAGMENT, /* the first fragment of its datagram did not come yet */
	VERDICT_PUNT_ICMP, /* an error about a connection that any backend may have */
	VERDICT_PUNT_SPLIT, /* too big, and IPv4 may split it */

	/* The packet is dropped. */
	VERDICT_DROP_MARTIAN, /* its source is no host's: loopback, multicast, 0/8, the VIP itself
			       */
	VERDICT_DROP_NO_BACKEND, /* the endpoint has no backend to choose */
	VERDICT_DROP_ACL, /* the endpoint does not take packets from its source */
	VERDICT_DROP_LIMIT_PACKETS, /* its VIP has had as many as it may */
	VERDICT_DROP_LIMIT_BYTES,
	VERDICT_DROP_LIMIT_CONNECTIONS,
	VERDICT_DROP_FAIR_SHARE, /* the mux has too much to do, and the VIP more than its share of
				    it */
	VERDICT_DROP_NO_RANGE, /* no workload has the port, of a VIP with source NAT */
	VERDICT_DROP_NO_SOURCE, /* the mux has no outer source of the tunnel's family */
	VERDICT_DROP_NO_NEXT_HOP, /* the way to the backend's host is not resolved */
	VERDICT_DROP_TOO_BIG, /* the same, and an ICMP error can't be sent, or too many were */
	VERDICT_DROP_MERGED, /* the same, longer than the interface's MTU: several in one buffer */
	VERDICT_DROP_NO_HEADROOM, /* the driver left no room for the outer header */
	VERDICT_DROP_ECHO, /* a ping to a VIP that does not answer, or from an invalid source */
	VERDICT_DROP_ECHO_LIMITED, /* more pings than are answered */
	VERDICT_DROP_NEIGHBOR, /* more ARP and NDP for VIPs than is answered */
	VERDICT_DROP_PUNT, /* user space has enough to do, or its buffer is full */
	VERDICT_DROP_NOT_A_MUX, /* relayed to us by none of the pool */
	VERDICT_DROP_RELAY_INVALID, /* relayed to us, but no fragment for an endpoint */
	VERDICT_DROP_RELAY_LIMITED, /* another mux's fragment, and as many are relayed as may be */
	VERDICT_DROP_SYN, /* to be answered with a cookie, but malformed, or its source invalid */
	VERDICT_DROP_JOIN_LIMITED, /* a SYN that joins a connection, and more than are forwarded */

	/* Dropped of what comes by VXLAN to the muxes' address. */
	VERDICT_DROP_VXLAN, /* reserved bits, wrong lengths, or no IP packet inside */
	VERDICT_DROP_NOT_A_VTEP, /* from none of the network's hosts */
	VERDICT_DROP_NO_ATTACHMENT, /* to no VIP of the network */
	VERDICT_DROP_NO_ENDPOINT, /* to a port that no endpoint of the VIP has */
	VERDICT_DROP_INNER_OTHER, /* for a VIP, and neither TCP, UDP, a ping nor an ICMP error */
	VERDICT_DROP_NO_HOST_KEY, /* there is no key of the backend's host to make FBTs with */
	VERDICT_DROP_BUCKET_MOVES, /* to another backend, and VXLAN can't name both of them */
	VERDICT_DROP_FBT_NO_ROOM, /* behind options of IP */
	VERDICT_DROP_ANSWER_FORGED, /* an answer that the sender's key has not made */
	VERDICT_DROP_ANSWER_HOST, /* one for a host that has no clients of the network */
	VERDICT_DROP_FRAGMENT_EARLY, /* the first one of its datagram did not come, or is forgotten
				      */

	/* Full NAT. */
	VERDICT_FORWARD_NAT, /* from a client, to the backend of its session */
	VERDICT_REPLY_NAT, /* from a backend, in VXLAN to the client's host */
	VERDICT_DROP_NO_SESSION, /* a segment of none, or to a NAT address and port of none */
	VERDICT_DROP_SESSION_FULL, /* no row is free for a new connection */
	VERDICT_DROP_SESSION_PENDING, /* another CPU is making the session */
	VERDICT_DROP_QUOTA, /* the tenant of the network has its sessions */
	VERDICT_DROP_HALF_OPEN, /* it has its half-open ones */
	VERDICT_DROP_OTHER_HOST, /* the session's client is elsewhere */
	VERDICT_DROP_ECN, /* congestion met in VXLAN by a packet that can't tell it (RFC 6040) */
	VERDICT_DROP_NAT_SOURCE, /* to a NAT address, not from the session's backend */
	VERDICT_DROP_NAT_OTHER, /* to a NAT address, and not TCP in one piece: ICMP, fragments */

	VERDICT_COUNT,
};
