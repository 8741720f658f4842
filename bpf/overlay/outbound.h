/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the server to a local address: back to the client, in VXLAN to its host.
 */
#pragma once

#include "overlay/client/toobig.h"
#include "overlay/datagram.h"
#include "overlay/error.h"
#include "overlay/handshake.h"

enum { OVERLAY_ROW_MASK6 = (1 << 24) - 1 };

/* The number of the row that a local address is; false: it is none. */
static __always_inline bool local_row(const struct address *a, __u32 *number)
{
	if (address_is_v4(a)) {
		if (!settings.local4_mask ||
		    (a->words[3] & settings.local4_mask) != settings.local4)
			return false;
		*number = bpf_ntohl(a->words[3] & ~settings.local4_mask);
		return true;
	}
	if (!settings.local6[0] || a->words[0] != settings.local6[0] ||
	    (a->words[1] & bpf_htonl(0xffff0000)) != settings.local6[1])
		return false;
	*number = bpf_ntohl(a->words[3]) & OVERLAY_ROW_MASK6;
	return true;
}

/* Notes a packet of a server. Of an error and of TCP's fragments nothing is known. */
static __always_inline void outbound_note(struct overlay_ctx *a, struct overlay_session *s)
{
	if (a->error)
		return;
	if (a->row.events & OVERLAY_UDP)
		datagram_note_server(a, s);
	else if (a->parsed == PARSED_FRAGMENT)
		session_seen(s);
	else if (!(a->row.events & OVERLAY_PROXIED))
		session_note_server(a, s);
}

/* Is it a segment of a session whose handshake is by proxy? */
static __always_inline bool outbound_is_proxied(const struct overlay_ctx *a)
{
	return a->row.events & OVERLAY_PROXIED && a->parsed == PARSED_OK && !a->error;
}

/* Is it from and to those ports? A later fragment does not say. */
static __always_inline bool outbound_has_ports(const struct overlay_ctx *a)
{
	__be16 port = a->rule.port ?: a->row.vip_port;
	const struct packet *p = &a->inner;

	if (a->error)
		p = &a->quoted;
	else if (a->inner.fragment_offset)
		return true;
	return a->error ? a->row.client_port == p->source_port && port == p->destination_port
			: a->row.client_port == p->destination_port && port == p->source_port;
}

/* The session of the row, if the server's packet is in it. */
static __noinline enum verdict outbound_session(struct overlay_ctx *a)
{
	__u8 protocol = a->error ? a->quoted.protocol : a->inner.protocol;
	struct overlay_session *s = session_at(a->number);
	const struct overlay_attachment *attachment;
	const struct overlay_rule *rule;
	struct address local, from;
	__u32 number;

	a->tag = session_tag(a->number);
	if (!s || !tag_is_live(a->tag))
		return VERDICT_DROP_NO_SESSION;
	a->row = *s;
	number = a->row.rule;
	rule = bpf_map_lookup_elem(&rule_rows, &number);
	number = a->row.attachment;
	attachment = bpf_map_lookup_elem(&attachments, &number);
	if (!rule || !attachment || !attachment->vni)
		return VERDICT_DROP_NO_SESSION;
	a->rule = *rule;
	a->attachment = *attachment;
	local_address(&local, &a->row.client, a->attachment.vni, a->number);
	from = a->error ? a->quoted.destination : a->inner.source;
	if (!(a->row.events & OVERLAY_UDP) != (protocol != IPPROTO_UDP))
		return VERDICT_DROP_NO_SESSION;
	if (!outbound_has_ports(a) || !address_equal(&a->rule.dip, &from) ||
	    !address_equal(&local, &a->inner.destination) || session_tag(a->number) != a->tag)
		return VERDICT_DROP_NO_SESSION;
	a->key.hash = (__u64)a->tag << 35;
	a->key.attachment = a->row.attachment;
	a->shift = session_shift(&a->row);
	outbound_note(a, s);
	return VERDICT_NONE;
}

/* A server's segment of no session is turned round. */
static __noinline enum verdict outbound_reset(struct __sk_buff *skb, struct overlay_ctx *a,
					      bool native)
{
	struct packet p = a->inner;
	struct tcphdr in = a->head.tcp;

	if (in.rst)
		return VERDICT_DROP_NO_SESSION;
	if (reset_make(skb, &p, &in))
		return VERDICT_DROP_REWRITE;
	return native ? VERDICT_RESET_SERVER_NATIVE : VERDICT_RESET_SERVER;
}

/*
 * Backend and local address become VIP and client. The client's segments by a mux have an FBT, so
 * the server's SYN-ACK leaves room for it.
 */
static __noinline int outbound_rewrite(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct address client = a->row.client, vip = a->attachment.vip;
	struct packet p = a->inner;
	__u32 difference = 0;
	int err;

	if (a->error)
		return error_outbound(skb, a);
	if (p.fragment_offset)
		return rewrite_fragment(skb, &p, SOURCE, &vip) ||
		       rewrite_fragment(skb, &p, DESTINATION, &client);
	err = rewrite_begin(skb, &p, SOURCE, &vip, a->row.vip_port, &difference);
	err = err ?: rewrite_begin(skb, &p, DESTINATION, &client, p.destination_port, &difference);
	if (a->shift)
		err = err
			      ?: shift_number(skb, &p, offsetof(struct tcphdr, seq),
					      a->head.tcp.seq, a->shift, &difference);
	return err ?: rewrite_end(skb, &p, difference);
}

