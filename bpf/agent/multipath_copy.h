/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Telling other hosts of a connection of Multipath TCP: by a copy of the client's packet, which
 * comes to from_uplink once more, is admitted as the packet was, and then goes to who is to be told
 * instead of to the workload. User space would tell them too late: the client may join at once.
 */
#pragma once

#include "agent/forward.h"
#include "agent/multipath_tables.h"
#include "agent/multipath_token.h"
#include "agent/session_proof.h"
#include "agent/source_check.h"

/*
 * In the place of a source port, in what goes to the host that has a subflow: it is to say so once
 * more (JOINED), if the client is there.
 */
#define MULTIPATH_ASKS bpf_htons(1)

/* How far a FIN may be beyond what the workload had acknowledged when that was noted. */
#define MULTIPATH_FIN_WINDOW (1U << 24)

/* Whom a copy tells what. */
enum multipath_copy {
	COPY_NONE = 0,
	COPY_HOME, /* the first home of the token, who has it */
	COPY_HOME_NEXT, /* the second one, likewise */
	COPY_JOINED, /* the host that the subflow's SYN came to, who has the subflow */
};

/* The copy is known by the control block, as what leaves is. */
static __always_inline void multipath_copy(struct __sk_buff *skb, enum multipath_copy what)
{
	departure_seal(skb);
	skb->cb[2] = what;
	bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	skb->cb[0] = 0;
	skb->cb[1] = 0;
	skb->cb[2] = 0;
}

static __always_inline enum multipath_copy multipath_is_copy(struct __sk_buff *skb)
{
	enum multipath_copy what = skb->cb[2];

	if (!departure_is_sealed(skb))
		return COPY_NONE;
	skb->cb[2] = 0;
	return what;
}

/* The homes of a->name, in a->homes; false: there are none. */
static __always_inline bool multipath_find_homes(struct rx_ctx *a)
{
	const struct multipath_homes *homes;

	a->home.vip = a->name.vip;
	a->home.port = a->name.port;
	a->home.protocol = a->name.protocol;
	a->home.cell = bpf_ntohl(a->name.token) * MULTIPATH_CELL_FACTOR >> MULTIPATH_CELL_SHIFT;
	homes = bpf_map_lookup_elem(&mptcp_homes, &a->home);
	if (!homes)
		return false;
	a->homes = *homes;
	return true;
}

static __always_inline bool multipath_is_here(const struct address *tunnel)
{
	return bpf_map_lookup_elem(&tunnels, tunnel);
}

/* Is there such a home, on another host? */
static __always_inline bool multipath_is_elsewhere(const struct address *home)
{
	return address_is_set(home) && !multipath_is_here(home);
}

static __noinline struct session *multipath_session(const struct rx_ctx *a)
{
	struct session_key key = rx_session_key(a);

	return session_lookup(&key);
}

/* Its segments without a cookie come by the buckets of another host. */
static __noinline void multipath_note_elsewhere(const struct rx_ctx *a, struct session *session)
{
	struct session_key key = rx_session_key(a);

	if (!(session->events & SESSION_JOINED))
		session_note(&key, session, SESSION_JOINED);
}

/* Sends what the copy has become. Several segments in one buffer could not be told apart. */
static __always_inline enum verdict multipath_send(struct __sk_buff *skb, struct rx_ctx *a)
{
	enum verdict verdict;

	if (skb->gso_size || !address_is_set(&a->hop.to))
		return VERDICT_DROP_JOIN_STALE;
	a->hop.other = a->key.tunnel;
	if (!a->tunnel.entropy)
		a->tunnel.entropy = forward_entropy(&a->inner);
	verdict = forward(skb, a);
	return verdict ?: VERDICT_JOIN_TOLD;
}

/* The copy of a packet of this host: tells a home who has the token of its session. */
__noinline int multipath_tell_home(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull, bool next)
{
	const struct session *session = multipath_session(a);
	__be32 token = session ? session->token : 0;

	multipath_set_name(a, token);
	if (!token || !multipath_find_homes(a))
		return VERDICT_DROP_JOIN_STALE;
	a->hop.to = next ? a->homes.next : a->homes.first;
	a->hop.step = next ? GUE_CHAIN_HOME_NEXT : GUE_CHAIN_HOME;
	a->hop.kind = GUE_KIND_TOKEN;
	a->tunnel.source_port = (__u16)token;
	a->tunnel.destination_port = token >> 16;
	return multipath_send(skb, a);
}

/* Notes a connection that has begun, and has its homes told. */
__noinline int multipath_register(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull,
				  __be32 token)
{
	bool again;

	multipath_set_name(a, token);
	multipath_set_holder(a, &a->key.tunnel);
	if (multipath_note(a, &mptcp_tokens, MULTIPATH_TOKENS) > NOTED_AGAIN)
		return 0;
	if (!multipath_find_homes(a))
		return 0;
	again = multipath_is_here(&a->homes.first) ||
		(address_is_set(&a->homes.next) && multipath_is_here(&a->homes.next));
	if (again)
		multipath_note(a, &mptcp_names, MULTIPATH_NAMES);
	if (multipath_is_elsewhere(&a->homes.first))
		multipath_copy(skb, COPY_HOME);
	if (multipath_is_elsewhere(&a->homes.next))
		multipath_copy(skb, COPY_HOME_NEXT);
	return 0;
}

