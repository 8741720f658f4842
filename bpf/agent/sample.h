/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Samples of what clients send to VIPs, by which user space estimates how much comes to each from
 * where. The gap is random, so that a sender can't keep out of step.
 */
#pragma once

#include "abi/agent/sample.h"
#include "agent/rx_ctx.h"

/* Nobody is woken: user space looks once a second. Full: samples are lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} samples SEC(".maps");

static __noinline void sample_write(struct sample *sample, const struct rx_ctx *a, __u32 bytes)
{
	sample->vip = a->inner.destination;
	sample->source = a->inner.source;
	sample->bytes = bytes;
}

static __noinline void sample_take(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);

	a->until_sample = bpf_get_prandom_u32() & SAMPLE_GAP_MOST;
	if (!sample)
		return;
	sample_write(sample, a, skb->len - a->inner.l3);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
}

/* Counts a packet to an endpoint that is about to be delivered. */
static __always_inline void sample(struct __sk_buff *skb, struct rx_ctx *a)
{
	if (a->past_muxes)
		return;
	if (a->until_sample)
		a->until_sample--;
	else
		sample_take(skb, a);
}
