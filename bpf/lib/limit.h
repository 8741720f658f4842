/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Token buckets that all CPUs share, as one word each: when the bucket will be full again (GCRA,
 * ITU-T I.371).
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

enum limit {
	LIMIT_ECHO = 0, /* echo replies */
	LIMIT_ERROR = 1, /* ICMP errors that we make */
	LIMIT_PUNT = 2, /* packets handed to user space */
	LIMIT_REDIRECT = 3, /* connections that may leave the muxes */
	LIMITS,
};

enum { LIMIT_TRIES = 8 };

/* Nanoseconds that a token takes to come back, and how many a bucket holds. */
volatile const __u64 cfg_limit_interval[LIMITS] = { 50000, 100000, 50000, 50000 };
volatile const __u64 cfg_limit_burst[LIMITS] = { 2000, 1000, 1000, 2000 };

__u64 limit_full[LIMITS];

/*
 * Takes a token if there is one. A function of its own, which the verifier walks once. So few CPUs
 * race for a token that the last of them has no need of more tries.
 */
__noinline int limit_take(enum limit limit)
{
	__u64 now = bpf_ktime_get_coarse_ns(), interval, most, full, from;

	if (limit >= LIMITS)
		return 0;
	interval = cfg_limit_interval[limit];
	most = interval * cfg_limit_burst[limit];
	for (int i = 0; i < LIMIT_TRIES; i++) {
		full = *(volatile __u64 *)&limit_full[limit];
		from = full > now ? full : now;
		if (from - now + interval > most)
			return 0;
		if (__sync_val_compare_and_swap(&limit_full[limit], full, from + interval) == full)
			return 1;
	}
	return 0;
}
