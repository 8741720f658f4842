/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/*
 * The flow table is a cache with sets of eight cells, one cache line each. A flow's keyed hash,
 * with its endpoint's salt, chooses the set and is the cell's tag: 50 bits of tag, a bit that
 * says that the flow was seen again, 13 bits of slot. A cell is read and written as a whole;
 * slot 0 is an empty cell.
 */
enum {
	FLOW_CELLS = 8,
	FLOW_SLOT_MASK = 0x1fff,
	FLOW_SEEN_AGAIN = 0x2000,
	FLOW_TAG_SHIFT = 14,
};

struct flow_set {
	__u64 cells[FLOW_CELLS];
};

_Static_assert(sizeof(struct flow_set) == 64, "flow_set");
