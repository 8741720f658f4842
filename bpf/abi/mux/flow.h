/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"
#include "abi/shared/slot.h"

/*
 * The flow table is a cache with sets of eight cells. A flow's keyed hash, with its endpoint's
 * salt, chooses the set and is the cell's tag. What a packet needs, tag and slot, is one word,
 * which is read and written as a whole.
 *
 * A flow is untrusted until its second packet (Ananta, section 3.3.3). Of a set at most
 * FLOW_UNTRUSTED_CELLS are of untrusted flows and FLOW_TRUSTED_CELLS of trusted ones. A flow is
 * given up before its time for one of who has less than its own part, if its VIP and tenant have
 * more than theirs; an untrusted one also for another of its VIP.
 */
enum flow_layout {
	FLOW_CELLS = 8,
	FLOW_UNTRUSTED_CELLS = 4,
	FLOW_TRUSTED_CELLS = 6,
	FLOW_TAG_SHIFT = SLOT_BITS + 1,
	FLOW_SYN = 1 << SLOT_BITS, /* bit of a flow: a SYN is noted, see mux/flow_syn.h */
	FLOW_SEQUENCE_SHIFT = 17, /* bits of the SYN's sequence number that are not noted */
	FLOW_SEQUENCE_MASK = (1 << (32 - FLOW_SEQUENCE_SHIFT)) - 1,
	FLOW_SYN_TAG_SHIFT = FLOW_TAG_SHIFT + 32 - FLOW_SEQUENCE_SHIFT,
	FLOW_TRUSTED = 1, /* bit of an owner */
	FLOW_OWNER_SHIFT = 1, /* above it: index of vip_usage */
	FLOW_TICK_SHIFT = 4, /* a tick is 16 of the kernel's jiffies: 16 to 160 ms */
};
ABI_ENUM(flow_layout);

struct flow_cell {
	/*
	 * 50 bits of tag, FLOW_SYN, 13 bits of slot. With FLOW_SYN: 35 bits of tag, and the upper
	 * 15 of the sequence number that follows the SYN.
	 */
	__u64 flow;
	/*
	 * Whose usage the cell counts in: index of vip_usage, and whether as trusted. 0: the cell
	 * is free. Only ever exchanged: who takes an owner out counts it down, who puts one in
	 * counts it up, so that usage is exact.
	 */
	__u32 owner;
	__u32 expires; /* tick */
};

struct flow_set {
	struct flow_cell cells[FLOW_CELLS];
};

/*
 * Cells of `flows` that a VIP has, or that the VIPs of a tenant have together: packets only add to
 * them, user space puts right what is off for a tenant. The rest user space writes.
 */
struct flow_usage {
	__u64 cells[2]; /* untrusted, trusted */
	__u32 guaranteed; /* trusted ones that others don't take; half as many untrusted ones */
	__u32 limit; /* on trusted ones; a VIP's is in its endpoints' rows, not here */
	__u32 tenant; /* of a VIP: index of tenant_usage; 0: none */
	__u32 pad;
};

_Static_assert(sizeof(struct flow_cell) == 16, "flow_cell");
_Static_assert(sizeof(struct flow_set) == 128, "flow_set");
_Static_assert(sizeof(struct flow_usage) == 32, "flow_usage");
