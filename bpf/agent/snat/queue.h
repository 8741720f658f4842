/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The queue of packets that wait for a port. User space gets each one whole. The flow's next
 * packets queue behind it, until user space has sent all of them and opens the flow (calls.h).
 */
#pragma once

#include "agent/snat/port.h"

struct snat_queue_small {
	struct snat_queue_entry head;
	__u8 frame[SNAT_QUEUE_SMALL];
};

struct snat_queue_large {
	struct snat_queue_entry head;
	__u8 frame[SNAT_QUEUE_LARGE];
};

/* Fills a record but for the order, which is 0. */
static __noinline bool snat_fill(struct __sk_buff *skb, const struct packet *p,
				 const struct snat_search *s, struct snat_queue_entry *entry,
				 __u32 length)
{
	if (!entry || length < 1 || length > SNAT_QUEUE_LARGE)
		return false;
	__builtin_memset(entry, 0, sizeof(*entry));
	entry->key = s->key;
	entry->workload = s->used.target.workload;
	entry->length = length;
	entry->l3 = p->l3;
	entry->l4 = p->l4;
	return !bpf_skb_load_bytes(skb, 0, entry + 1, length);
}

/* Notifies user space that a packet is dropped, unless the ring is full. */
__noinline int snat_notify(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
			   const struct snat_search *s __arg_nonnull, __u32 ifindex,
			   enum snat_notice notice)
{
	struct snat_queue_small *small;
	__u64 length = skb->len;

	if (length > SNAT_QUEUE_SMALL)
		length = SNAT_QUEUE_SMALL;
	if (length < 1)
		return 0;
	small = bpf_ringbuf_reserve(&snat_notices, sizeof(*small), 0);
	if (!small)
		return 0;
	if (!snat_fill(skb, p, s, &small->head, length)) {
		bpf_ringbuf_discard(small, 0);
		return 0;
	}
	small->head.ifindex = ifindex;
	small->head.notice = notice;
	bpf_ringbuf_submit(small, 0);
	return 0;
}

/*
 * Notifies user space that there is no room for a connection: once a tick for each workload, so
 * that notices of others have room in the ring.
 */
__noinline int snat_notify_full(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				const struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	__u32 number = s->used.target.workload;
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &number);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!state || state->full_notified == now)
		return 0;
	state->full_notified = now;
	return snat_notify(skb, p, s, ifindex, SNAT_NOTICE_FULL);
}

/* Notifies user space that ports of a workload run low. */
__noinline int snat_notify_low(__u32 workload)
{
	struct snat_queue_entry *entry = bpf_ringbuf_reserve(&snat_notices, sizeof(*entry), 0);

	if (!entry)
		return 0;
	__builtin_memset(entry, 0, sizeof(*entry));
	entry->workload = workload;
	entry->notice = SNAT_NOTICE_LOW;
	bpf_ringbuf_submit(entry, 0);
	return 0;
}

/*
 * Submits a filled entry, unless the flow has been opened: then returns false. One atomic step
 * takes the entry's order and keeps user space from opening the flow.
 */
static __always_inline bool snat_submit(struct snat_queue_entry *entry, struct snat_flow *flow,
					__u32 ifindex)
{
	__u32 queued = __sync_fetch_and_add(&flow->queued, 1);

	if (queued & SNAT_OPEN) {
		flow->queued = SNAT_OPEN;
		bpf_ringbuf_discard(entry, 0);
		return false;
	}
	entry->order = queued + 1;
	entry->ifindex = ifindex;
	entry->notice = SNAT_NOTICE_QUEUE;
	bpf_ringbuf_submit(entry, 0);
	return true;
}

/* The same for a packet that one of the two kinds of record holds. */
static __always_inline enum verdict snat_queue_submit(struct __sk_buff *skb, const struct packet *p,
						      const struct snat_search *s,
						      struct snat_queue_entry *entry,
						      struct snat_flow *flow, __u32 length,
						      __u32 ifindex)
{
	if (!snat_fill(skb, p, s, entry, length)) {
		bpf_ringbuf_discard(entry, 0);
		return VERDICT_DROP_SNAT_QUEUE_FULL;
	}
	return snat_submit(entry, flow, ifindex) ? VERDICT_SNAT_QUEUE : VERDICT_NONE;
}

__noinline enum verdict snat_queue_keep(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
					const struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, &s->key);
	struct snat_queue_small *small;
	struct snat_queue_large *large;
	__u64 length = skb->len;

	if (!flow)
		return VERDICT_DROP_FLOWS_FULL;
	/* What is to be cut into segments can't be sent by user space. */
	if (length < 1 || length > SNAT_QUEUE_LARGE || skb->gso_segs > 1)
		return VERDICT_DROP_SNAT_QUEUE_LARGE;
	if (length <= SNAT_QUEUE_SMALL) {
		small = bpf_ringbuf_reserve(&snat_notices, sizeof(*small), 0);
		if (!small)
			return VERDICT_DROP_SNAT_QUEUE_FULL;
		return snat_queue_submit(skb, p, s, &small->head, flow, length, ifindex);
	}
	large = bpf_ringbuf_reserve(&snat_notices, sizeof(*large), 0);
	if (!large)
		return VERDICT_DROP_SNAT_QUEUE_FULL;
	return snat_queue_submit(skb, p, s, &large->head, flow, length, ifindex);
}

/* Keeps a packet of a flow that has no port yet. NONE: it has one by now. */
__noinline enum verdict snat_enqueue(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				     const struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	__u32 number = s->used.target.workload;
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &number);
	enum verdict verdict = VERDICT_DROP_SNAT_QUEUE_FULL;

	if (!state)
		return VERDICT_DROP_FLOWS_FULL;
	if (__sync_fetch_and_add(&state->queued, 1) < settings.snat_queue_limit)
		verdict = snat_queue_keep(skb, p, s, ifindex);
	if (verdict != VERDICT_SNAT_QUEUE)
		__sync_fetch_and_add(&state->queued, -1);
	return verdict;
}
