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

#include "agent/forward.h"
#include "agent/forward_in_ip.h"
#include "agent/icmp.h"
#include "agent/steer_choose.h"
#include "agent/steer_ping.h"
#include "agent/steer_relay.h"

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

static __noinline enum verdict steer_away(struct __sk_buff *skb, struct rx_ctx *a,
					  enum verdict away)
{
	enum verdict verdict;

	a->hop.other = a->tunnel.other;
	a->hop.step = a->tunnel.step;
	a->hop.kind = GUE_KIND_STEERED;
	verdict = forward_on(skb, a);
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

/*
 * To the workload whose own connections leave by the port of the VIP that p is to: NONE if it is
 * here.
 */
static __noinline enum verdict steer_answer(struct __sk_buff *skb, struct rx_ctx *a,
					    const struct packet *p)
{
	struct steer_key key = { .vip = p->destination };
	const struct steer_endpoint *vip = bpf_map_lookup_elem(&steer_endpoints, &key);
	const struct steer_backend *workload;
	struct address tunnel;
	__u32 slot;

	if (!vip)
		return VERDICT_DROP_STEER_CLOSED;
	slot = steer_bucket(vip, bpf_ntohs(p->destination_port) >> STEER_RANGE_SHIFT) & SLOT_MASK;
	workload = slot ? steer_backend_at(vip->number, slot) : NULL;
	if (!workload)
		return VERDICT_DROP_STEER_CLOSED;
	tunnel = workload->tunnel;
	steer_count(skb, STEER_BY_PORT);
	if (bpf_map_lookup_elem(&tunnels, &tunnel))
		return VERDICT_NONE;
	a->hop.to = tunnel;
	a->tunnel.step = GUE_CHAIN_NONE;
	return steer_away(skb, a, VERDICT_STEERED_ANSWER);
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

/* May connections that name no backend live where no bucket says? */
static __always_inline bool steer_lives_anywhere(const struct rx_ctx *a,
						 const struct steer_endpoint *endpoint)
{
	return endpoint->flags &
	       (a->client.protocol == IPPROTO_TCP ? STEER_COOKIES : STEER_UDP_LOCAL);
}

/* The backend that may have an error's connection; if that may be any, a mux asks all of them. */
static __noinline enum verdict steer_error_choose(struct __sk_buff *skb, struct rx_ctx *a,
						  const struct steer_endpoint *endpoint,
						  __u32 cookie)
{
	enum verdict verdict;

	if (endpoint->flags & STEER_COOKIES &&
	    !steer_backend_is(endpoint->number, cookie, STEER_BACKEND_DOWN)) {
		a->steering.slot = cookie;
		return VERDICT_NONE;
	}
	if (steer_lives_anywhere(a, endpoint)) {
		verdict = relay(skb, a, VERDICT_RELAY_ERROR);
		if (verdict != VERDICT_DROP_RELAY_LIMITED && verdict != VERDICT_DROP_RELAY_NO_MUX)
			return verdict;
	}
	steer_by_bucket(a, &a->client, endpoint, false);
	return VERDICT_NONE;
}

/*
 * An ICMP error goes to one backend that may have the connection, and there it ends; or to a mux,
 * which asks all of them.
 */
static __noinline enum verdict steer_error(struct __sk_buff *skb, struct rx_ctx *a)
{
	const struct steer_endpoint *endpoint;
	const struct steer_backend *backend;
	enum verdict verdict;
	struct address tunnel;
	__u32 cookie = 0;

	if (!steer_read_error(skb, a, &cookie))
		return VERDICT_DROP_ICMP_UNKNOWN;
	endpoint = steer_endpoint_of(&a->client, &a->steering.port);
	if (!endpoint)
		return steer_answer(skb, a, &a->client);
	if (steer_error_is_own(skb, a)) {
		steer_count(skb, STEER_BY_SESSION);
		return VERDICT_NONE;
	}
	verdict = steer_error_choose(skb, a, endpoint, cookie);
	if (verdict)
		return verdict;
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

/*
 * The backend of this host that a packet to the host has come to, in a->rule: its slot, 0: none. Of
 * the hash it takes bits that no bucket goes by.
 */
static __noinline __u32 steer_local(struct rx_ctx *a, const struct steer_endpoint *endpoint)
{
	const struct steer_locals *locals = bpf_map_lookup_elem(&steer_locals, &endpoint->number);
	const struct steer_backend *backend;
	struct address tunnel;
	__u32 at, slot;

	if (!locals || !locals->count)
		return 0;
	at = steer_hash(&a->inner, endpoint->flags, a->steering.port) >> 16;
	slot = locals->slots[at % locals->count & (STEER_LOCALS_MAX - 1)];
	backend = steer_backend_at(endpoint->number, slot);
	if (!backend)
		return 0;
	tunnel = backend->tunnel;
	return steer_serve(a, &tunnel) ? 0 : slot;
}

/*
 * The own backend of a host that has one tunnel for all of its backends, in a->rule: its slot, 0:
 * none. What comes by the tunnel of a backend says nothing of it, which may be down: only a flow of
 * UDP stays with it, as no cookie finds that again once the host chooses others.
 */
static __noinline __u32 steer_own(struct __sk_buff *skb, struct rx_ctx *a,
				  const struct steer_endpoint *endpoint, __u32 arrived)
{
	if (steer_backend_is(endpoint->number, arrived, STEER_BACKEND_DOWN))
		arrived = 0;
	if (arrived && a->inner.protocol == IPPROTO_UDP &&
	    chain_knows(skb, &a->inner, &a->rule, true))
		return arrived;
	return steer_local(a, endpoint) ?: arrived;
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
 * What a host of the VIP steered in IP says QUERY by its TTL, but not whom to ask: the backend that
 * the bucket names, or the one before if that is this one.
 */
static __noinline int steer_query(struct __sk_buff *skb, struct rx_ctx *a)
{
	const struct steer_endpoint *endpoint = steer_endpoint_of(&a->inner, &a->steering.port);
	const struct steer_backend *other;

	if (!endpoint || a->content != CONTENT_ENDPOINT || !forward_says_query(skb, a))
		return VERDICT_NONE;
	steer_by_bucket(a, &a->inner, endpoint, true);
	other = steer_backend_at(endpoint->number, a->steering.slot);
	if (other && address_equal(&other->tunnel, &a->outer.destination))
		other = steer_backend_at(endpoint->number, a->steering.previous);
	if (!other || other->flags & STEER_BACKEND_DOWN)
		return VERDICT_NONE;
	a->tunnel.step = GUE_CHAIN_QUERY;
	a->tunnel.other = other->tunnel;
	return VERDICT_NONE;
}

/*
 * Decides where a packet goes that a switch brought, or a host of the VIP in IP: an enum verdict.
 * NONE: it is served here, by a->rule, or is an ICMP error of a connection here. Not static: the
 * verifier looks at it once.
 */
__noinline int steer(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	__u32 arrived = a->content == CONTENT_ENDPOINT ? a->rule.slot : 0;
	__u32 own = a->from == STEER_SWITCH_BY_HOST ? 0 : arrived;
	const struct steer_endpoint *endpoint;

	if (a->from == STEER_HOST)
		return steer_query(skb, a);
	if (a->content == CONTENT_ERROR)
		return steer_error(skb, a);
	if (a->content == CONTENT_PING)
		return ping_answer(skb, a);
	if (a->content == CONTENT_FRAGMENT)
		return relay(skb, a, VERDICT_RELAY_FRAGMENT);
	if (own && steer_names_own(skb, a)) {
		steer_count(skb, STEER_BY_COOKIE_HERE);
		return VERDICT_NONE;
	}
	if (own && !chain_begins(&a->inner) && chain_knows(skb, &a->inner, &a->rule, true)) {
		steer_count(skb, STEER_BY_SESSION); /* likewise */
		return VERDICT_NONE;
	}
	endpoint = steer_endpoint_of(&a->inner, &a->steering.port);
	if (!endpoint)
		return steer_answer(skb, a, &a->inner);
	if (endpoint->flags & STEER_BY_HOST)
		own = steer_own(skb, a, endpoint, arrived);
	steer_choose(skb, a, endpoint, own);
	return steer_go(skb, a, endpoint->number, own);
}
