/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What steering looks up: who may send, and the backend that a packet belongs to. */
#pragma once

#include "agent/chain.h"
#include "agent/steer_tables.h"
#include "agent/steer_workload.h"
#include "net/flowhash.h"
#include "net/skb/timestamps.h"

static __noinline int steer_count(const struct __sk_buff *skb, enum steer_reason reason)
{
	struct counter *c = bpf_map_lookup_elem(&steer_reasons, &reason);

	if (c) {
		c->packets += skb->gso_segs ?: 1;
		c->bytes += skb->len;
	}
	return 0;
}

/* What the outer source is to the VIP: an enum steer_role; 0: nothing. */
static __always_inline __u32 steer_from(const struct rx_ctx *a)
{
	struct steer_source key = { .source = a->outer.source };
	const __u32 *found;

	if (a->content != CONTENT_REFUSED)
		key.vip = a->inner.destination;
	found = bpf_map_lookup_elem(&steer_sources, &key);
	return found ? *found : 0;
}

/* The endpoint of a client's packet to a VIP that switches hold. */
static __noinline const struct steer_endpoint *steer_endpoint_of(const struct packet *p,
								 __u16 *port)
{
	struct steer_key key = { .vip = p->destination,
				 .port = p->destination_port,
				 .protocol = p->protocol };
	const struct steer_endpoint *endpoint = bpf_map_lookup_elem(&steer_endpoints, &key);

	*port = key.port;
	if (endpoint)
		return endpoint;
	*port = key.port = 0;
	return bpf_map_lookup_elem(&steer_endpoints, &key);
}

/* May the outer source have steered the packet here? */
static __always_inline enum verdict admit_steered(const struct rx_ctx *a)
{
	__u16 port;

	if (!settings.steered || steer_from(a) != STEER_HOST)
		return VERDICT_DROP_NOT_A_VIP_HOST;
	switch (a->content) {
	case CONTENT_ENDPOINT:
		return steer_endpoint_of(&a->inner, &port) ? VERDICT_NONE
							   : VERDICT_DROP_NOT_A_VIP_HOST;
	case CONTENT_ERROR:
	case CONTENT_REFUSED: /* says why */
		return VERDICT_NONE;
	case CONTENT_ANSWER:
	case CONTENT_ECHO:
		return settings.snat ? VERDICT_NONE : VERDICT_DROP_NO_RULE;
	case CONTENT_PING:
		return VERDICT_DROP_NO_RULE;
	case CONTENT_FRAGMENT:
		return VERDICT_DROP_INNER_FRAGMENT;
	}
	return VERDICT_DROP_NOT_A_VIP_HOST;
}

/* Has a host of the VIP steered what GRO merged, which is in IP alone? See forward_in_ip.h. */
static __always_inline bool admit_merged(const struct rx_ctx *a)
{
	__u16 port;

	if (!settings.steered || a->tunnel.entropy || steer_from(a) != STEER_HOST)
		return false;
	if (a->content == CONTENT_ANSWER)
		return settings.snat;
	return a->content == CONTENT_ENDPOINT && steer_endpoint_of(&a->inner, &port);
}

/* Does a switch bring the packet, which holds its VIP? Then it is as what: an enum steer_role. */
static __always_inline __u32 admit_from_switch(const struct rx_ctx *a)
{
	__u32 role = settings.steered && !a->tunnel.says_weir ? steer_from(a) : 0;

	return role == STEER_HOST ? 0 : role;
}

static __always_inline const struct steer_backend *steer_backend_at(__u32 endpoint, __u32 slot)
{
	struct steer_backend_key key = { .endpoint = endpoint, .slot = slot };

	return bpf_map_lookup_elem(&steer_backends, &key);
}

static __noinline bool steer_backend_is(__u32 endpoint, __u32 slot, enum steer_backend_flag flag)
{
	const struct steer_backend *backend = slot ? steer_backend_at(endpoint, slot) : NULL;

	if (flag == STEER_BACKEND_DOWN)
		return !backend || backend->flags & STEER_BACKEND_DOWN;
	return backend && backend->flags & flag;
}

