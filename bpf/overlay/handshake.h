/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A proxy for the handshakes of clients that a mux has answered by a cookie. The server has another
 * initial sequence number than the cookie: the difference is the session's shift. Options but the
 * MSS were not offered, so there is nothing else to translate.
 *
 *   client      this host           server
 *     ── ACK ──▶  ── SYN ────────────▶
 *                 ◀───────── SYN-ACK ──     shift is known
 *                 ── ACK ────────────▶
 *     ── data ─▶  ── acknowledgement - shift ─▶
 *     ◀─────────  ◀─── sequence number + shift ──
 *
 * Data that comes before the server's answer is dropped: the client sends it again.
 */
#pragma once

#include "net/syncookie.h"
#include "overlay/reset.h"

/* A SYN with the one option that it has here. */
struct proxy_syn {
	struct tcphdr tcp;
	__u8 kind;
	__u8 length;
	__be16 mss;
};

_Static_assert(sizeof(struct proxy_syn) == 24, "proxy_syn");

/* The MSS of the client, but no larger than what fits the uplink in VXLAN. */
static __always_inline __u32 proxy_mss(const struct overlay_ctx *a, const struct packet *p)
{
	__u32 headers = answer_overhead(a) + (p->l4 - p->l3) + sizeof(struct tcphdr);
	__u32 room = settings.mtu > headers ? settings.mtu - headers : 0;

	return a->mss < room ? a->mss : room;
}

static __always_inline void proxy_syn_write(const struct overlay_ctx *a, const struct packet *p,
					    struct proxy_syn *syn)
{
	const struct tcphdr *in = &a->head.tcp;

	syn->tcp.source = p->source_port;
	syn->tcp.dest = a->rule.port ?: p->destination_port;
	syn->tcp.seq = bpf_htonl(bpf_ntohl(in->seq) - 1);
	syn->tcp.doff = sizeof(*syn) / 4;
	syn->tcp.syn = 1;
	syn->tcp.window = in->window;
	syn->tcp.check = 0xffff; /* zero, whoever ends the sum */
	syn->kind = TCP_OPTION_MSS;
	syn->length = TCP_OPTION_MSS_LENGTH;
	syn->mss = bpf_htons(proxy_mss(a, p));
}

/*
 * Makes the client's segment, which has been made the server's by now, a SYN. Data in it is left
 * out. Shorter and longer: only that has the kernel forget the sum of what is no more.
 */
static __noinline int handshake_syn(struct __sk_buff *skb, const struct overlay_ctx *a,
				    struct packet *p)
{
	__u32 check = p->l4 + offsetof(struct tcphdr, check);
	struct proxy_syn syn = {};
	struct {
		struct address source;
		struct address destination;
		__be32 length;
		__be32 protocol;
	} pseudo = { .destination = a->rule.dip,
		     .length = bpf_htonl(sizeof(syn)),
		     .protocol = bpf_htonl(IPPROTO_TCP) };
	__s64 sum, before;

	local_address(&pseudo.source, &a->key.client, a->attachment.vni, a->number);
	if (address_is_v4(&pseudo.source)) /* what makes them IPv6 is not in it */
		pseudo.source.words[2] = pseudo.destination.words[2] = 0;
	proxy_syn_write(a, p, &syn);
	if (bpf_skb_change_tail(skb, p->l4 + sizeof(syn.tcp), 0) ||
	    bpf_skb_change_tail(skb, p->l4 + sizeof(syn), 0))
		return -1;
	frame_reach(skb, p->l4 + sizeof(struct tcphdr));
	if (fbt_set_length(skb, p, p->l4 - p->l3 + sizeof(syn)))
		return -1;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&syn, sizeof(syn), 0);
	before = bpf_csum_diff(NULL, 0, (__be32 *)&pseudo, sizeof(pseudo), 0);
	if (sum < 0 || before < 0 || bpf_skb_store_bytes(skb, p->l4, &syn, sizeof(syn), 0))
		return -1;
	return bpf_l4_csum_replace(skb, check, 0, sum, 0) ||
	       bpf_l4_csum_replace(skb, check, 0, before, BPF_F_PSEUDO_HDR);
}

/* What deliver() has made ready for the server becomes its client's SYN. */
static __noinline enum verdict handshake_begin(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = a->inner;

	p.l4 -= p.l3 - sizeof(struct ethhdr);
	if (a->header.length) /* deliver() has taken it out */
		p.l4 -= sizeof(struct bypass_header);
	p.l3 = sizeof(struct ethhdr);
	if (handshake_syn(skb, a, &p))
		return VERDICT_DROP_REWRITE;
	return a->rule.workload == OVERLAY_NATIVE ? VERDICT_SYNCOOKIE_NATIVE
						  : VERDICT_SYNCOOKIE_INTERFACE;
}

/* Turns the server's SYN-ACK round: it becomes the client's acknowledgement. */
static __noinline int handshake_ack(struct __sk_buff *skb, struct overlay_ctx *a)
{
	const struct tcphdr *in = &a->head.tcp;
	struct packet p = a->inner;
	struct tcphdr out = {
		.source = in->dest,
		.dest = in->source,
		.seq = in->ack_seq,
		.ack_seq = bpf_htonl(bpf_ntohl(in->seq) + 1),
	};

	out.doff = sizeof(out) / 4;
	out.ack = 1;
	out.window = bpf_htons(SYN_COOKIE_WINDOW);
	out.check = 0xffff;
	return segment_turn(skb, &p, &out);
}

/* The server's answer: from now on numbers are translated, and the handshake counts as completed.
 */
static __noinline int handshake_learn(struct overlay_ctx *a, struct overlay_session *s, __u32 seq)
{
	session_seen(s);
	s->shift = s->server_next - 1 - seq;
	if (session_note(s, OVERLAY_SERVER_ANSWER | OVERLAY_CLIENT_ACK, OVERLAY_RESET) &
	    OVERLAY_CLIENT_ACK)
		return 0;
	return session_confirm(a, s->counters);
}

/*
 * From a server whose handshake is by proxy. NONE: it goes to the client, translated.
 * DROP_NO_SESSION: it is of a connection that was, and is reset.
 */
static __noinline enum verdict handshake_answer(struct __sk_buff *skb, struct overlay_ctx *a,
						bool native)
{
	struct overlay_session *s = session_at(a->number);
	const __u32 syn_ack = TCP_FLAG_SYN | TCP_FLAG_ACK;
	__u32 seq = bpf_ntohl(a->head.tcp.seq), flags = a->inner.tcp_flags;
	bool pending = session_is_pending(a->row.events);

	if (!s)
		return VERDICT_DROP_SESSION_GONE;
	if (flags & TCP_FLAG_RST && pending) /* a client believes the number that it expects */
		a->shift = a->row.server_next - seq;
	if (flags & TCP_FLAG_RST || (!pending && (flags & syn_ack) != syn_ack)) {
		session_note_server(a, s);
		return VERDICT_NONE;
	}
	if (pending) {
		if ((flags & syn_ack) != syn_ack ||
		    bpf_ntohl(a->head.tcp.ack_seq) != a->row.client_next)
			return VERDICT_DROP_NO_SESSION;
		handshake_learn(a, s, seq);
	} else if (seq + a->shift + 1 != a->row.server_next) {
		return VERDICT_DROP_SYNCOOKIE_PENDING; /* late: the client has gone on */
	}
	if (handshake_ack(skb, a))
		return VERDICT_DROP_REWRITE;
	return native ? VERDICT_SYNCOOKIE_ANSWER_HOST : VERDICT_SYNCOOKIE_ANSWER;
}
