/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections whose SYN a mux has answered by a cookie (bpf/mux/overlay/syn.h). The first that the
 * host sees of them is an acknowledgement by a mux, without a SYN before it. If its cookie is right
 * a session begins, and the server gets the handshake by proxy (handshake.h).
 *
 * Only segments of no open session are checked.
 */
#pragma once

#include "net/syncookie.h"
#include "overlay/session.h"

/* What makes cookies right; the programs read, user space writes. */
struct syn_secrets syn_secrets SEC(".data.secrets");

/* The client's MSS if the segment's cookie is right; else none. */
static __noinline __s32 syncookie_check(struct overlay_ctx *a, __u32 seq, __u32 cookie)
{
	struct syn_flow flow = {
		.client = a->inner.source,
		.vip = a->inner.destination,
		.client_port = a->inner.source_port,
		.vip_port = a->inner.destination_port,
		.isn = bpf_htonl(seq - 1),
		.vni = a->attachment.vni,
	};
	__u64 now = bpf_ktime_get_ns() + syn_secrets.clock;
	const struct overlay_rule *rule;
	struct syn_secret secret;
	__u32 number = 0;

	if (!syn_secrets.clock || session_rule(a, &number))
		return 0;
	rule = bpf_map_lookup_elem(&rule_rows, &number);
	if (!rule || !(rule->flags & OVERLAY_SYN_COOKIES))
		return 0;
	secret = syn_secrets.rows[syn_cookie_row(cookie)];
	return syn_cookie_check(&secret, &flow, cookie, 0, now);
}

/* Has the client taken the server's own SYN-ACK, or is it about to? */
static __always_inline bool session_is_settled(const struct overlay_session *s, __u32 ack)
{
	if (s->events & OVERLAY_CLIENT_ACK)
		return true;
	return s->events & OVERLAY_SERVER_ANSWER && ack == s->server_next;
}

/*
 * A segment of the session s, or of none. NONE: it goes on; if it has the handshake begin, a->mss
 * is set, and the session is there. A session that is over begins anew only behind its numbers, as
 * a socket in TIME-WAIT does: else a segment that somebody repeats would begin it.
 */
static __noinline enum verdict syncookie_take(struct overlay_ctx *a, struct overlay_session *s)
{
	__u32 seq = bpf_ntohl(a->head.tcp.seq), ack = bpf_ntohl(a->head.tcp.ack_seq);
	const __u8 flags = TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK;
	bool over = s && session_is_over(s->events);
	bool pending = s && session_is_pending(s->events);
	__s32 mss;

	if (a->inner.tcp_flags & TCP_FLAG_RST ||
	    (s && !over && !pending && session_is_settled(s, ack)))
		return VERDICT_NONE;
	if (pending && seq == s->client_next && ack == s->server_next) {
		a->mss = syn_mss((ack - 1) & ((1 << SYN_COOKIE_MSS_BITS) - 1));
		return VERDICT_NONE; /* the server is asked again */
	}
	mss = a->from_mux && (a->inner.tcp_flags & flags) == TCP_FLAG_ACK
		      ? syncookie_check(a, seq, ack - 1)
		      : 0;
	if (mss <= 0)
		return pending ? VERDICT_DROP_SYNCOOKIE_PENDING : VERDICT_NONE;
	if (over && (__s32)(seq - s->client_next) <= 0)
		return VERDICT_DROP_SYNCOOKIE_REPLAYED;
	a->mss = mss;
	return s ? session_restart(a, s) : session_begin(a);
}
