/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Daisy chaining (MPLB 3.3): a host that does not know a packet's connection forwards it to the
 * backend that had the bucket before. If that does not know it either, it sends it back. The chain
 * step (enum gue_chain) only grows, so there are no loops.
 *
 *   mux ── QUERY ──▶ backend ── FORWARDED ──▶ previous backend
 *                      ▲──────── FINAL ───────────┘
 */
#pragma once

#include "agent/forward.h"
#include "agent/forward_in_ip.h"
#include "agent/rx_ctx.h"
#include "agent/socket.h"

/* Has the host's own stack a socket of this connection, other than a listening one? */
static __always_inline bool chain_knows_socket(struct __sk_buff *skb, const struct session_key *key)
{
	__u32 state = socket_state(skb, key);

	return state && state != BPF_TCP_LISTEN;
}

/* ns after its end for which a session still counts as knowing the connection. */
#define CHAIN_OVER (2ULL << 30)

/*
 * The connection ended, and has been silent since: a packet of the same ports may be of a newer
 * connection, at another backend.
 */
static __always_inline bool chain_is_ended(const struct session *session)
{
	return session_is_over(session) && long_since(session->last_seen, CHAIN_OVER);
}

/*
 * Does the workload behind rule know the connection of a client's packet? It does if there is a
 * session, for TCP one that the workload has answered in: others were made for stray packets. A
 * native workload also knows it by its socket, which outlives an evicted session. The first host
 * that is asked ignores connections that have ended: the packet comes back to it (FINAL) if the
 * other host does not know it. Not static: the verifier looks at it once.
 */
__noinline int chain_knows(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
			   const struct nat_rule *rule __arg_nonnull, bool first)
{
	struct session_key key = session_key_of(p, rule);
	const struct session *session = session_lookup(&key);
	const __u32 *workload;

	if (session) {
		if (session->vip_port != p->destination_port ||
		    !address_equal(&session->vip, &p->destination))
			return false;
		if (p->protocol != IPPROTO_TCP)
			return true;
		if (first && chain_is_ended(session))
			return false;
		if (session->events & SESSION_WORKLOAD_ANSWER)
			return true;
	}
	workload = bpf_map_lookup_elem(&workloads, &rule->dip);
	return workload && *workload == 0 && p->protocol == IPPROTO_TCP &&
	       chain_knows_socket(skb, &key);
}

/* Is it a SYN? It begins a connection, which the bucket's present backend gets. */
static __always_inline bool chain_begins(const struct packet *p)
{
	return (p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

/* Forwards the packet to the other backend, with our own tunnel as the one to send it back to. */
static __noinline enum verdict chain_forward(struct __sk_buff *skb, struct rx_ctx *a,
					     enum gue_chain step)
{
	enum verdict verdict;

	a->hop.to = a->tunnel.other;
	a->hop.other = a->outer.destination;
	a->hop.step = step;
	a->hop.kind = a->tunnel.kind;
	verdict = forward_on(skb, a);
	if (verdict)
		return verdict;
	return step == GUE_CHAIN_FORWARDED ? VERDICT_CHAIN_ON : VERDICT_CHAIN_BACK;
}

/* Are the outer source and the tunnel to send back to both chain peers of the rule? */
static __noinline bool chain_is_from_peer(const struct rx_ctx *a)
{
	struct chain_peer peer = { .rule = a->key, .source = a->outer.source };

	if (!bpf_map_lookup_elem(&chain_peers, &peer))
		return false;
	peer.source = a->tunnel.other;
	return bpf_map_lookup_elem(&chain_peers, &peer);
}

/*
 * Decides where a packet with a chain step goes. VERDICT_NONE: deliver it to the workload of
 * a->rule. If the other tunnel is on this host too, a->rule may become its rule, and nothing is
 * sent.
 */
static __noinline enum verdict chain(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct nat_rule_key key = a->key;
	struct nat_rule other;

	if (a->tunnel.step >= GUE_CHAIN_FINAL || chain_begins(&a->inner) ||
	    chain_knows(skb, &a->inner, &a->rule, a->tunnel.step == GUE_CHAIN_QUERY))
		return VERDICT_NONE;
	if (!bpf_map_lookup_elem(&tunnels, &a->tunnel.other))
		return chain_forward(skb, a, a->tunnel.step + 1);
	key.tunnel = a->tunnel.other;
	key.port = a->inner.destination_port;
	if (rule_find(&key, &other) &&
	    (a->tunnel.step == GUE_CHAIN_FORWARDED || chain_knows(skb, &a->inner, &other, false))) {
		a->rule = other;
		a->key = key;
	}
	return VERDICT_NONE;
}
