/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sessions of full NAT: how they begin, and what is noted of their segments. */
#pragma once

#include "mux/ctx.h"
#include "mux/endpoint.h"
#include "mux/nat/maps.h"
#include "mux/overlay/push.h"
#include "mux/select.h"
#include "mux/trace.h"

/* What a segment says, for the session's notes. */
struct nat_segment {
	__u32 flags;
	__u32 seq;
	__u32 ack;
};

/* Looks for the session of a client's segment, which is in n. */
static __noinline bool nat_find(struct nat_ctx *n, const struct vxlan_ctx *v)
{
	const struct packet *p = &n->inner;

	n->vni = v->vni;
	n->service = v->service;
	n->host = bpf_ntohl(v->says.host);
	n->over_v6 = v->outer.ethertype == bpf_htons(ETH_P_IPV6);
	n->key.client = p->source;
	n->key.attachment = v->attachment;
	n->key.client_port = p->source_port;
	n->key.vip_port = p->destination_port;
	n->key.hash = flowhash_in(n->vni, p, &settings.hash_key);
	n->number = session_find(&n->key);
	return (__s32)n->number >= 0;
}

static __always_inline void nat_fresh(const struct nat_ctx *n, __u32 backend, __u32 seq,
				      struct overlay_session *fresh)
{
	fresh->client = n->key.client;
	fresh->host = n->host;
	fresh->attachment = n->key.attachment;
	fresh->rule = backend;
	fresh->client_port = n->key.client_port;
	fresh->vip_port = n->key.vip_port;
	__builtin_memcpy(fresh->client_mac, n->client_mac, sizeof(fresh->client_mac));
	fresh->events = n->over_v6 ? NAT_HOST_V6 : 0;
	fresh->client_next = seq + 1;
	fresh->seen = overlay_now();
}

/* The tenant of the network of an attachment. */
static __always_inline __u32 nat_tenant(__u32 attachment)
{
	const struct nat_attachment *a = bpf_map_lookup_elem(&nat_attachments, &attachment);

	return a ? a->tenant : 0;
}

/* As quota_reserve(). */
static __always_inline enum verdict quota_take(__u32 tenant)
{
	switch (quota_reserve(tenant)) {
	case QUOTA_GRANTED:
		return VERDICT_NONE;
	case QUOTA_HALF_OPEN:
		return VERDICT_DROP_HALF_OPEN;
	default:
		return VERDICT_DROP_QUOTA;
	}
}

/* Counts down the session whose row has become another's. */
static __noinline int nat_count_past(const struct overlay_session *past)
{
	if (past->attachment)
		quota_count(nat_tenant(past->attachment), -1,
			    past->events & OVERLAY_CLIENT_ACK ? 0 : -1);
	return 0;
}

/* The hash that chooses the bucket of a new connection, as bucket_hash_in(). */
static __always_inline __u32 nat_bucket_hash(const struct nat_ctx *n)
{
	struct client client = {
		.source = n->key.client,
		.vip = n->inner.destination,
		.protocol = IPPROTO_TCP,
		.port = n->endpoint_port,
		.vni = n->vni,
	};

	return n->affinity ? client_hash(&client) : n->key.hash;
}

/* The number of the backend that a new connection goes to; 0: there is none. */
static __noinline __u32 nat_choose(const struct nat_ctx *n)
{
	struct nat_slot key = {
		.service = n->service,
		.port = n->endpoint_port,
		.protocol = IPPROTO_TCP,
		.slot = bucket_slot(n->slices, nat_bucket_hash(n)),
	};
	const __u32 *number;

	if (!backend_at(n->slices, key.slot))
		return 0;
	number = bpf_map_lookup_elem(&nat_slots, &key);
	return number ? *number : 0;
}

/* A SYN makes a row. */
static __noinline enum verdict nat_begin(struct nat_ctx *n, __u32 seq)
{
	struct overlay_session fresh = {}, past = {};
	__u32 backend = nat_choose(n), tenant = nat_tenant(n->key.attachment);
	enum verdict verdict;
	int row;

	if (!backend)
		return VERDICT_DROP_NO_BACKEND;
	verdict = quota_take(tenant);
	if (verdict)
		return verdict;
	nat_fresh(n, backend, seq, &fresh);
	row = session_put(&n->key, &fresh, &past);
	if (row < 0) {
		quota_count(tenant, -1, -1);
		return row == SESSION_FULL ? VERDICT_DROP_SESSION_FULL
					   : VERDICT_DROP_SESSION_PENDING;
	}
	nat_count_past(&past);
	n->number = row;
	return VERDICT_NONE;
}

