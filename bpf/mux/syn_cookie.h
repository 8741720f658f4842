/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts SYNs, and samples which handshakes are completed: by that user space detects SYN floods.
 * An endpoint without ENDPOINT_SYN_COUNTED pays for its SYNs alone.
 *
 * The ACK of a connection whose SYN was answered here must bring the cookie back: it proves that
 * the client got the answer. The ACK of one whose SYN was forwarded proves nothing, as the mux does
 * not see the backend's SYN-ACK. So user space has SYNs answered for a moment where such ACKs come.
 */
#pragma once

#include "abi/mux/syn_cookie.h"
#include "net/flowhash.h"
#include "mux/tcp_cookie.h"
#include "mux/trace.h"
#include "mux/maps.h"
#include "mux/ctx.h"
#include "net/syncookie.h"

/* SYN counters by endpoint id. Packets write. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct syn_counter);
} syn_counters SEC(".maps");

/*
 * Sampled handshakes that are under way, by hash: the upper end of the hash; or 0. A handshake that
 * finds its place taken evicts the other, which counts as never completed. All are in one row, for
 * a row takes 8 bytes at least: a flood is to find them in a cache.
 */
struct syn_samples {
	__u16 tags[SYN_SAMPLES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_samples);
} syn_samples SEC(".maps");

/* Is the connection of the hash one of those that are sampled? */
static __always_inline bool syn_sampled(__u64 hash)
{
	return !(hash & ((1 << SYN_SAMPLE_SHIFT) - 1));
}

static __always_inline __u16 *syn_sample(__u64 hash)
{
	__u32 row = 0;
	struct syn_samples *all = bpf_map_lookup_elem(&syn_samples, &row);

	return all ? &all->tags[hash >> SYN_SAMPLE_SHIFT & (SYN_SAMPLES - 1)] : NULL;
}

static __always_inline __u16 syn_sample_tag(__u64 hash)
{
	return hash >> 48 | 1; /* 0 is an empty cell */
}

/* Is the SYN of a handshake that is sampled? */
static __always_inline bool syn_is_sampled(const struct mux_ctx *w)
{
	return w->endpoint->flags & ENDPOINT_SYN_COUNTED && syn_sampled(w->hash);
}

/* Is the SYN to be answered with a cookie? */
static __always_inline bool syn_is_answered(const struct mux_ctx *w)
{
	const __u32 flags = w->endpoint->flags;

	return flags & ENDPOINT_SYN_COOKIES ||
	       (flags & ENDPOINT_SYN_SAMPLED && syn_sampled(w->hash));
}

/* Counts a SYN whose handshake is not followed. */
static __always_inline void syn_count_one(__u32 id)
{
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);

	if (counter && !trace_only())
		counter->syns++;
}

/* Begins a sample of the counter's endpoint with the handshake of the hash. */
static __always_inline void syn_begin_sample(struct syn_counter *counter, __u64 hash)
{
	__u16 tag = syn_sample_tag(hash), *sample = syn_sample(hash);

	if (!sample)
		return;
	counter->tried += *sample != tag; /* not one that is sent again */
	*sample = tag;
}

/* Counts a SYN, and begins a sample if its handshake is one. */
static __always_inline void syn_count_followed(__u32 id, __u64 hash, bool sampled)
{
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);

	if (!counter || trace_only())
		return;
	counter->syns++;
	if (sampled)
		syn_begin_sample(counter, hash);
}

/* Counts a SYN, whatever becomes of it. */
static __always_inline void syn_count(const struct mux_ctx *w)
{
	__u32 id = w->endpoint->id;
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);

	if (!counter || trace_only())
		return;
	counter->syns++;
	if (syn_is_sampled(w))
		syn_begin_sample(counter, w->hash);
}

static __always_inline void syn_count_answer(__u32 id)
{
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);

	if (counter && !trace_only())
		counter->answered++;
}

