/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rate limits of what the mux itself does for VIPs: echo replies, ICMP errors, answers to ARP,
 * packets for user space. Each kind has a token bucket for all VIPs, and each VIP a small one of
 * its own.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "mux/endpoint.h"
#include "mux/trace.h"
#include "net/ratelimit.h"

enum ratelimit_kind {
	LIMIT_ECHO = 0, /* echo replies */
	LIMIT_ERROR = 1, /* ICMP errors that we make */
	LIMIT_PUNT = 2, /* packets handed to user space */
	LIMIT_REDIRECT = 3, /* connections that may leave the muxes */
	LIMIT_RELAY = 4, /* fragments sent to their owner */
	LIMIT_NEIGHBOR = 5, /* answers to ARP and NDP */
	LIMITS,
};

/* Nanoseconds until a token comes back, and how many a bucket holds. Set at load. */
volatile const __u64 cfg_ratelimit_interval[LIMITS] = { 50000, 100000, 50000, 50000, 5000, 10000 };
volatile const __u64 cfg_ratelimit_burst[LIMITS] = { 2000, 1000, 1000, 2000, 20000, 10000 };

/* The buckets for all VIPs. */
__u64 ratelimit_tat[LIMITS];

/* A VIP's own bucket has the rate and the burst of the common one, divided by this. */
enum { RATELIMIT_VIP_RESERVE = 50 };

struct vip_tokens {
	__u64 tat[LIMITS];
};

/* The VIPs' own buckets, by index of vip_usage. Packets alone write. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct vip_tokens);
} vip_tokens SEC(".maps");

static __always_inline bool token_take(__u64 *tat, __u64 interval, __u64 burst)
{
	return ratelimit_take(tat, interval, interval * burst, bpf_ktime_get_coarse_ns(),
			      &cfg_trace);
}

/*
 * Takes a token for a packet to a VIP: from the bucket for all VIPs or, if that is empty, from the
 * VIP's own. Returns whether there was one. A function of its own, which the verifier walks once.
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
	return own && token_take(&own->tat[limit], interval * RATELIMIT_VIP_RESERVE,
				 cfg_ratelimit_burst[limit] / RATELIMIT_VIP_RESERVE);
}
