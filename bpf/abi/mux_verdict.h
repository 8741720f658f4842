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
	VERDICT_PASS_NOT_IP, /* ARP, LLDP, three VLAN tags, ... */
	VERDICT_PASS_FRAGMENT, /* of either family, the first one too */
	VERDICT_PASS_ICMP,
	VERDICT_PASS_OTHER_PROTOCOL, /* neither TCP, UDP nor ICMP directly behind the IP header */
	VERDICT_PASS_NOT_FOR_US, /* TCP or UDP to no endpoint: BGP and SSH of the mux itself */

	/* The packet is sent, encapsulated, to a backend's host. */
	VERDICT_FORWARD_SYN, /* a new connection: chosen by its bucket */
	VERDICT_FORWARD_COOKIE, /* to the backend that its timestamp names */
	VERDICT_FORWARD_FLOW, /* to the backend that the flow table remembers */
	VERDICT_FORWARD_BUCKET, /* not remembered: chosen by its bucket, remembered from now on */
	VERDICT_FORWARD_REPLACED, /* what was remembered is down or gone: chosen by its bucket */
	VERDICT_FORWARD_UNREMEMBERED, /* by its bucket, and there is no room to remember it */
	VERDICT_FORWARD_CHAINED, /* by its bucket, which moved: names the previous backend too */

	/* The packet is dropped. */
	VERDICT_DROP_NO_BACKEND, /* the endpoint has no backend to choose */
	VERDICT_DROP_NO_SOURCE, /* the mux has no outer source of the tunnel's family */
	VERDICT_DROP_NO_NEXT_HOP, /* the way to the backend's host is not resolved */
	VERDICT_DROP_TOO_BIG, /* would not fit the MTU once encapsulated */
	VERDICT_DROP_NO_HEADROOM, /* the driver left no room for the outer header */

	VERDICT_COUNT,
};
