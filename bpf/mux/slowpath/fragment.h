/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fragments. Only the first one of a datagram has ports, so all of them go to one mux of the pool,
 * its owner, which every mux computes alike. The owner keeps the ports and the backend of the first
 * one.
 */
#pragma once

#include "abi/mux/pool_member.h"
#include "net/counter.h"
#include "net/datagram.h"
#include "mux/select.h"
#include "mux/encapsulate.h"
#include "mux/police.h"
#include "net/xdp/frame.h"
#include "mux/slowpath/reply.h"

enum { FRAGMENT_SETS = 8192 }; /* a power of two */

/*
 * Datagrams whose first fragment came. Written by packets, read by user space. Full: a datagram of
 * the set is forgotten, see net/datagram.h, and its later fragments count as early.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRAGMENT_SETS);
	__uint(map_flags, BPF_F_MMAPABLE); /* it aligns sets to lines */
	__type(key, __u32);
	__type(value, struct datagram_set);
} fragments SEC(".maps");

/* The muxes of the pool; a map of one row that needs no lookup. Written by user space. */
struct pool_members pool_members SEC(".data.pool_members");

/* Ports and backend of a first fragment, as a word of its datagram's cell. */
struct fragment_value {
	__be16 source_port;
	__be16 destination_port;
	__u16 slot; /* that the first one was sent to */
	__u16 other_slot; /* that was named with it, 0: none */
};

_Static_assert(sizeof(struct fragment_value) == sizeof(__u64), "fragment_value");

static __always_inline __u64 fragment_hash(const struct packet *p)
{
	return datagram_hash(p, &settings.hash_key);
}

static __always_inline struct datagram_set *fragment_set(__u64 hash)
{
	__u32 row = hash % FRAGMENT_SETS;

	return bpf_map_lookup_elem(&fragments, &row);
}

/* Has the first fragment of d's datagram come? Then fills in d. */
static __always_inline bool fragment_recall(struct datagram *d)
{
	return datagram_recall(fragment_set(d->hash), d);
}

/* Whose the datagram is: the tenant's, or the VIP's if that is by itself. */
static __always_inline __u32 fragment_tenant(__u32 vip)
{
	struct flow_usage *usage = bpf_map_lookup_elem(&vip_usage, &vip);

	return usage && usage->tenant ? usage->tenant << 1 | 1 : vip << 1;
}

/* Is the fragment's datagram one that we forward? Of ICMP only what workloads with source NAT asked
 * for. */
static __always_inline bool fragment_is_for_vip(const struct packet *p)
{
	struct endpoint *vip;

	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP && !packet_is_icmp(p))
		return false;
	vip = vip_of(&p->destination);
	return vip && (!packet_is_icmp(p) || vip->flags & ENDPOINT_SNAT);
}

/* A member's claim to the datagram: the largest one wins (rendezvous hashing). */
static __always_inline __u64 pool_member_score(__u64 hash, __u64 seed)
{
	__u64 h = hash ^ seed;

	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return h;
}

/* Row of the member that owns the datagram. A function of its own, which the verifier walks once.
 */
__noinline int fragment_owner(__u32 hash)
{
	__u32 best = pool_members.self, count = pool_members.count;
	__u64 most = 0;

	for (__u32 i = 0; i < POOL_MEMBERS_MAX && i < count; i++) {
		__u64 score = pool_member_score(hash, pool_members.rows[i].seed);

		if (score < most)
			continue;
		most = score;
		best = i;
	}
	return best;
}

/*
 * Why the packet is not relayed, or VERDICT_NONE. Its VIP's limits hold here, where it came from
 * outside, and all that is relayed has a rate: who forges fragments chooses their owner.
 */
__noinline int relay_refuses(const struct packet *p)
{
	struct endpoint *vip = p ? vip_of(&p->destination) : NULL;
	enum verdict verdict;

	if (!vip)
		return VERDICT_PASS_FRAGMENT;
	verdict = police_vip(p, vip);
	if (verdict)
		return verdict;
	return ratelimit(LIMIT_RELAY, &p->destination) ? VERDICT_NONE : VERDICT_DROP_RELAY_LIMITED;
}

/* Sends the packet to the member, in GUE. VERDICT_NONE when there is no way to it. */
static __always_inline enum verdict relay(struct xdp_md *ctx, const struct packet *p,
					  struct pool_member *to, struct pool_member *self,
					  __u64 hash)
{
	struct gue_push g = {
		.hash = hash,
		.weir = { .version = GUE_WEIR_VERSION, .kind = GUE_KIND_RELAY },
		.l3_length = p->l3_length,
		.l3 = p->l3,
		.protocol = inner_protocol(p),
		.tos = p->tos,
	};
	enum pool_member_family family = POOL_MEMBER_V4;
	struct next_hop *hop;
	__u32 id, why;

	if (!to->next_hops[POOL_MEMBER_V4] || !address_is_set(&self->addresses[POOL_MEMBER_V4]))
		family = POOL_MEMBER_V6;
	id = to->next_hops[family];
	hop = bpf_map_lookup_elem(&next_hops, &id);
	if (!id || !hop || !address_is_set(&self->addresses[family]) ||
	    !vlan_tags_load(ctx, &g.vlan))
		return VERDICT_NONE;
	why = relay_refuses(p);
	if (why)
		return why;
	__builtin_memcpy(g.macs, hop->macs, sizeof(g.macs));
	g.v4 = family == POOL_MEMBER_V4;
	g.source = self->addresses[family];
	g.destination = to->addresses[family];
	return push_gue(ctx, &g) ? VERDICT_RELAY_FRAGMENT : VERDICT_DROP_NO_HEADROOM;
}