/* What of a server does not fit is answered. */
static __noinline enum verdict outbound_too_big(struct __sk_buff *skb, struct overlay_ctx *a,
						bool native)
{
	enum verdict verdict;
	struct ethhdr eth;

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return VERDICT_DROP_TOO_BIG;
	__builtin_memcpy(a->path.to_mac, eth.h_dest, sizeof(eth.h_dest));
	__builtin_memcpy(a->path.from_mac, eth.h_source, sizeof(eth.h_source));
	verdict = answer_too_big(skb, a);
	if (verdict == VERDICT_ANSWER_TOO_BIG && native)
		return VERDICT_ANSWER_TOO_BIG_NATIVE;
	return verdict;
}

static __noinline enum verdict outbound_send(struct __sk_buff *skb, struct overlay_ctx *a,
					     bool native)
{
	enum verdict verdict = path_of_session(a), away = VERDICT_REPLY;
	__u32 overhead = overlay_overhead(&a->rule.tunnel), number = a->row.attachment;
	__u32 packets = skb->gso_segs ?: 1; /* before the kernel forgets how many */
	struct overlay_backend_traffic *b;
	struct overlay_traffic *t;

	if (verdict)
		return verdict;
	if (a->path.answer_to)
		away = VERDICT_REPLY_BY_MUX;
	if (overhead < overlay_overhead(&a->path.to))
		overhead = overlay_overhead(&a->path.to);
	a->room = settings.mtu - overlay_overhead(&a->path.to);
	if (is_too_big(skb, a))
		return outbound_too_big(skb, a, native);
	if (ticket_is_due(a))
		ticket_tell(a);

	/* From here on the packet is touched: fail closed. */
	if (outbound_rewrite(skb, a) ||
	    overlay_clamp(skb, &a->inner, overhead + sizeof(struct fbt)))
		return VERDICT_DROP_REWRITE;
	verdict = encapsulate_for(skb, a, away, VERDICT_REPLY_LOCAL);
	if (session_tag(a->number) != a->tag)
		return VERDICT_DROP_SESSION_GONE;
	t = bpf_map_lookup_elem(&traffic, &number);
	if (t) {
		t->out.packets += packets;
		t->out.bytes += skb->len;
	}
	b = backend_traffic_of(a->row.counters);
	if (b) {
		b->out.packets += packets;
		b->out.bytes += skb->len;
	}
	return verdict;
}

/* What an error to a local address is about: a packet from there. */
static __always_inline enum verdict outbound_quoted(struct __sk_buff *skb, struct overlay_ctx *a,
						    const struct packet *p)
{
	struct packet quoted = {};

	if (!quote_read(skb, p, &quoted) || !address_equal(&quoted.source, &p->destination))
		return VERDICT_DROP_LOCAL_OTHER;
	a->inner = *p;
	a->quoted = quoted;
	return VERDICT_NONE;
}

/* The packet, if it is to a local address. */
static __noinline enum verdict outbound_parse(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = {};
	enum parsed parsed;
	__u32 number = 0;

	if (frame_is_tagged(skb))
		return VERDICT_PASS_OTHER;
	parsed = frame_parse(skb, &p);
	if (parsed == PARSED_MALFORMED)
		return VERDICT_PASS_OTHER;
	if (!local_row(&p.destination, &number))
		return VERDICT_PASS_NOT_LOCAL;
	a->error = parsed == PARSED_OK && icmp_holds_error(skb, &p);
	a->number = number;
	a->parsed = parsed;
	if (a->error)
		return outbound_quoted(skb, a, &p);
	if ((parsed != PARSED_OK && parsed != PARSED_FRAGMENT) ||
	    (p.protocol != IPPROTO_TCP && p.protocol != IPPROTO_UDP) ||
	    (!p.fragment_offset && frame_parse_transport(skb, &p) != PARSED_OK))
		return VERDICT_DROP_LOCAL_OTHER;
	if (parsed == PARSED_FRAGMENT)
		p.tcp_flags = 0; /* its numbers are not read */
	a->inner = p;
	if (parsed == PARSED_OK && p.protocol == IPPROTO_TCP &&
	    bpf_skb_load_bytes(skb, p.l4, &a->head.tcp, sizeof(a->head.tcp)))
		return VERDICT_DROP_LOCAL_OTHER;
	return VERDICT_NONE;
}

static __always_inline enum verdict outbound(struct __sk_buff *skb, struct overlay_ctx *a,
					     bool native)
{
	enum verdict verdict = outbound_parse(skb, a);

	verdict = verdict ?: outbound_session(a);
	if (!verdict && outbound_is_proxied(a))
		verdict = handshake_answer(skb, a, native);
	if (verdict == VERDICT_DROP_NO_SESSION && a->parsed == PARSED_OK &&
	    a->inner.protocol == IPPROTO_TCP)
		return outbound_reset(skb, a, native);
	return verdict ?: outbound_send(skb, a, native);
}