/* The hash of a client's packet that chooses its bucket, as muxes have it. */
static __noinline __u32 steer_hash(const struct packet *p, __u32 flags, __u16 port)
{
	struct packet client;

	if (!(flags & STEER_AFFINITY))
		return flowhash(p, &pool_key);
	client.source = p->source;
	client.destination = p->destination;
	client.protocol = p->protocol;
	client.source_port = 0;
	client.destination_port = port;
	return flowhash(&client, &pool_key);
}

/* What the bucket names: the slot, and above it the one before; 0: nothing. */
static __noinline __u32 steer_bucket(const struct steer_endpoint *endpoint, __u32 hash)
{
	__u32 bucket = hash & endpoint->bucket_mask, chosen;
	struct steer_bucket_key key = {
		.endpoint = endpoint->number,
		.row = bucket / STEER_BUCKETS_PER_ROW,
	};
	const struct steer_bucket_row *row;

	if (endpoint->flags & STEER_EMPTY)
		return 0;
	row = bpf_map_lookup_elem(&steer_buckets, &key);
	if (!row)
		return 0;
	chosen = *(volatile const __u32 *)&row->buckets[bucket % STEER_BUCKETS_PER_ROW];
	return row->key.endpoint == key.endpoint && row->key.row == key.row ? chosen : 0;
}

static __always_inline void steer_to(struct rx_ctx *a, __u32 slot, __u32 previous,
				     enum steer_reason reason)
{
	a->steering.slot = slot;
	a->steering.previous = previous;
	a->steering.reason = reason;
}

static __noinline int steer_by_bucket(struct rx_ctx *a, const struct packet *p,
				      const struct steer_endpoint *endpoint, bool guess)
{
	__u32 chosen = steer_bucket(endpoint, steer_hash(p, endpoint->flags, a->steering.port));
	__u32 slot = chosen & SLOT_MASK, previous = chosen >> STEER_PREVIOUS_SHIFT & SLOT_MASK;

	if (!guess || previous == slot ||
	    steer_backend_is(endpoint->number, previous, STEER_BACKEND_DOWN))
		previous = 0;
	steer_to(a, slot, previous, STEER_BY_BUCKET);
	return 0;
}

/*
 * Chooses the backend: Decide() of internal/steer is the twin in Go, case by case. own is the slot
 * behind the tunnel that the packet came to, which has no session of it, or that the host chose; 0:
 * it has none of the endpoint.
 */
static __noinline int steer_choose(struct __sk_buff *skb, struct rx_ctx *a,
				   const struct steer_endpoint *endpoint, __u32 own)
{
	__u32 number = endpoint->number, flags = endpoint->flags;
	const struct packet *p = &a->inner;
	struct timestamps ts = timestamps_read(skb, p);
	__u32 cookie = ts.at && flags & STEER_COOKIES ? ts.tsecr & SLOT_MASK : 0;

	if (chain_begins(p)) {
		if (!ts.at || !(flags & STEER_COOKIES_SETTLED) ||
		    !steer_backend_is(number, own, STEER_BACKEND_NEW) ||
		    !steer_workload_speaks(&a->rule))
			return steer_by_bucket(a, p, endpoint, false);
		steer_to(a, own, 0, STEER_BY_ARRIVAL);
	} else if (flags & STEER_BY_HOST && own && chain_knows(skb, p, &a->rule, true)) {
		steer_to(a, own, 0, STEER_BY_SESSION);
	} else if (cookie && !steer_backend_is(number, cookie, STEER_BACKEND_DOWN)) {
		steer_to(a, cookie, 0, STEER_BY_COOKIE);
	} else if (p->protocol == IPPROTO_UDP && flags & STEER_UDP_LOCAL &&
		   steer_backend_is(number, own, STEER_BACKEND_NEW)) {
		steer_to(a, own, 0, STEER_BY_ARRIVAL);
	} else {
		return steer_by_bucket(a, p, endpoint, true);
	}
	return 0;
}
