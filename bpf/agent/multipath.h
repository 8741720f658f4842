/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Multipath TCP (RFC 8684): the SYN of a further subflow names its connection by a token, and goes
 * to the host that has it; internal/multipath has the rule as functions. F is the host that muxes
 * bring it to, by the hash of its ports.
 *
 *   mux ─▶ F ── HOME ──▶ home ── HOLDER ──▶ host of the connection ── kind JOINED ──▶ F
 *                          └─ HOME_NEXT ─▶ second home ── HOLDER ──▶ ...
 *
 * Each host tells both homes the tokens of its connections (kind TOKEN). F remembers what it was
 * told of a subflow, for segments without a cookie: first of its SYN, then of a segment by which
 * the client has proven to that host that it is there. No SYN is delivered where nobody has its
 * token: a reset would end the subflow for good, and a client whose SYN is lost sends it again.
 *
 * Functions that are not static return an enum verdict, or enum noted: the verifier looks at each
 * of them once.
 */
#pragma once

#include "agent/chain.h"
#include "agent/multipath_copy.h"
#include "agent/multipath_event.h"
#include "agent/steer.h"

/*
 * Does the SYN join a connection? Then a->join is its token. Whatever stands before the option, the
 * workload may see it too.
 */
static __noinline bool multipath_read_join(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct multipath_join_option option;
	__u32 at = tcp_suboption_offset(skb, a->inner.l4, TCP_OPTION_MULTIPATH,
					MULTIPATH_JOIN_LENGTH, MULTIPATH_JOIN);

	if (!at || bpf_skb_load_bytes(skb, a->inner.l4 + at, &option, sizeof(option)))
		return false;
	a->join = option.token;
	return true;
}

static __always_inline enum verdict multipath_noted(enum noted noted)
{
	switch (noted) {
	case NOTED_NEW:
	case NOTED_AGAIN:
		return VERDICT_JOIN_NOTED;
	case NOTED_CONFLICT:
		return VERDICT_DROP_JOIN_CONFLICT;
	case NOTED_FULL:
		return VERDICT_DROP_JOIN_FULL;
	}
	return VERDICT_DROP_JOIN_FULL;
}

/* Makes a->rule the one of a tunnel of this host. */
static __noinline enum verdict multipath_serve(struct rx_ctx *a, const struct address *tunnel)
{
	a->key.tunnel = *tunnel;
	a->key.port = a->inner.destination_port;
	return rule_find(&a->key, &a->rule) ? VERDICT_NONE : VERDICT_DROP_JOIN_UNKNOWN;
}

/*
 * A home asks: nobody refreshes the token, which the packet's tunnel had. Its workload may have
 * moved here, with the connection, which the client's next segment has made a session of, without a
 * token. Then it is this host's to tell. Of one that began here the SYN/ACK has said what it is.
 */
static __noinline enum verdict multipath_take(struct rx_ctx *a)
{
	const __u32 known = SESSION_WORKLOAD_ANSWER | SESSION_CLIENT_SYN;
	struct session *session = multipath_session(a);

	if (!session || !session_is_of(session, &a->inner) || session_is_over(session) ||
	    (session->token ? session->token != a->name.token
			    : (session->events & known) != SESSION_WORKLOAD_ANSWER))
		return VERDICT_DROP_JOIN_STALE;
	session->token = a->name.token;
	multipath_set_holder(a, &a->key.tunnel);
	return multipath_noted(multipath_note(a, &mptcp_tokens, MULTIPATH_TOKENS));
}

/* What another host of the endpoint tells. */
__noinline int multipath_hear(struct rx_ctx *a __arg_nonnull)
{
	if (a->tunnel.kind == GUE_KIND_JOINED) {
		a->joined.tunnel = a->tunnel.other;
		return multipath_noted(multipath_note_joined(a));
	}
	multipath_set_name(a, a->tunnel.source_port | (__u32)a->tunnel.destination_port << 16);
	if (a->tunnel.step == GUE_CHAIN_HOLDER)
		return multipath_take(a);
	multipath_set_holder(a, &a->tunnel.other);
	return multipath_noted(multipath_note(a, &mptcp_names, MULTIPATH_NAMES));
}

/* The tunnel that has a->name, in a->holder: of this host, or by what it was told as a home. */
static __always_inline bool multipath_find(struct rx_ctx *a)
{
	const struct multipath_holder *row = bpf_map_lookup_elem(&mptcp_tokens, &a->name);

	if (!multipath_lives(row))
		row = bpf_map_lookup_elem(&mptcp_names, &a->name);
	if (!multipath_lives(row))
		return false;
	a->holder.tunnel = row->tunnel;
	return true;
}

