/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Chooses the backend of a packet: its cookie, what is remembered of its flow, its bucket, in
 * this order. docs/design/mux.md tells why each is as it is.
 */
#pragma once

#include "lib/mux_cookie.h"
#include "lib/mux_endpoint.h"
#include "lib/mux_flow.h"
#include "lib/mux_work.h"

/* The hash that chooses the bucket: with affinity, the same for all that a client sends. */
static __always_inline __u32 bucket_hash(struct work *w)
{
	struct packet client;

	if (!(w->endpoint->flags & ENDPOINT_AFFINITY))
		return work_hash(w);
	client.source = w->packet.source;
	client.destination = w->packet.destination;
	client.protocol = w->packet.protocol;
	client.source_port = 0;
	client.destination_port = w->endpoint_port;
	return flowhash(&client, &pool.hash_key);
}

static __always_inline enum verdict choose_by_bucket(struct work *w, struct choice *choice)
{
	*choice = bucket_choice(w->slices, bucket_hash(w));
	w->backend = backend_at(w->slices, choice->slot);
	return w->backend ? VERDICT_NONE : VERDICT_DROP_NO_BACKEND;
}

/* A new connection goes where its bucket says, and what was remembered of its five-tuple is
 * forgotten. Nothing is remembered yet: a flood of SYNs evicts nobody.
 */
static __always_inline enum verdict choose_for_syn(struct work *w)
{
	struct choice choice;

	if (w->endpoint->flags & ENDPOINT_MOVED) {
		__u64 hash = work_hash(w);

		flow_forget(hash, flow_tag(hash, w->endpoint->salt));
	}
	w->forward = VERDICT_FORWARD_SYN;
	return choose_by_bucket(w, &choice);
}

/*
 * A bucket that moved lately is a guess: the packet names the previous backend too, and nothing
 * is remembered.
 */
static __always_inline bool chain(struct work *w, const struct choice *choice)
{
	struct backend *previous = backend_alive(w->slices, choice->previous);

	if (!previous || previous == w->backend)
		return false;
	w->other = previous;
	w->weir.version = GUE_WEIR_VERSION;
	w->weir.step = GUE_STEP_ASK;
	w->forward = VERDICT_FORWARD_CHAINED;
	return true;
}

static __always_inline bool choose_by_cookie(struct work *w, __u32 slot)
{
	struct backend *backend = backend_alive(w->slices, slot);

	if (!backend)
		return false;
	w->backend = backend;
	w->forward = VERDICT_FORWARD_COOKIE;
	return true;
}

static __always_inline enum verdict choose_by_flow(struct work *w, __u32 cookie)
{
	__u64 hash = work_hash(w);
	struct flow_claim claim = {
		.hash = hash,
		.tag = flow_tag(hash, w->endpoint->salt),
		.vip = w->endpoint->vip,
		.limit = w->endpoint->flow_limit,
		.idle = w->endpoint->idle,
		.now = flow_now(),
	};
	struct choice choice;
	enum verdict verdict;
	__u32 slot;

	slot = flow_recall(&claim) & FLOW_SLOT_MASK;
	w->forward = slot ? VERDICT_FORWARD_REPLACED : VERDICT_FORWARD_BUCKET;
	w->backend = backend_alive(w->slices, slot);
	if (w->backend) {
		w->forward = VERDICT_FORWARD_FLOW;
		return VERDICT_NONE;
	}
	if (cookie && choose_by_cookie(w, cookie))
		return VERDICT_NONE;
	verdict = choose_by_bucket(w, &choice);
	if (verdict || chain(w, &choice))
		return verdict;
	claim.slot = choice.slot;
	if (!only_looking() && !flow_remember(&claim))
		w->forward = VERDICT_FORWARD_UNREMEMBERED;
	return VERDICT_NONE;
}

static __always_inline enum verdict choose(struct xdp_md *ctx, struct work *w)
{
	__u32 flags = w->endpoint->flags, cookie = 0;

	if ((w->packet.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN)
		return choose_for_syn(w);
	if (flags & ENDPOINT_COOKIES) {
		cookie = cookie_slot(ctx, &w->packet);
		if (!(flags & ENDPOINT_SETTLING)) {
			if (cookie && choose_by_cookie(w, cookie))
				return VERDICT_NONE;
			cookie = 0;
		}
	}
	return choose_by_flow(w, cookie);
}

/*
 * For what is told about a connection, not by it: the backend that packets of w's five-tuple go
 * to if that is certain, else NULL. The cookie is 0 when there is none. Writes no table.
 */
static __always_inline struct backend *choose_known(struct work *w, __u32 cookie)
{
	struct endpoint *endpoint = w->endpoint;
	struct backend *backend = NULL;
	struct choice choice;
	__u64 hash;

	if (endpoint->flags & ENDPOINT_COOKIES)
		backend = backend_alive(w->slices, cookie);
	if (backend)
		return backend;
	hash = work_hash(w);
	backend = backend_alive(w->slices,
				flow_peek(hash, flow_tag(hash, endpoint->salt), flow_now()));
	if (backend || endpoint->flags & ENDPOINT_MOVED)
		return backend;
	choice = bucket_choice(w->slices, bucket_hash(w));
	return backend_at(w->slices, choice.slot);
}
