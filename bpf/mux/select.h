/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Chooses the backend of a packet: its cookie, what is remembered of its flow, its bucket, in
 * this order. Of a bucket that has not moved the latter two are one, and a filter of bits may say
 * so without a look into the flow table. docs/design/mux.md has the reasons.
 */
#pragma once

#include "net/flowhash.h"
#include "mux/tcp_cookie.h"
#include "mux/endpoint.h"
#include "mux/flow_filter.h"
#include "mux/flow_table.h"
#include "mux/flow_syn.h"
#include "mux/syn_ctx.h"
#include "mux/snat.h"
#include "mux/syn_cookie.h"
#include "mux/syn_join.h"
#include "mux/ctx.h"

/*
 * Steps that are rare or have many branches are functions of their own that return numbers: the
 * verifier walks each of them, and what follows, once.
 */

/* What all packets of a client to an endpoint have in common. */
struct client {
	struct address source;
	struct address vip;
	__u32 protocol;
	__u32 port; /* of the endpoint */
	__u32 vni; /* 0: none */
};

__noinline __u64 client_hash(const struct client *c)
{
	struct packet p;

	if (!c)
		return 0;
	p.source = c->source;
	p.destination = c->vip;
	p.protocol = c->protocol;
	p.source_port = 0;
	p.destination_port = c->port;
	return flowhash_in(c->vni, &p, &settings.hash_key);
}

/* The hash that chooses the bucket of a packet in a virtual network; VNI 0: in none. */
static __always_inline __u32 bucket_hash_in(__u32 vni, const struct mux_ctx *w)
{
	if (w->endpoint->flags & ENDPOINT_AFFINITY) {
		struct client client = {
			.source = w->packet.source,
			.vip = w->packet.destination,
			.protocol = w->packet.protocol,
			.port = w->endpoint_port,
			.vni = vni,
		};

		return client_hash(&client);
	}
	return w->hash;
}

static __always_inline __u32 bucket_hash(const struct mux_ctx *w)
{
	return bucket_hash_in(0, w);
}

/* The arguments of choose_by_flow(). */
struct ask {
	struct flow_claim claim;
	__u64 slices;
	__u32 bucket_hash;
	__u32 endpoint; /* its id */
	__u32 cookie; /* of an endpoint with ENDPOINT_COOKIES_WARMING; 0: none */
	__u32 l4; /* of a TCP segment whose flow's cell may note a SYN, else 0 */
};

/* The result of choose_by_flow(), from the lowest bit: slot, previous slot, verdict. */
enum {
	CHOSEN_PREVIOUS_SHIFT = SLOT_BITS,
	CHOSEN_VERDICT_SHIFT = 2 * SLOT_BITS,
};

static __always_inline __u32 chosen(__u32 slot, enum verdict forward)
{
	return slot | forward << CHOSEN_VERDICT_SHIFT;
}

/*
 * Chooses by the bucket. If that moved lately, the choice is a guess: the packet names the previous
 * backend too, and nothing is remembered.
 */
static __always_inline __u32 choose_by_bucket(struct ask *a, enum verdict forward)
{
	struct choice choice = bucket_choice(a->slices, a->bucket_hash);

	if (choice.previous != choice.slot && backend_alive(a->slices, choice.previous))
		return chosen(choice.slot, VERDICT_FORWARD_CHAINED) |
		       choice.previous << CHOSEN_PREVIOUS_SHIFT;
	a->claim.slot = choice.slot;
	if (!backend_at(a->slices, choice.slot))
		return 0;
	if (!trace_only() && !flow_remember(&a->claim))
		forward = VERDICT_FORWARD_UNTRACKED;
	return chosen(choice.slot, forward);
}

/*
 * A flow was found at a slot. Where that is its bucket's, its next packets need not look, if it is
 * trusted: quotas bound such flows, and with them the bits that one tenant's may set.
 */
__noinline int flow_found(const struct ask *a, __u32 slot)
{
	__u32 word;

	if (!a || trace_only())
		return 0;
	word = bucket_word(a->slices, a->bucket_hash);
	if (slot != (word & SLOT_MASK))
		flow_is_elsewhere(a->endpoint, a->bucket_hash);
	else if (word == slot && a->claim.trusted && flow_filter_suits(a->claim.idle))
		flow_filter_add(a->claim.tag, a->claim.now);
	return 0;
}

/* Chooses by the flow table, then by the cookie of an endpoint whose cookies warm up, then by the
 * bucket. */
__noinline int choose_by_flow(struct xdp_md *ctx, struct ask *a)
{
	__u32 slot;

	if (!a)
		return 0;
	slot = flow_recall(&a->claim);
	if (!slot && a->l4)
		slot = flow_after_syn(ctx, &a->claim, a->l4);
	if (slot)
		flow_found(a, slot);
	if (slot && backend_alive(a->slices, slot))
		return chosen(slot, VERDICT_FORWARD_FLOW);
	if (a->cookie && backend_alive(a->slices, a->cookie))
		return chosen(a->cookie, VERDICT_FORWARD_COOKIE);
	return choose_by_bucket(a, slot ? VERDICT_FORWARD_FAILOVER : VERDICT_FORWARD_BUCKET);
}

/*
 * A new connection goes where its bucket says. What is remembered of its five-tuple stays until a
 * segment follows the SYN, and nothing else is remembered: a flood of SYNs evicts nobody.
 */
static __always_inline __u32 choose_for_syn(struct xdp_md *ctx, const struct mux_ctx *w)
{
	__u32 slot = bucket_slot(w->slices, bucket_hash(w));

	if (w->endpoint->flags & ENDPOINT_REMAPPED)
		flow_note_syn(ctx, w->hash, flow_tag(w->hash, w->endpoint->salt), slot,
			      w->packet.l4);
	return chosen(slot, VERDICT_FORWARD_SYN);
}