/* Chooses the home that is to be asked, in a->hop; false: none. */
static __noinline bool multipath_choose_home(struct rx_ctx *a)
{
	enum gue_chain step = a->tunnel.step;
	bool first, next;

	if (step >= GUE_CHAIN_HOME_NEXT || !multipath_find_homes(a))
		return false;
	first = multipath_is_elsewhere(&a->homes.first);
	next = multipath_is_elsewhere(&a->homes.next);
	if (step < GUE_CHAIN_HOME && first) {
		a->hop.to = a->homes.first;
		a->hop.step = GUE_CHAIN_HOME;
		return true;
	}
	a->hop.step = GUE_CHAIN_HOME_NEXT;
	a->hop.to = next ? a->homes.next : a->homes.first;
	return next || first;
}

/* The copy of a packet: tells the host that it came to from the network that the subflow is here.
 */
__noinline int multipath_tell_joined(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	multipath_set_name(a, a->join);
	if (a->tunnel.step != GUE_CHAIN_HOLDER && multipath_find(a))
		a->key.tunnel = a->holder.tunnel; /* it came to us as a home */
	a->hop.to = a->tunnel.other;
	a->hop.step = GUE_CHAIN_HOLDER;
	a->hop.kind = GUE_KIND_JOINED;
	a->tunnel.source_port = 0;
	a->tunnel.destination_port = 0;
	return multipath_send(skb, a);
}

/* Hands the packet on: what it says of the host that it came to from the network stays. */
static __noinline enum verdict multipath_hand_on(struct __sk_buff *skb, struct rx_ctx *a,
						 enum verdict handed)
{
	enum verdict verdict;

	a->hop.other = a->tunnel.step >= GUE_CHAIN_HOME ? a->tunnel.other : a->outer.destination;
	a->hop.kind = a->tunnel.kind;
	verdict = forward_on(skb, a);
	return verdict ?: handed;
}

/* The SYN of a further subflow: Join() of internal/multipath is the twin in Go, case by case. */
__noinline int multipath_join(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	struct address tunnel;
	enum verdict verdict;

	if (a->tunnel.step == GUE_CHAIN_HOLDER)
		return VERDICT_NONE;
	multipath_set_name(a, a->join);
	if (!multipath_find(a))
		return multipath_choose_home(a) ? multipath_hand_on(skb, a, VERDICT_JOIN_HOME)
						: VERDICT_DROP_JOIN_UNKNOWN;
	tunnel = a->holder.tunnel;
	if (!multipath_is_here(&tunnel)) {
		a->hop.to = tunnel;
		a->hop.step = GUE_CHAIN_HOLDER;
		return multipath_hand_on(skb, a, VERDICT_JOIN_ON);
	}
	verdict = multipath_serve(a, &tunnel);
	if (!verdict && a->tunnel.step < GUE_CHAIN_HOME &&
	    !address_equal(&tunnel, &a->outer.destination)) {
		a->joined.tunnel = tunnel;
		multipath_note_joined(a);
	}
	return verdict;
}

/* Counts what has become of a SYN that joins. */
static __always_inline enum verdict
multipath_count_join(struct __sk_buff *skb, const struct rx_ctx *a, enum verdict verdict)
{
	enum multipath_event event = MULTIPATH_EVENTS; /* none */

	if (verdict == VERDICT_NONE)
		event = a->tunnel.step >= GUE_CHAIN_HOME ? MULTIPATH_JOIN_BROUGHT
							 : MULTIPATH_JOIN_OWN;
	else if (verdict == VERDICT_JOIN_HOME)
		event = MULTIPATH_JOIN_ASKED;
	else if (verdict == VERDICT_JOIN_ON)
		event = MULTIPATH_JOIN_HANDED_ON;
	else if (verdict == VERDICT_DROP_JOIN_UNKNOWN)
		event = MULTIPATH_JOIN_UNKNOWN;
	multipath_happened(skb, event);
	return verdict;
}

/* Has the workload of a->rule a connection with the client that the segment is in? */
static __noinline bool multipath_is_local(struct __sk_buff *skb, const struct rx_ctx *a)
{
	const struct session *session = multipath_session(a);

	return session && session_is_of(session, &a->inner) && !chain_is_ended(session) &&
	       session->events & SESSION_WORKLOAD_ANSWER &&
	       session_acknowledges(skb, &a->inner, session);
}

