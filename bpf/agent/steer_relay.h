/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Relays to a mux what a switch brought and a host can't tell the backend of: the mux does with it
 * as if it had come there. Switches send the fragments of a datagram to several hosts, as only the
 * first has ports.
 */
#pragma once

#include "agent/forward.h"
#include "agent/steer_choose.h"
#include "net/ratelimit.h"

enum {
	RELAY_INTERVAL = 100000, /* ns: the host relays 10 000 a second of each kind */
	RELAY_BURST = 100000000, /* ns */
};

/* When the buckets of what the host relays will be full again. */
struct {
	__u64 fragments;
	__u64 errors;
} relay_tat SEC(".data.relay_tat");

/* To the same mux for all fragments between two addresses. Relayed, or why not: then it is as it
 * was. */
static __noinline enum verdict relay(struct __sk_buff *skb, struct rx_ctx *a, enum verdict relayed)
{
	__u32 family = address_is_v4(&a->outer.destination) ? STEER_RELAYS_V4 : STEER_RELAYS_V6;
	const struct steer_relays *muxes = bpf_map_lookup_elem(&steer_relays, &family);
	__u64 *tat = relayed == VERDICT_RELAY_ERROR ? &relay_tat.errors : &relay_tat.fragments;
	const __u32 takes = 0; /* no dry run */
	enum verdict verdict;
	__u32 at;

	if (!muxes || !muxes->count)
		return VERDICT_DROP_RELAY_NO_MUX;
	if (!ratelimit_take(tat, RELAY_INTERVAL, RELAY_BURST, bpf_ktime_get_ns(), &takes))
		return VERDICT_DROP_RELAY_LIMITED;
	at = (__u32)flowhash(&a->inner, &pool_key) % muxes->count;
	a->hop.to = muxes->addresses[at & (STEER_RELAYS_MAX - 1)];
	a->hop.step = GUE_CHAIN_NONE;
	a->hop.kind = GUE_KIND_RELAY;
	if (!a->tunnel.entropy)
		a->tunnel.entropy = forward_entropy(&a->inner);
	verdict = forward(skb, a);
	if (verdict)
		return verdict;
	steer_count(skb, STEER_BY_MUX);
	return relayed;
}
