/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The token bucket (GCRA, ITU-T I.371): one word that all CPUs share, its theoretical arrival time
 * (TAT), at which the bucket will be full again.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/*
 * Compare-and-swaps before a CPU gives up: it has lost that many races for one bucket in a row, so
 * the bucket is as good as empty.
 */
enum { RATELIMIT_TRIES = 16 };

/*
 * Takes tokens that need interval ns to come back, if the bucket has them: a full one is worth
 * tolerance ns. With *dry_run, a knob that is read late to spare a register, it takes none.
 */
static __always_inline bool ratelimit_take(__u64 *tat, __u64 interval, __u64 tolerance, __u64 now,
					   const volatile __u32 *dry_run)
{
	for (int i = 0; i < RATELIMIT_TRIES; i++) {
		__u64 seen = *(volatile __u64 *)tat, from = seen > now ? seen : now;

		if (from - now + interval > tolerance)
			return false;
		if (*dry_run || __sync_val_compare_and_swap(tat, seen, from + interval) == seen)
			return true;
	}
	return false;
}