/*
 * The row of a subflow that another host has. One that is closing gives way to a newer one.
 * a->asks: that host is to say what it knows, as this one does not see whose the segment is.
 */
static __noinline struct multipath_joined *multipath_find_joined(struct rx_ctx *a)
{
	struct multipath_joined *row = bpf_map_lookup_elem(&mptcp_joined, &a->flow), *newer;

	a->asks = a->inner.tcp_flags & (TCP_FLAG_FIN | TCP_FLAG_RST);
	a->unconfirmed = false;
	if (row && !row->closing)
		return row;
	newer = bpf_map_lookup_elem(&mptcp_joining, &a->flow);
	if (!newer)
		return row;
	a->asks = a->unconfirmed = true;
	return newer;
}

/*
 * Is it the previous backend's turn: is it elsewhere and was not asked yet, or here, and knows the
 * connection? A forged SYN must not take a connection from a backend that drains. The backend of
 * this host has been asked already, by more than chain() asks: it does not get the segment for a
 * session that the segment is not of.
 */
static __noinline bool multipath_has_previous(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct nat_rule_key key = a->key;
	struct nat_rule rule;

	if (a->tunnel.step != GUE_CHAIN_QUERY)
		return false;
	if (!multipath_is_here(&a->tunnel.other))
		return true;
	key.tunnel = a->tunnel.other;
	key.port = a->inner.destination_port;
	if (!rule_find(&key, &rule) || !chain_knows(skb, &a->inner, &rule, false))
		return false;
	a->rule = rule;
	a->key = key;
	a->tunnel.step = GUE_CHAIN_FINAL;
	return true;
}

/* A segment that names no backend of this host: of a subflow that another one has? */
__noinline int multipath_segment(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	struct multipath_joined *row;
	struct address tunnel;
	__u64 now;

	multipath_set_flow(a);
	row = multipath_find_joined(a);
	if (!row || multipath_is_local(skb, a))
		return VERDICT_NONE;
	if (a->unconfirmed && multipath_has_previous(skb, a))
		return a->tunnel.step == GUE_CHAIN_QUERY
			       ? chain_forward(skb, a, GUE_CHAIN_FORWARDED)
			       : VERDICT_NONE;
	tunnel = row->tunnel;
	now = bpf_ktime_get_coarse_ns();
	if (!a->unconfirmed && now - row->last_seen >= SESSION_SEEN_STEP)
		row->last_seen = now;
	if (a->asks && a->tunnel.kind == GUE_KIND_PACKET)
		a->tunnel.source_port = MULTIPATH_ASKS;
	if (multipath_is_here(&tunnel)) {
		a->tunnel.step = GUE_CHAIN_HOLDER; /* it is not to be chained */
		a->tunnel.other = tunnel;
		return multipath_serve(a, &tunnel);
	}
	multipath_happened(skb, MULTIPATH_SEGMENT_HANDED_ON);
	a->hop.to = tunnel;
	a->hop.step = GUE_CHAIN_HOLDER;
	return multipath_hand_on(skb, a, VERDICT_JOIN_ON);
}

/*
 * Decides where a packet of a multipath endpoint goes: an enum verdict. NONE: it is served here, by
 * a->rule. Not static: the verifier looks at it once.
 */
__noinline int multipath(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	enum multipath_copy copy = multipath_is_copy(skb);
	bool begins, join;

	a->join = 0;
	if (a->tunnel.kind == GUE_KIND_TOKEN || a->tunnel.kind == GUE_KIND_JOINED)
		return multipath_hear(a);
	if (copy == COPY_HOME || copy == COPY_HOME_NEXT)
		return multipath_tell_home(skb, a, copy == COPY_HOME_NEXT);
	begins = chain_begins(&a->inner);
	join = begins && multipath_read_join(skb, a);
	if (copy == COPY_JOINED && a->tunnel.step >= GUE_CHAIN_HOME)
		return multipath_tell_joined(skb, a);
	if (begins)
		return join ? multipath_count_join(skb, a, multipath_join(skb, a)) : VERDICT_NONE;
	if (a->tunnel.step == GUE_CHAIN_HOLDER ||
	    (!a->inner.fragment_offset && steer_names_own(skb, a)))
		return VERDICT_NONE;
	return multipath_segment(skb, a);
}
