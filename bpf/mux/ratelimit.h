/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Token buckets that all CPUs share, as one word each: when the bucket will be full again (GCRA,
 * ITU-T I.371). What the mux itself does for VIPs is bounded by them.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "mux/endpoint.h"

enum ratelimit_kind {
	LIMIT_ECHO = 0, /* echo replies */
	LIMIT_ERROR = 1, /* ICMP errors that we make */
	LIMIT_PUNT = 2, /* packets handed to user space */
	LIMIT_REDIRECT = 3, /* connections that may leave the muxes */
	LIMIT_RELAY = 4, /* fragments sent to their owner */
	LIMITS,
};

enum { LIMIT_TRIES = 8 };

/* Nanoseconds that a token takes to come back, and how many a bucket holds. */
volatile const __u64 cfg_ratelimit_interval[LIMITS] = { 50000, 100000, 50000, 50000, 5000 };
volatile const __u64 cfg_ratelimit_burst[LIMITS] = { 2000, 1000, 1000, 2000, 20000 };

__u64 ratelimit_tat[LIMITS];

/* Beside them each VIP has its own: of one part in so many. */
enum { RATELIMIT_VIP_RESERVE = 50 };

struct vip_tokens {
	__u64 full[LIMITS];
};

/* By index of vip_usage; written by packets alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct vip_tokens);
} vip_tokens SEC(".maps");

/* So few CPUs race for a token that the last of them has no need of more tries. */
static __always_inline bool token_take(__u64 *bucket, __u64 interval, __u64 burst)
{
	__u64 now = bpf_ktime_get_coarse_ns(), most = interval * burst, full, from;

	for (int i = 0; i < LIMIT_TRIES; i++) {
		full = *(volatile __u64 *)bucket;
		from = full > now ? full : now;
		if (from - now + interval > most)
			return false;
		if (__sync_val_compare_and_swap(bucket, full, from + interval) == full)
			return true;
	}
	return false;
}

/*
 * Takes a token for a packet to the address of a VIP, if there is one: of those for all, or, when
 * others have taken them, of the VIP's own. A function of its own, which the verifier walks once.
 */
__noinline int ratelimit(enum ratelimit_kind limit, const struct address *vip)
{
	struct vip_tokens *own;
	struct endpoint *row;
	__u64 interval;
	__u32 index;

	if (!vip || limit >= LIMITS)
		return 0;
	interval = cfg_ratelimit_interval[limit];
	if (token_take(&ratelimit_tat[limit], interval, cfg_ratelimit_burst[limit]))
		return 1;
	row = vip_of(vip);
	if (!row)
		return 0;
	index = row->vip;
	own = bpf_map_lookup_elem(&vip_tokens, &index);
	return own && token_take(&own->full[limit], interval * RATELIMIT_VIP_RESERVE,
				 cfg_ratelimit_burst[limit] / RATELIMIT_VIP_RESERVE);
}
