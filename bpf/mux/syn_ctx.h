/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A SYN that the mux is to answer goes from the fast path to the slow path with what is known of
 * it, so that nothing is found out twice.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "mux/ctx.h"
#include "net/packet.h"

/* In words: the CPU waits when it reads words of what was stored in smaller ones. */
struct syn_ctx {
	__u32 id; /* of the endpoint */
	__u32 slot; /* of the backend that the ACK will find */
	__u32 limit; /* as in struct packet, as the next two */
	__u32 l3;
	__u32 l4;
	__u32 length; /* of the TCP header and what follows it */
	__u32 v4; /* 1: IPv4 */
	__u32 pad;
	/* What stays for the next one. */
	__u64 jiffy; /* at which the clock was asked */
	__u64 clock; /* what it said: bpf_ktime_get_coarse_ns() */
};

/* The one that this CPU is about to answer. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_ctx);
} syn_ctxs SEC(".maps");

static __always_inline struct syn_ctx *syn_ctx(void)
{
	__u32 row = 0;

	return bpf_map_lookup_elem(&syn_ctxs, &row);
}

/* The coarse clock moves once in a jiffy: until then it need not be asked, which takes a call. */
static __always_inline __u64 syn_coarse_ns(struct syn_ctx *s)
{
	__u64 jiffy = bpf_jiffies64(); /* no call: the kernel makes it a load */

	if (s->jiffy != jiffy) {
		s->clock = bpf_ktime_get_coarse_ns();
		s->jiffy = jiffy;
	}
	return s->clock;
}

/* To be called when the backend's slot is known. */
static __always_inline void syn_ctx_store(const struct mux_ctx *w)
{
	const struct packet *p = &w->packet;
	struct syn_ctx *s = syn_ctx();

	if (!s)
		return;
	s->id = w->endpoint->id;
	s->slot = w->slot;
	s->limit = p->limit;
	s->l3 = p->l3;
	s->l4 = p->l4;
	s->length = p->l3 + p->l3_length - p->l4;
	s->v4 = p->ethertype == bpf_htons(ETH_P_IP);
}
