/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * Bits of flows that were found in the flow table in an epoch: see mux/flow_filter.h. 256 KiB, so
 * that all of it stays in a core's second-level cache.
 */
enum flow_filter_layout {
	FLOW_FILTER_WORD_BITS = 15, /* 1 << these are the words */
	FLOW_FILTER_BITS =
		56, /* of flows in a word; above them: its epoch, without the upper bits */
	FLOW_FILTER_MOST = FLOW_FILTER_BITS / 2, /* bits that are set in a word */
	FLOW_FILTER_EPOCHS = 8, /* that the idle timeout has at least where the filter is asked */
};
ABI_ENUM(flow_filter_layout);

struct flow_filter {
	__u64 words[1 << FLOW_FILTER_WORD_BITS];
};

_Static_assert(sizeof(struct flow_filter) == 262144, "flow_filter");
