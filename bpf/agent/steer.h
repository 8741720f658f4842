/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steering: the switch decides where a packet arrives, the host where it is served. internal/steer
 * has the rule as a function, and docs/design/steering.md the reasons.
 *
 *   switch ── IP-in-IP ──▶ any host of the VIP ── GUE, STEERED ──▶ host of the backend
 *                                                  NONE or QUERY
 *
 * A steered packet is never steered again. With QUERY it goes on by daisy chaining, see chain.h.
 */
#pragma once

#include "agent/chain.h"
#include "agent/forward.h"
#include "agent/icmp.h"
#include "agent/session.h"
#include "agent/steer_ping.h"
#include "agent/steer_tables.h"
#include "agent/steer_workload.h"
#include "net/flowhash.h"
#include "net/skb/timestamps.h"

/* UDP source ports that entropy is taken from: dynamic ones (RFC 6335, section 6). */
#define STEER_ENTROPY_FIRST 0xc000

static __always_inline bool steer_is_from(const struct rx_ctx *a, enum steer_role role)
{
	struct steer_source key = { .source = a->outer.source };
	const __u32 *found;

	if (a->content != CONTENT_REFUSED)
		key.vip = a->inner.destination;
	found = bpf_map_lookup_elem(&steer_sources, &key);
	return found && *found == role;
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

	if (!settings.steered || !steer_is_from(a, STEER_HOST))
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
	case CONTENT_PING:
		return VERDICT_DROP_NO_RULE;
	}
	return VERDICT_DROP_NOT_A_VIP_HOST;
}

/* Has a host of the VIP steered what GRO merged, which is in IP alone? See steer_merged(). */
static __always_inline bool admit_merged(const struct rx_ctx *a)
{
	__u16 port;

	return settings.steered && !a->tunnel.entropy && a->content == CONTENT_ENDPOINT &&
	       steer_is_from(a, STEER_HOST) && steer_endpoint_of(&a->inner, &port);
}

