/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/counter.h"

/* Adds a packet to a row of a per-CPU array of counters. */
static __always_inline void count(void *counters, __u32 row, __u64 bytes)
{
	struct counter *c = bpf_map_lookup_elem(counters, &row);

	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
}