static __always_inline void multipath_set_flow(struct rx_ctx *a)
{
	a->flow.client = a->inner.source;
	a->flow.vip = a->inner.destination;
	a->flow.client_port = a->inner.source_port;
	a->flow.vip_port = a->inner.destination_port;
}

/* Notes that a->joined has the subflow of a SYN. The row ends soon unless more is said of it. */
static __noinline enum noted multipath_note_joining(struct rx_ctx *a)
{
	if (!bpf_map_lookup_elem(&mptcp_joining, &a->flow) &&
	    !multipath_count(&a->flow.vip, MULTIPATH_JOINING))
		return NOTED_FULL;
	return bpf_map_update_elem(&mptcp_joining, &a->flow, &a->joined, BPF_ANY) ? NOTED_FULL
										  : NOTED_NEW;
}

/*
 * Notes that a->joined has the subflow of a client's packet, and what the packet, if it is no SYN,
 * says of it. One that lives stays where it is: its SYN may be forged.
 */
__noinline int multipath_note_joined(struct rx_ctx *a __arg_nonnull)
{
	struct multipath_joined *row;
	__u8 flags = a->inner.tcp_flags;
	bool same;

	multipath_set_flow(a);
	a->joined.last_seen = bpf_ktime_get_coarse_ns();
	a->joined.closing = !!(flags & TCP_FLAG_FIN);
	row = bpf_map_lookup_elem(&mptcp_joined, &a->flow);
	same = row && address_equal(&row->tunnel, &a->joined.tunnel);
	if (row && !row->closing && !same)
		return NOTED_CONFLICT;
	if (flags & TCP_FLAG_SYN)
		return row && !row->closing ? NOTED_AGAIN : multipath_note_joining(a);
	if (flags & TCP_FLAG_RST) {
		if (same)
			bpf_map_delete_elem(&mptcp_joined, &a->flow);
		return NOTED_AGAIN;
	}
	if (row) {
		*row = a->joined;
	} else if (!multipath_count(&a->flow.vip, MULTIPATH_JOINED) ||
		   bpf_map_update_elem(&mptcp_joined, &a->flow, &a->joined, BPF_ANY)) {
		return NOTED_FULL;
	}
	bpf_map_delete_elem(&mptcp_joining, &a->flow);
	return row ? NOTED_AGAIN : NOTED_NEW;
}

/*
 * May the host that the subflow's segments come to keep it for as long as it lives; or if this one
 * ends it, no longer? Only of a client that is there, and an end only by numbers that fit.
 */
static __noinline bool multipath_confirms(struct __sk_buff *skb, const struct rx_ctx *a,
					  const struct session *session)
{
	const __u32 shaken = SESSION_CLIENT_ACK | SESSION_WORKLOAD_ANSWER;
	struct tcp_numbers numbers;

	if ((session->events & shaken) != shaken)
		return false;
	if (a->inner.tcp_flags & TCP_FLAG_RST)
		return session->events & SESSION_RESET;
	if (!(a->inner.tcp_flags & TCP_FLAG_FIN))
		return true;
	return tcp_numbers_read(skb, &a->inner, &numbers) &&
	       bpf_ntohl(numbers.seq) - session->client_next < MULTIPATH_FIN_WINDOW;
}

/* Tells the host that the subflow's packet came to that it is here. */
static __always_inline void multipath_confirm(struct __sk_buff *skb, struct rx_ctx *a)
{
	if (!multipath_is_here(&a->tunnel.other)) {
		multipath_copy(skb, COPY_JOINED);
		return;
	}
	a->joined.tunnel = a->key.tunnel;
	multipath_note_joined(a);
}

/* Is a SYN the first of its session, or are its ports those of a connection that is over? */
static __always_inline bool multipath_is_past(const struct session *session)
{
	return !(session->events & SESSION_WORKLOAD_ANSWER) || session_is_over(session);
}

/*
 * A packet of a multipath endpoint is about to be delivered in the session. A SYN that joins is
 * confirmed; the first segment that proves that the client is there begins the connection. Not
 * static: the verifier looks at it once.
 */
__noinline int multipath_delivered(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull,
				   struct session *session __arg_nonnull)
{
	if (a->join) {
		if (session->token != a->join && multipath_is_past(session))
			session->token = a->join;
		if (a->tunnel.step >= GUE_CHAIN_HOME && !multipath_is_here(&a->tunnel.other)) {
			multipath_note_elsewhere(a, session);
			multipath_copy(skb, COPY_JOINED);
		}
		return 0;
	}
	if (a->tunnel.step == GUE_CHAIN_HOLDER && a->tunnel.kind == GUE_KIND_PACKET &&
	    a->tunnel.source_port == MULTIPATH_ASKS && multipath_confirms(skb, a, session))
		multipath_confirm(skb, a);
	if (!a->proven && session->token && session->events & SESSION_CLIENT_ACK)
		multipath_register(skb, a, session->token);
	return 0;
}