/* A SYN that the mux answers: its backend is chosen now, so that the ACK will find the same. */
static __always_inline enum verdict choose_to_answer(struct mux_ctx *w)
{
	w->slot = bucket_slot(w->slices, bucket_hash(w));
	if (!backend_at(w->slices, w->slot))
		return VERDICT_DROP_NO_BACKEND;
	syn_ctx_store(w);
	return VERDICT_DROP_SYN; /* unless the slow path answers it */
}

static __always_inline __u32 choose_for_others(struct xdp_md *ctx, const struct mux_ctx *w,
					       __u32 cookie)
{
	const struct endpoint *e = w->endpoint;
	struct ask ask = {
		.claim.hash = w->hash,
		.claim.tag = flow_tag(w->hash, e->salt),
		.claim.vip = e->vip,
		.claim.limit = e->flow_limit,
		.claim.idle = e->idle,
		.claim.now = flow_now(),
		.slices = w->slices,
		.bucket_hash = bucket_hash(w),
		.endpoint = e->id,
		.cookie = cookie,
		.l4 = e->flags & ENDPOINT_REMAPPED && w->packet.protocol == IPPROTO_TCP
			      ? w->packet.l4
			      : 0,
	};

	return choose_by_flow(ctx, &ask);
}

/*
 * Chooses by the filter and the bucket, if these are certain: false when the flow table must be
 * asked. While cookies warm up, a flow that the table does not know may be where its cookie says.
 */
static __always_inline bool choose_by_filter(struct mux_ctx *w)
{
	const struct endpoint *e = w->endpoint;
	__u32 word;

	if (e->flags & ENDPOINT_COOKIES_WARMING || !flow_filter_suits(e->idle) ||
	    !flow_filter_has(flow_tag(w->hash, e->salt), flow_now()))
		return false;
	word = bucket_word(w->slices, bucket_hash(w));
	if (word & ~SLOT_MASK)
		return false; /* it moves, or has moved */
	w->slot = word;
	w->backend = backend_alive(w->slices, word);
	w->forward = VERDICT_FORWARD_KNOWN;
	return w->backend;
}

static __always_inline enum verdict choose_snat(struct mux_ctx *w)
{
	w->slot = 0;
	w->forward = VERDICT_FORWARD_SNAT;
	w->backend = snat_owner(w->slices, w->packet.destination_port);
	return w->backend ? VERDICT_NONE : VERDICT_DROP_NO_RANGE;
}

static __always_inline enum verdict choose(struct xdp_md *ctx, struct mux_ctx *w)
{
	bool syn = (w->packet.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
	__u32 flags = w->endpoint->flags, cookie = 0, choice, previous;

	if (flags & ENDPOINT_COOKIES && !syn) {
		cookie = cookie_slot(ctx, &w->packet);
		w->backend =
			flags & ENDPOINT_COOKIES_WARMING ? NULL : backend_alive(w->slices, cookie);
		w->slot = cookie;
		w->forward = VERDICT_FORWARD_COOKIE;
		if (w->backend)
			return VERDICT_NONE; /* and no hash */
	}
	if (flags & ENDPOINT_SNAT)
		return choose_snat(w);
	w->hash = flowhash(&w->packet, &settings.hash_key);
	if (syn)
		syn_count(w);
	if (syn && syn_is_answered(w)) {
		enum join join = syn_joins(ctx, w);

		if (join == JOIN_NONE)
			return choose_to_answer(w);
		if (join == JOIN_DROP)
			return VERDICT_DROP_JOIN_LIMITED;
	}
	if (!syn && choose_by_filter(w))
		return VERDICT_NONE;
	choice = syn ? choose_for_syn(ctx, w) : choose_for_others(ctx, w, cookie);
	w->forward = choice >> CHOSEN_VERDICT_SHIFT;
	w->slot = choice & SLOT_MASK;
	w->backend = backend_at(w->slices, w->slot);
	previous = choice >> CHOSEN_PREVIOUS_SHIFT & SLOT_MASK;
	if (previous) {
		w->other_slot = previous;
		w->other = backend_at(w->slices, previous);
		w->weir.version = GUE_WEIR_VERSION;
		w->weir.step = GUE_CHAIN_QUERY;
	}
	return w->backend ? VERDICT_NONE : VERDICT_DROP_NO_BACKEND;
}

/*
 * For packets that refer to a connection (ICMP errors), not packets of it: the backend that packets
 * of w's five-tuple go to if that is certain, else NULL. The cookie is 0 when there is none; while
 * an endpoint's cookies warm up it may be no cookie at all, so the flow table comes first. Writes
 * no table.
 */
static __always_inline struct backend *choose_known(struct mux_ctx *w, __u32 cookie)
{
	struct endpoint *endpoint = w->endpoint;
	struct backend *backend = NULL, *named = NULL;

	if (endpoint->flags & ENDPOINT_COOKIES)
		named = backend_alive(w->slices, cookie);
	if (named && !(endpoint->flags & ENDPOINT_COOKIES_WARMING))
		return named;
	w->hash = flowhash(&w->packet, &settings.hash_key);
	backend = backend_alive(w->slices,
				flow_peek(w->hash, flow_tag(w->hash, endpoint->salt), flow_now()));
	if (!backend)
		backend = named;
	/* Hosts keep connections where switches bring them, if only these carry cookies. */
	if (backend || endpoint->flags & (ENDPOINT_REMAPPED | ENDPOINT_HARDWARE))
		return backend;
	return backend_at(w->slices, bucket_slot(w->slices, bucket_hash(w)));
}
