/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/* What the switch says of a packet: one name for each reason. Counters are keyed by it. */
enum verdict {
	VERDICT_NONE = 0, /* go on to the next step; never the last word */

	/* Left untouched, for the kernel to route. */
	VERDICT_PASS_NOT_ROUTED, /* not IP, in a VLAN, or to a group */
	VERDICT_PASS_MALFORMED,
	VERDICT_PASS_NO_HOST, /* to no VIP */
	VERDICT_PASS_TTL, /* whose last hop this is */
	VERDICT_PASS_NO_ROUTE, /* to its tunnel */

	VERDICT_FORWARD, /* into a tunnel, by another port */
	VERDICT_FORWARD_NEIGHBOR, /* into a tunnel, and left to the kernel to find its neighbour */

	VERDICT_DROP_TOO_BIG, /* for the port: a switch tells nobody */
	VERDICT_DROP_NO_HEADROOM,
	VERDICT_DROP_TIP, /* to a TIP, with no packet of its VIP inside that can go on */
	VERDICT_DROP_TIP_SOURCE, /* to a TIP, from who is no switch of its VIP */

	VERDICT_COUNT,
};
