/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sessions: how they begin, and what the programs note of their segments. */
#pragma once

#include "net/session/quota.h"
#include "overlay/maps.h"
#include "overlay/statistics.h"

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

/* Does the server still owe the answer to a handshake by proxy? */
static __always_inline bool session_is_pending(__u32 events)
{
	const __u32 others = OVERLAY_SERVER_ANSWER | OVERLAY_RESET;

	return (events & (OVERLAY_PROXIED | others)) == OVERLAY_PROXIED;
}

/* How far the client's numbers of the server are ahead of the server's own. */
static __always_inline __u32 session_shift(const struct overlay_session *s)
{
	const __u32 learnt = OVERLAY_PROXIED | OVERLAY_SERVER_ANSWER;

	/* In this order: the shift is there before the event. */
	return (*(volatile __u16 *)&s->events & learnt) == learnt ? *(volatile __u32 *)&s->shift
								  : 0;
}

/* The rule of a packet's VIP and port behind the tunnel that it came by. */
static __noinline enum verdict session_rule(struct overlay_ctx *a, __u32 *number)
{
	struct overlay_rule_key key = {
		.vip = a->attachment.service,
		.tunnel = a->outer.destination,
		.port = a->key.vip_port,
		.protocol = a->key.udp ? IPPROTO_UDP : IPPROTO_TCP,
	};
	const __u32 *found = bpf_map_lookup_elem(&rules, &key);

	if (!found) {
		key.port = 0;
		found = bpf_map_lookup_elem(&rules, &key);
	}
	if (!found)
		return VERDICT_DROP_NO_RULE;
	*number = *found;
	return VERDICT_NONE;
}

static __always_inline void session_fresh(const struct overlay_ctx *a, __u32 rule,
					  struct overlay_session *fresh)
{
	fresh->client = a->key.client;
	fresh->host = a->host;
	fresh->attachment = a->key.attachment;
	fresh->rule = rule;
	fresh->counters = backend_number(a->key.attachment, rule);
	fresh->client_port = a->key.client_port;
	fresh->vip_port = a->key.vip_port;
	__builtin_memcpy(fresh->client_mac, a->client_mac, sizeof(fresh->client_mac));
	fresh->events = (a->via ? OVERLAY_VIA_MUX : 0) | (a->key.udp ? OVERLAY_UDP : 0);
	fresh->client_next = a->key.udp ? 0 : bpf_ntohl(a->head.tcp.seq) + 1;
	fresh->seen = overlay_now();
	if (a->mss) { /* the segment is no SYN: it acknowledges a SYN cookie */
		fresh->events |= OVERLAY_PROXIED;
		fresh->client_next--;
		fresh->server_next = bpf_ntohl(a->head.tcp.ack_seq);
	}
}

/* Counts down the session whose row has become another's. */
static __noinline int session_count_past(const struct overlay_session *past)
{
	__u32 number = past->attachment;
	const struct overlay_attachment *old;

	old = number ? bpf_map_lookup_elem(&attachments, &number) : NULL;
	if (old)
		quota_count(old->tenant, -1, past->events & OVERLAY_CLIENT_ACK ? 0 : -1);
	return 0;
}

/* A SYN by a mux makes a row, and so does a right cookie. */
static __noinline enum verdict session_begin(struct overlay_ctx *a)
{
	struct overlay_session fresh = {}, past = {};
	__u32 rule = 0, number = a->key.attachment;
	enum verdict verdict = session_rule(a, &rule);
	int row;

	if (settings.paused)
		return VERDICT_DROP_SESSION_PENDING;
	if (verdict)
		return verdict;
	verdict = quota_take(a->attachment.tenant);
	if (verdict) {
		count_refused(number, rule);
		return verdict;
	}
	session_fresh(a, rule, &fresh);
	row = session_put(&a->key, &fresh, &past);
	if (row < 0) {
		quota_count(a->attachment.tenant, -1, -1);
		if (row != SESSION_FULL)
			return VERDICT_DROP_SESSION_PENDING;
		count_refused(number, rule);
		return VERDICT_DROP_SESSION_FULL;
	}
	count_opened(number, fresh.counters);
	session_count_past(&past);
	a->number = row;
	return VERDICT_NONE;
}

/* Begins the session's connection anew. */
static __noinline enum verdict session_restart(struct overlay_ctx *a,
					       const struct overlay_session *s)
{
	struct overlay_session fresh = {}, past = {};
	__u32 rule = 0;
	enum verdict verdict = session_rule(a, &rule);

	if (verdict)
		return verdict;
	session_fresh(a, session_is_over(s->events) ? rule : s->rule, &fresh);
	if (settings.paused || !session_renew(a->number, a->tag, a->key.hash, &fresh, &past))
		return VERDICT_DROP_SESSION_PENDING;
	count_opened(a->key.attachment, fresh.counters);
	if (past.events & OVERLAY_CLIENT_ACK)
		quota_count(a->attachment.tenant, 0, 1);
	return VERDICT_NONE;
}