/* An ACK that may complete a sampled handshake. */
struct syn_proof {
	struct syn_flow flow;
	struct tcphdr tcp;
	__u32 id; /* of the endpoint */
	__u32 flags; /* likewise */
	__u64 hash;
	__u32 l4;
	__u32 pad;
};

/* The ACK that this CPU checks: the fast path's stack has no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_proof);
} syn_proofs SEC(".maps");

static __always_inline struct syn_proof *syn_proof(void)
{
	__u32 row = 0;

	return bpf_map_lookup_elem(&syn_proofs, &row);
}

/*
 * Does the segment acknowledge a SYN-ACK of a mux? Its cookie must be right, as at the host. Where
 * SYNs are forwarded any will do.
 */
static __always_inline bool syn_is_acknowledged(struct xdp_md *ctx, struct syn_proof *proof)
{
	__u64 now = bpf_ktime_get_coarse_ns() + syn_secrets.clock;
	struct tcphdr *tcp = &proof->tcp;
	__u32 cookie, length, echo;

	if (!(proof->flags & (ENDPOINT_SYN_COOKIES | ENDPOINT_SYN_SAMPLED)))
		return true;
	if (!syn_secrets.clock || bpf_xdp_load_bytes(ctx, proof->l4, tcp, sizeof(*tcp)))
		return false;
	length = tcp->doff * 4 - sizeof(*tcp);
	cookie = bpf_ntohl(tcp->ack_seq) - 1;
	proof->flow.isn = bpf_htonl(bpf_ntohl(tcp->seq) - 1);
	echo = cookie_search(ctx, proof->l4 + sizeof(*tcp), length, TIMESTAMPS_ECHO);
	return syn_cookie_check(&syn_secrets.rows[syn_cookie_row(cookie)], &proof->flow, cookie,
				echo ? syn_options(echo) : 0, now) > 0;
}

/* The sample of the connection, while it is under way. */
static __always_inline __u16 *syn_sample_of(const struct syn_proof *proof)
{
	__u16 *sample = syn_sample(proof->hash);

	return sample && *sample == syn_sample_tag(proof->hash) ? sample : NULL;
}

/*
 * Counts the handshake if the segment completes it. The verifier walks this once. Nothing is kept
 * over the search of options: mux_trace has no more stack for it.
 */
__noinline int syn_complete(struct xdp_md *ctx)
{
	struct syn_proof *proof = syn_proof();
	struct syn_counter *counter;
	__u16 *sample;

	if (!proof || trace_only() || !syn_sample_of(proof) || !syn_is_acknowledged(ctx, proof))
		return 0;
	sample = syn_sample_of(proof);
	counter = bpf_map_lookup_elem(&syn_counters, &proof->id);
	if (!sample || !counter)
		return 0;
	*sample = 0;
	counter->completed++;
	return 0;
}

/*
 * Follows a TCP packet of an endpoint with ENDPOINT_SYN_COUNTED, of a virtual network if vni is not
 * 0. Only an ACK completes a handshake: a reset is what a host sends whose address was forged.
 */
static __always_inline void syn_follow(struct xdp_md *ctx, struct mux_ctx *w, __u32 vni)
{
	const __u8 flags = TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK;
	struct syn_proof *proof;
	__u64 hash = w->hash;

	if ((w->packet.tcp_flags & flags) != TCP_FLAG_ACK)
		return;
	if (!hash)
		hash = flowhash(&w->packet, &settings.hash_key);
	if (!syn_sampled(hash))
		return;
	proof = syn_proof();
	if (!proof)
		return;
	proof->hash = hash;
	proof->flow.client = w->packet.source;
	proof->flow.vip = w->packet.destination;
	proof->flow.client_port = w->packet.source_port;
	proof->flow.vip_port = w->packet.destination_port;
	proof->flow.vni = vni;
	proof->id = w->endpoint->id;
	proof->flags = w->endpoint->flags;
	proof->l4 = w->packet.l4;
	syn_complete(ctx);
}