/*
 * A fragment that came from outside: hands it to its owner if that is another mux. VERDICT_NONE: it
 * is ours.
 */
__noinline int fragment_relay(struct xdp_md *ctx)
{
	struct packet p = {};
	__u32 owner, self = pool_members.self;
	struct datagram d = {};

	if (parse_full(ctx, &p) != PARSED_FRAGMENT)
		return VERDICT_PASS_FRAGMENT;
	if (!fragment_is_for_vip(&p))
		return VERDICT_PASS_FRAGMENT;
	if (source_is_martian(&p))
		return VERDICT_DROP_MARTIAN;
	if (p.l3_length + FRAGMENT_ROOM > settings.mtu)
		return VERDICT_DROP_TOO_BIG;
	if (pool_members.count < 2)
		return VERDICT_NONE;
	d.hash = fragment_hash(&p);
	if (fragment_recall(&d))
		return VERDICT_NONE;
	owner = fragment_owner(d.hash);
	if (owner == self || owner >= POOL_MEMBERS_MAX || self >= POOL_MEMBERS_MAX)
		return VERDICT_NONE;
	return relay(ctx, &p, &pool_members.rows[owner], &pool_members.rows[self], d.hash);
}

static __always_inline enum verdict fragment_classify(struct mux_ctx *w, bool relayed)
{
	w->endpoint_port = w->packet.destination_port;
	w->endpoint = endpoint_of(&w->packet.destination, w->packet.protocol, &w->endpoint_port);
	if (!w->endpoint)
		return VERDICT_PASS_FRAGMENT;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	return police(w, relayed);
}

/* The identifier of an answer to a ping stands for the destination's port. */
static __always_inline enum verdict fragment_parse_echo(void *data, void *end, struct packet *p)
{
	struct icmp_header *header = icmp_header(data, end, p);

	if (!header)
		return VERDICT_PASS_MALFORMED;
	if (!icmp_is_echo_reply(p, header->type))
		return VERDICT_PASS_FRAGMENT;
	p->source_port = 0;
	p->destination_port = header->rest;
	p->tcp_flags = 0;
	return VERDICT_NONE;
}

/*
 * The first fragment is chosen for as a whole packet is, and remembered for the others: also that
 * its endpoint does not take its source, so that user space does not wait for it.
 */
static __always_inline enum verdict fragment_first(struct xdp_md *ctx, struct mux_ctx *w,
						   bool relayed)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct datagram d = { .hash = fragment_hash(&w->packet) };
	enum verdict verdict = VERDICT_NONE;
	struct fragment_value value = {};

	if (packet_is_icmp(&w->packet))
		verdict = fragment_parse_echo(data, end, &w->packet);
	else if (parse_transport_full(data, end, &w->packet) != PARSED_OK)
		verdict = VERDICT_PASS_MALFORMED;
	if (verdict)
		return verdict;
	verdict = fragment_classify(w, relayed);
	if (!verdict)
		verdict = choose(ctx, w);
	if (verdict && verdict != VERDICT_DROP_ACL)
		return verdict;
	value.source_port = w->packet.source_port;
	value.destination_port = w->packet.destination_port;
	if (!verdict) {
		value.slot = w->slot;
		value.other_slot = w->other ? w->other_slot : 0;
	}
	__builtin_memcpy(&d.words[0], &value, sizeof(value));
	d.owner = fragment_tenant(w->endpoint->vip);
	if (!trace_only())
		datagram_note(fragment_set(d.hash), &d);
	return verdict;
}

static __always_inline enum verdict fragment_later(struct xdp_md *ctx, struct mux_ctx *w,
						   bool relayed)
{
	struct datagram d = { .hash = fragment_hash(&w->packet) };
	struct fragment_value value;
	enum verdict verdict;

	if (!fragment_recall(&d))
		return punt(ctx, &w->packet, PUNT_FRAGMENT) ? VERDICT_PUNT_FRAGMENT
							    : VERDICT_DROP_PUNT;
	__builtin_memcpy(&value, &d.words[0], sizeof(value));
	w->packet.source_port = value.source_port;
	w->packet.destination_port = value.destination_port;
	verdict = fragment_classify(w, relayed);
	if (verdict)
		return verdict;
	if (w->endpoint->flags & ENDPOINT_SNAT)
		return choose_snat(w);
	w->backend = backend_at(w->slices, value.slot); /* where the first one went */
	w->other = backend_alive(w->slices, value.other_slot);
	if (w->other)
		w->weir.step = GUE_CHAIN_QUERY;
	return w->backend ? VERDICT_NONE : VERDICT_DROP_NO_BACKEND;
}

/* A fragment whose owner we are, from outside or relayed: to the backend of its datagram. */
__noinline int fragment_forward(struct xdp_md *ctx, __u32 relayed)
{
	struct mux_ctx w = {};
	enum verdict verdict;

	if (parse_full(ctx, &w.packet) != PARSED_FRAGMENT || !fragment_is_for_vip(&w.packet))
		return VERDICT_PASS_FRAGMENT;
	if (source_is_martian(&w.packet))
		return VERDICT_DROP_MARTIAN;
	verdict = w.packet.fragment_offset ? fragment_later(ctx, &w, relayed)
					   : fragment_first(ctx, &w, relayed);
	if (verdict)
		return verdict;
	w.weir.version = GUE_WEIR_VERSION;
	w.weir.kind = GUE_KIND_FRAGMENT;
	w.weir.source_port = w.packet.source_port;
	w.weir.destination_port = w.packet.destination_port;
	verdict = encapsulate(ctx, &w);
	if (verdict)
		return verdict;
	count(&endpoint_counts, w.endpoint->id, w.packet.limit);
	return VERDICT_FORWARD_FRAGMENT;
}
