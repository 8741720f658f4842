/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Token buckets that all CPUs share, as one word each: when the bucket will be full again (GCRA,
 * ITU-T I.371). Losing a race for a token is taken for having none.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

enum limit {
	LIMIT_ECHO = 0, /* echo replies */
	LIMIT_ERROR = 1, /* ICMP errors that we make */
	LIMIT_PUNT = 2, /* packets handed to user space */
	LIMITS,
};

/* Nanoseconds that a token takes to come back, and how many a bucket holds. */
volatile const __u64 cfg_limit_interval[LIMITS] = { 50000, 100000, 50000 };
volatile const __u64 cfg_limit_burst[LIMITS] = { 2000, 1000, 1000 };

__u64 limit_full[LIMITS];

/* Takes a token if there is one. */
static __always_inline bool limit_take(enum limit limit)
{
	__u64 now = bpf_ktime_get_coarse_ns(), interval = cfg_limit_interval[limit];
	__u64 full = *(volatile __u64 *)&limit_full[limit];
	__u64 from = full > now ? full : now;

	if (from - now + interval > interval * cfg_limit_burst[limit])
		return false;
	return __sync_val_compare_and_swap(&limit_full[limit], full, from + interval) == full;
}