/* A SYN in a session: one that is over, or that nobody has answered, begins anew. */
static __noinline enum verdict nat_again(struct nat_ctx *n, __u32 seq)
{
	struct overlay_session *s = session_at(n->number), fresh = {}, past = {};
	__u32 backend;
	bool over;

	if (!s)
		return VERDICT_DROP_NO_SESSION;
	over = session_is_over(s->events);
	if (!over && (s->events & OVERLAY_CLIENT_ACK || s->client_next == seq + 1))
		return VERDICT_NONE;
	backend = over ? nat_choose(n) : s->rule;
	if (!backend)
		return VERDICT_DROP_NO_BACKEND;
	nat_fresh(n, backend, seq, &fresh);
	if (!session_renew(n->number, n->tag, n->key.hash, &fresh, &past))
		return VERDICT_DROP_SESSION_PENDING;
	if (past.events & OVERLAY_CLIENT_ACK)
		quota_count(nat_tenant(n->key.attachment), 0, 1);
	return VERDICT_NONE;
}

/* Finds or makes the session of a client's segment, whose row nat_find() has said. */
static __always_inline enum verdict nat_session(struct nat_ctx *n, __u32 seq)
{
	bool syn = (n->inner.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;

	if ((__s32)n->number < 0)
		return syn ? nat_begin(n, seq) : VERDICT_DROP_NO_SESSION;
	n->tag = session_tag(n->number);
	return syn && !trace_only() ? nat_again(n, seq) : VERDICT_NONE;
}

/* Notes a client's segment. */
static __always_inline void nat_note_client(struct overlay_session *s,
					    const struct nat_segment *segment)
{
	__u32 flags = segment->flags, events = s->events, add = 0;

	session_seen(s);
	if (flags & TCP_FLAG_RST)
		add = segment->seq - s->client_next < OVERLAY_MOVE_WINDOW ? OVERLAY_RESET : 0;
	else if (flags & TCP_FLAG_FIN)
		add = OVERLAY_CLIENT_FIN;
	if (flags & TCP_FLAG_ACK && !(flags & (TCP_FLAG_SYN | TCP_FLAG_RST)) &&
	    events & OVERLAY_SERVER_ANSWER && number_follows(segment->ack, s->server_next)) {
		if (segment->ack != s->server_next)
			s->server_next = segment->ack;
		add |= OVERLAY_CLIENT_ACK;
	}
	if (add & OVERLAY_CLIENT_ACK & ~session_note(s, add, 0))
		quota_count(nat_tenant(s->attachment), 0, -1);
}

/*
 * Notes a backend's segment. A reset counts if its number is what the client expects: anybody in
 * the underlay may have sent it.
 */
static __always_inline void nat_note_server(struct overlay_session *s,
					    const struct nat_segment *segment)
{
	const __u32 syn_ack = TCP_FLAG_SYN | TCP_FLAG_ACK;
	__u32 flags = segment->flags;

	session_seen(s);
	if (flags & TCP_FLAG_RST) {
		if (s->events & OVERLAY_SERVER_ANSWER
			    ? segment->seq - s->server_next < OVERLAY_MOVE_WINDOW
			    : segment->ack == s->client_next)
			session_note(s, OVERLAY_RESET, 0);
		return;
	}
	if ((flags & syn_ack) == syn_ack && !(s->events & OVERLAY_CLIENT_ACK))
		s->server_next = segment->seq + 1;
	if (flags & TCP_FLAG_ACK && segment->ack != s->client_next &&
	    number_follows(segment->ack, s->client_next))
		s->client_next = segment->ack;
	session_note(s, OVERLAY_SERVER_ANSWER | (flags & TCP_FLAG_FIN ? OVERLAY_SERVER_FIN : 0),
		     OVERLAY_RESET);
}

/*
 * Has the client moved to the host that sends? Its network's hosts may all send for it, if the
 * number is one that the connection has.
 */
static __always_inline bool nat_at_host(const struct nat_ctx *n, struct overlay_session *s,
					__u32 seq)
{
	bool over_v6 = s->events & NAT_HOST_V6;

	if (s->host == n->host && over_v6 == n->over_v6)
		return true;
	if (seq - s->client_next + OVERLAY_MOVE_WINDOW > 2 * OVERLAY_MOVE_WINDOW)
		return false;
	s->host = n->host;
	if (n->over_v6)
		session_note(s, NAT_HOST_V6, 0);
	else
		session_note(s, 0, NAT_HOST_V6);
	return true;
}

/* Reads what a client's segment needs of its session, and notes the segment. */
static __noinline enum verdict nat_use(struct nat_ctx *n, const struct nat_segment *segment)
{
	struct overlay_session *s = session_at(n->number);
	const struct nat_backend *backend;
	__u32 number;

	if (!s)
		return VERDICT_DROP_NO_SESSION;
	n->tag = session_tag(n->number);
	if (!tag_is_live(n->tag) || !session_is_of(s, &n->key))
		return VERDICT_DROP_NO_SESSION;
	number = s->rule;
	backend = bpf_map_lookup_elem(&nat_backends, &number);
	if (!backend)
		return VERDICT_DROP_NO_BACKEND;
	n->backend = *backend;
	if (!nat_at_host(n, s, segment->seq))
		return VERDICT_DROP_OTHER_HOST;
	if (session_tag(n->number) != n->tag)
		return VERDICT_DROP_NO_SESSION;
	if (!trace_only())
		nat_note_client(s, segment);
	return VERDICT_NONE;
}