/* A SYN by a mux in a session: one that is over, or that nobody has answered,
 * begins anew. */
static __noinline enum verdict session_again(struct overlay_ctx *a)
{
	struct overlay_session *s = session_at(a->number);
	__u32 isn = bpf_ntohl(a->head.tcp.seq);
	bool over, open;

	if (!s)
		return VERDICT_DROP_SESSION_GONE;
	over = session_is_over(s->events);
	open = s->events & OVERLAY_CLIENT_ACK;
	if (over || (!open && s->client_next != isn + 1))
		return session_restart(a, s);
	if (session_is_pending(s->events)) /* the client has taken a mux's answer to it */
		return VERDICT_DROP_SYNCOOKIE_PENDING;
	if (s->host != a->host)
		return VERDICT_DROP_OTHER_HOST;
	count_repeated(s->counters);
	return VERDICT_NONE;
}

/* Has the client moved to the host that the FBT names? Else its host's packets
 * are a stranger's. */
static __noinline enum verdict session_at_host(struct overlay_ctx *a)
{
	struct overlay_session *s = session_at(a->number);
	__u32 ahead;

	if (!s)
		return VERDICT_DROP_SESSION_GONE;
	ahead = bpf_ntohl(a->head.tcp.seq) - s->client_next + OVERLAY_MOVE_WINDOW;
	if (s->host != a->host) {
		if (!a->from_mux || ahead > 2 * OVERLAY_MOVE_WINDOW)
			return VERDICT_DROP_OTHER_HOST;
		s->host = a->host;
	}
	if (a->from_mux)
		session_note(s, a->via ? OVERLAY_VIA_MUX : 0, a->via ? 0 : OVERLAY_VIA_MUX);
	return VERDICT_NONE;
}

/* The first segment that the client acknowledges, or the server's first datagram: no more
 * half-open.
 */
static __noinline int session_confirm(struct overlay_ctx *a, __u32 counters)
{
	quota_count(a->attachment.tenant, 0, -1);
	count_confirmed(a->key.attachment, counters);
	return 0;
}

/* Notes a client's segment. */
static __noinline int session_note_client(struct overlay_ctx *a, struct overlay_session *s)
{
	__u32 flags = a->inner.tcp_flags, events = s->events, add = 0;
	__u32 ack = bpf_ntohl(a->head.tcp.ack_seq), seq = bpf_ntohl(a->head.tcp.seq);
	__u32 tick = s->seen, answered = s->answered, was;

	session_seen(s);
	if (flags & TCP_FLAG_SYN && answered)
		s->answered = 0; /* `seen` is not the SYN-ACK's any more */
	if (flags & TCP_FLAG_RST)
		add = seq - s->client_next < OVERLAY_MOVE_WINDOW ? OVERLAY_RESET : 0;
	else if (flags & TCP_FLAG_FIN)
		add = OVERLAY_CLIENT_FIN;
	if (flags & TCP_FLAG_ACK && !(flags & (TCP_FLAG_SYN | TCP_FLAG_RST)) &&
	    events & OVERLAY_SERVER_ANSWER && number_follows(ack, s->server_next)) {
		if (ack != s->server_next)
			s->server_next = ack;
		add |= OVERLAY_CLIENT_ACK;
	}
	was = session_note(s, add, 0);
	if (add & OVERLAY_RESET & ~was)
		count_reset(s->counters);
	if (add & OVERLAY_CLIENT_ACK & ~was) {
		session_confirm(a, s->counters);
		handshake_count(a->key.attachment, tick, answered);
	}
	return 0;
}

/* Notes a server's segment. */
static __noinline int session_note_server(struct overlay_ctx *a, struct overlay_session *s)
{
	__u32 flags = a->inner.tcp_flags, ack = bpf_ntohl(a->head.tcp.ack_seq);
	const __u32 syn_ack = TCP_FLAG_SYN | TCP_FLAG_ACK;

	session_seen(s);
	if (flags & TCP_FLAG_RST) {
		if (!(session_note(s, OVERLAY_RESET, 0) & OVERLAY_RESET))
			count_reset(s->counters);
		return 0;
	}
	if ((flags & syn_ack) == syn_ack && !(s->events & OVERLAY_CLIENT_ACK)) {
		s->server_next = bpf_ntohl(a->head.tcp.seq) + 1;
		if (s->events & OVERLAY_SERVER_ANSWER)
			s->answered = 0;
		else
			handshake_answered(s);
	}
	if (flags & TCP_FLAG_ACK && ack != s->client_next && number_follows(ack, s->client_next))
		s->client_next = ack;
	session_note(s, OVERLAY_SERVER_ANSWER | (flags & TCP_FLAG_FIN ? OVERLAY_SERVER_FIN : 0),
		     OVERLAY_RESET);
	return 0;
}
