/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters of bypassed traffic by attachment and backend, and the handshake RTT by attachment. A
 * session has the number of its counters, so that a packet costs no hash.
 */
#pragma once

#include "abi/overlay/statistics.h"
#include "overlay/maps.h"

/* (attachment, backend) to the number of their counters. User space writes; what has none is
 * counted by attachment alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4095);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct overlay_backend_key);
	__type(value, __u32);
} backend_numbers SEC(".maps");

/* By that number, which is never 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct overlay_backend_traffic);
} backend_traffic SEC(".maps");

/* By attachment. User space makes and removes the rows: they are large. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct overlay_handshakes);
} handshake_rtts SEC(".maps");

static __always_inline __u32 backend_number(__u32 attachment, __u32 rule)
{
	struct overlay_backend_key key = { .attachment = attachment, .rule = rule };
	const __u32 *number = bpf_map_lookup_elem(&backend_numbers, &key);

	return number ? *number : 0;
}

static __always_inline struct overlay_backend_traffic *backend_traffic_of(__u32 number)
{
	return number ? bpf_map_lookup_elem(&backend_traffic, &number) : NULL;
}

static __noinline int count_opened(__u32 attachment, __u32 counters)
{
	struct overlay_traffic *t = bpf_map_lookup_elem(&traffic, &attachment);
	struct overlay_backend_traffic *b = backend_traffic_of(counters);

	if (t)
		t->opened++;
	if (b)
		b->opened++;
	return 0;
}

static __noinline int count_confirmed(__u32 attachment, __u32 counters)
{
	struct overlay_traffic *t = bpf_map_lookup_elem(&traffic, &attachment);
	struct overlay_backend_traffic *b = backend_traffic_of(counters);

	if (t)
		t->confirmed++;
	if (b)
		b->confirmed++;
	return 0;
}

static __noinline int count_refused(__u32 attachment, __u32 rule)
{
	struct overlay_traffic *t = bpf_map_lookup_elem(&traffic, &attachment);
	struct overlay_backend_traffic *b = backend_traffic_of(backend_number(attachment, rule));

	if (t)
		t->refused++;
	if (b)
		b->refused++;
	return 0;
}

static __always_inline void count_reset(__u32 counters)
{
	struct overlay_backend_traffic *b = backend_traffic_of(counters);

	if (b)
		b->reset++;
}

static __always_inline void count_repeated(__u32 counters)
{
	struct overlay_backend_traffic *b = backend_traffic_of(counters);

	if (b)
		b->repeated++;
}

enum {
	ANSWERED_SHIFT = 8, /* overlay_session.answered is in 256 ns */
	ANSWERED_MASK = (1 << (OVERLAY_TICK_SHIFT - ANSWERED_SHIFT)) - 1,
};

/* Notes when the server's SYN-ACK left, whose tick is the row's last one. */
static __always_inline void handshake_answered(struct overlay_session *s)
{
	__u64 now = bpf_ktime_get_ns();

	s->seen = now >> OVERLAY_TICK_SHIFT;
	s->answered = ((now >> ANSWERED_SHIFT) & ANSWERED_MASK) ?: 1;
}

/* Counts the RTT of a handshake whose SYN-ACK left at a tick and so many 256 ns of it; 0: nobody
 * knows when, as one of its segments was sent again (Karn). */
static __noinline int handshake_count(__u32 attachment, __u32 tick, __u32 answered)
{
	struct overlay_handshakes *h;
	__u64 then = (__u64)tick << OVERLAY_TICK_SHIFT | (__u64)answered << ANSWERED_SHIFT;
	__u64 rtt = (bpf_ktime_get_ns() - then) & ((1ULL << (32 + OVERLAY_TICK_SHIFT)) - 1);
	__u32 bucket = 0;

	h = answered ? bpf_map_lookup_elem(&handshake_rtts, &attachment) : NULL;
	if (!h)
		return 0;
	while (bucket < OVERLAY_RTT_BUCKETS - 1 && rtt >> (OVERLAY_RTT_SHIFT + bucket))
		bucket++;
	h->ns += rtt;
	h->buckets[bucket]++;
	return 0;
}