/* Does a switch bring the packet, which holds its VIP? */
static __always_inline bool admit_from_switch(const struct rx_ctx *a)
{
	return settings.steered && !a->tunnel.says_weir && steer_is_from(a, STEER_SWITCH);
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
 * behind the tunnel that the packet came to, 0: it has none of the endpoint.
 */
static __noinline int steer_choose(struct __sk_buff *skb, struct rx_ctx *a,
				   const struct steer_endpoint *endpoint, __u32 own)
{
	__u32 number = endpoint->number, flags = endpoint->flags;
	const struct packet *p = &a->inner;
	struct timestamps ts = timestamps_read(skb, p);
	bool stays = steer_backend_is(number, own, STEER_BACKEND_NEW);
	__u32 cookie = ts.at && flags & STEER_COOKIES ? ts.tsecr & SLOT_MASK : 0;

	if (chain_begins(p)) {
		if (!ts.at || !stays || !(flags & STEER_COOKIES_SETTLED) ||
		    !steer_workload_speaks(&a->rule))
			return steer_by_bucket(a, p, endpoint, false);
		steer_to(a, own, 0, STEER_BY_ARRIVAL);
	} else if (own && chain_knows(skb, p, &a->rule, true)) {
		steer_to(a, own, 0, STEER_BY_SESSION);
	} else if (cookie && !steer_backend_is(number, cookie, STEER_BACKEND_DOWN)) {
		steer_to(a, cookie, 0, STEER_BY_COOKIE);
	} else if (p->protocol == IPPROTO_UDP && flags & STEER_UDP_LOCAL && stays) {
		steer_to(a, own, 0, STEER_BY_ARRIVAL);
	} else {
		return steer_by_bucket(a, p, endpoint, true);
	}
	return 0;
}

static __noinline int steer_count(const struct __sk_buff *skb, enum steer_reason reason)
{
	struct counter *c = bpf_map_lookup_elem(&steer_reasons, &reason);

	if (c) {
		c->packets += skb->gso_segs ?: 1;
		c->bytes += skb->len;
	}
	return 0;
}

/* Is the tunnel one of this host's? Then a->rule becomes its rule. */
static __noinline enum verdict steer_serve(struct rx_ctx *a, const struct address *tunnel)
{
	a->key.vip = a->inner.destination;
	a->key.tunnel = *tunnel;
	a->key.port = a->inner.destination_port;
	a->key.protocol = a->inner.protocol;
	a->key.pad = 0;
	if (!rule_find(&a->key, &a->rule))
		return VERDICT_DROP_NO_RULE;
	a->outer.destination = *tunnel; /* what is chained comes back to it */
	return VERDICT_NONE;
}

/*
 * Several packets in one buffer, which GRO or the sender's offload made: the kernel can take them
 * apart as long as they are in IP alone. So they stay in it, between the tunnels of the two hosts.
 */
static __noinline enum verdict steer_merged(struct __sk_buff *skb, struct rx_ctx *a,
					    enum verdict away)
{
	bool v4 = address_is_v4(&a->hop.to);
	struct address addresses[2] = { a->outer.destination, a->hop.to };
	__u32 at = a->outer.l3 + offsetof(struct ipv6hdr, saddr);

	if (a->tunnel.step != GUE_CHAIN_NONE || v4 != address_is_v4(&addresses[0]))
		return VERDICT_DROP_STEER_MERGED;

	/* From here on the packet is touched: fail closed. */
	if (!v4)
		return bpf_skb_store_bytes(skb, at, addresses, sizeof(addresses),
					   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH)
			       ? VERDICT_DROP_CHAIN
			       : away;
	if (icmp_rewrite_v4(skb, a->outer.l3, SOURCE, a->outer.source.words[3],
			    addresses[0].words[3]) ||
	    icmp_rewrite_v4(skb, a->outer.l3, DESTINATION, addresses[0].words[3],
			    addresses[1].words[3]))
		return VERDICT_DROP_CHAIN;
	return away;
}

static __noinline enum verdict steer_away(struct __sk_buff *skb, struct rx_ctx *a,
					  enum verdict away)
{
	enum verdict verdict;

	if (skb->gso_size && !a->tunnel.entropy)
		return steer_merged(skb, a, away);
	if (!a->tunnel.entropy)
		a->tunnel.entropy = flowhash(&a->inner, &pool_key) | bpf_htons(STEER_ENTROPY_FIRST);
	a->hop.other = a->tunnel.other;
	a->hop.step = a->tunnel.step;
	a->hop.kind = GUE_KIND_STEERED;
	verdict = forward(skb, a);
	return verdict ?: away;
}

/* To the chosen backend; NONE: it is here, in a->rule. A chain step then asks the one before. */
static __noinline enum verdict steer_go(struct __sk_buff *skb, struct rx_ctx *a, __u32 number,
					__u32 own)
{
	const struct steer_backend *backend, *previous;
	enum verdict away = VERDICT_STEERED_BUCKET;
	bool stays = own && own == a->steering.slot;
	struct address tunnel = {};

	if (!stays) {
		backend = steer_backend_at(number, a->steering.slot);
		if (!backend || !a->steering.slot)
			return VERDICT_DROP_STEER_NO_BACKEND;
		tunnel = backend->tunnel;
	}
	a->tunnel.step = GUE_CHAIN_NONE;
	if (a->steering.reason == STEER_BY_COOKIE)
		away = VERDICT_STEERED_COOKIE;
	if (a->steering.previous) {
		previous = steer_backend_at(number, a->steering.previous);
		if (previous) {
			a->tunnel.step = GUE_CHAIN_QUERY;
			a->tunnel.other = previous->tunnel;
			away = VERDICT_STEERED_QUERY;
		}
	}
	if (!stays && !bpf_map_lookup_elem(&tunnels, &tunnel)) {
		steer_count(skb, a->steering.reason);
		a->hop.to = tunnel;
		return steer_away(skb, a, away);
	}
	if (a->steering.reason == STEER_BY_COOKIE)
		a->steering.reason = STEER_BY_COOKIE_HERE;
	else if (a->steering.reason == STEER_BY_BUCKET)
		a->steering.reason = STEER_BY_BUCKET_HERE;
	steer_count(skb, a->steering.reason);
	a->content = CONTENT_ENDPOINT;
	return stays ? VERDICT_NONE : steer_serve(a, &tunnel);
}

/* The slot in the TSval of a workload's segment that an error quotes, if it quotes so much. */
static __noinline __u32 steer_quoted_cookie(struct __sk_buff *skb, const struct packet *quoted)
{
	__be32 tsval = 0;
	__u32 at;

	if (quoted->protocol != IPPROTO_TCP)
		return 0;
	at = tcp_option_offset(skb, quoted->l4, TCP_OPTION_TIMESTAMPS,
			       TCP_OPTION_TIMESTAMPS_LENGTH);
	if (!at || bpf_skb_load_bytes(skb, quoted->l4 + at + 2, &tsval, sizeof(tsval)))
		return 0;
	return bpf_ntohl(tsval) & SLOT_MASK;
}

/* Makes a->client the packet of the client that what an error quotes answers. */
static __noinline bool steer_read_error(struct __sk_buff *skb, struct rx_ctx *a, __u32 *cookie)
{
	struct packet quoted = {};

	if (!icmp_read_quoted(skb, &a->inner, &quoted) ||
	    !address_equal(&quoted.source, &a->inner.destination))
		return false;
	a->client.source = quoted.destination;
	a->client.destination = quoted.source;
	a->client.source_port = quoted.destination_port;
	a->client.destination_port = quoted.source_port;
	a->client.protocol = quoted.protocol;
	a->client.tcp_flags = 0;
	*cookie = steer_quoted_cookie(skb, &quoted);
	return true;
}

/* Is the error about a connection of the backend behind the tunnel that it came to? */
static __noinline bool steer_error_is_own(struct __sk_buff *skb, struct rx_ctx *a)
{
	a->key.vip = a->client.destination;
	a->key.tunnel = a->outer.destination;
	a->key.port = a->client.destination_port;
	a->key.protocol = a->client.protocol;
	a->key.pad = 0;
	return rule_find(&a->key, &a->rule) && chain_knows(skb, &a->client, &a->rule, false);
}

/* An ICMP error goes to one backend that may have the connection, and there it ends. */
static __noinline enum verdict steer_error(struct __sk_buff *skb, struct rx_ctx *a)
{
	const struct steer_endpoint *endpoint;
	const struct steer_backend *backend;
	struct address tunnel;
	__u32 cookie = 0;

	if (!steer_read_error(skb, a, &cookie))
		return VERDICT_DROP_ICMP_UNKNOWN;
	endpoint = steer_endpoint_of(&a->client, &a->steering.port);
	if (!endpoint)
		return VERDICT_DROP_STEER_CLOSED;
	if (steer_error_is_own(skb, a)) {
		steer_count(skb, STEER_BY_SESSION);
		return VERDICT_NONE;
	}
	if (!(endpoint->flags & STEER_COOKIES) ||
	    steer_backend_is(endpoint->number, cookie, STEER_BACKEND_DOWN))
		steer_by_bucket(a, &a->client, endpoint, false);
	else
		a->steering.slot = cookie;
	backend = steer_backend_at(endpoint->number, a->steering.slot);
	if (!backend || !a->steering.slot)
		return VERDICT_DROP_STEER_NO_BACKEND;
	tunnel = backend->tunnel;
	steer_count(skb, STEER_BY_QUOTE);
	if (bpf_map_lookup_elem(&tunnels, &tunnel)) {
		a->outer.destination = tunnel;
		return VERDICT_NONE;
	}
	a->hop.to = tunnel;
	return steer_away(skb, a, VERDICT_STEERED_ERROR);
}

/* Does the segment name the backend that it has come to? Then there is no more to look up. */
static __always_inline bool steer_names_own(struct __sk_buff *skb, const struct rx_ctx *a)
{
	struct timestamps ts;

	if (!(a->rule.flags & NAT_RULE_COOKIES) || !a->rule.slot || chain_begins(&a->inner))
		return false;
	ts = timestamps_read(skb, &a->inner);
	return ts.at && (ts.tsecr & SLOT_MASK) == a->rule.slot;
}

/*
 * Decides where a packet goes that a switch brought: an enum verdict. NONE: it is served here, by
 * a->rule, or is an ICMP error of a connection here. Not static: the verifier looks at it once.
 */
__noinline int steer(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	__u32 own = a->content == CONTENT_ENDPOINT ? a->rule.slot : 0;
	const struct steer_endpoint *endpoint;

	if (a->content == CONTENT_ERROR)
		return steer_error(skb, a);
	if (a->content == CONTENT_PING)
		return ping_answer(skb, a);
	if (own && steer_names_own(skb, a)) {
		steer_count(skb, STEER_BY_COOKIE_HERE);
		return VERDICT_NONE;
	}
	endpoint = steer_endpoint_of(&a->inner, &a->steering.port);
	if (!endpoint)
		return VERDICT_DROP_STEER_CLOSED;
	steer_choose(skb, a, endpoint, own);
	return steer_go(skb, a, endpoint->number, own);
}
