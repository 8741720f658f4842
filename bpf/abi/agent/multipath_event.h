/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

/* What the programs count of Multipath TCP beside verdicts. */
enum multipath_event {
	MULTIPATH_JOIN_OWN, /* a join to a connection of the host that muxes brought it to */
	MULTIPATH_JOIN_BROUGHT, /* a join that another host brought to that of its connection */
	MULTIPATH_JOIN_ASKED, /* a join that went to a home of its token */
	MULTIPATH_JOIN_HANDED_ON, /* a join that went to the host of its connection */
	MULTIPATH_JOIN_UNKNOWN, /* a join to a connection that no host has */
	MULTIPATH_SEGMENT_HANDED_ON, /* what is no join, to the host of its subflow */
	MULTIPATH_ANNOUNCEMENT_REMOVED, /* an address of a workload, which no client got */
	MULTIPATH_EVENTS,
};
