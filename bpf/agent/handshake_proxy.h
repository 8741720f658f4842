/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A proxy for TCP handshakes: repeats to the workload the handshake that its client had with a mux,
 * and translates from then on, for the workload has another initial sequence number than the
 * cookie, another window scale, and another clock for timestamps.
 *
 *   client      agent                workload
 *     ── ACK ──▶  ── SYN ──────────────▶       of what the cookie has kept
 *                 ◀─────────── SYN/ACK ──      numbers are known
 *                 ── ACK ──────────────▶
 *     ── data ─▶  ── acknowledgements ─▶       less shift, SACK blocks too
 *     ◀─────────  ◀─────────────── data ──     sequence numbers plus shift
 *
 * Nothing is kept of a packet: what is lost on the way is sent again by the client, which brings
 * the cookie once more, or by the workload.
 */
#pragma once

#include "agent/maps.h"
#include "agent/chain.h"
#include "net/skb/decap.h"
#include "agent/session.h"
#include "net/syncookie.h"

/* A TCP header with all the options that a SYN has here. */
struct syn_segment {
	struct tcphdr tcp;
	__u8 options[20];
};

enum {
	SYN_OPTIONS_PLAIN = 4, /* bytes of options: MSS */
	SYN_OPTIONS_ALL = 20, /* MSS, SACK permitted, timestamps, window scale */
	TCP_OPTION_SACK = 5,
	TCP_SACK_NUMBERS = 8, /* of four blocks */
};

static __always_inline void proxy_write32(__u8 *to, __u32 word)
{
	word = bpf_htonl(word);
	__builtin_memcpy(to, &word, sizeof(word));
}

/* The SYN that the client sent to the mux, as far as the cookie has kept it. */
static __noinline __u32 proxy_segment(const struct rx_ctx *a, struct syn_segment *syn)
{
	const struct handshake *h = &a->handshake;
	__u32 scale = h->options & SYN_OPTION_WSCALE, window = h->window;
	__u32 bytes = sizeof(syn->tcp) + (h->ts.at ? SYN_OPTIONS_ALL : SYN_OPTIONS_PLAIN);
	__u8 *o = syn->options;

	__builtin_memset(syn, 0, sizeof(*syn));
	if (h->ts.at && scale != SYN_OPTION_WSCALE)
		window <<= scale;
	syn->tcp.source = a->inner.source_port;
	syn->tcp.dest = a->rule.port;
	syn->tcp.seq = bpf_htonl(h->seq - 1);
	((__u8 *)&syn->tcp)[12] = bytes / 4 << 4;
	((__u8 *)&syn->tcp)[13] = TCP_FLAG_SYN;
	syn->tcp.window = bpf_htons(window < 65535 ? window : 65535);
	o[0] = TCP_OPTION_MSS;
	o[1] = TCP_OPTION_MSS_LENGTH;
	o[2] = h->mss >> 8;
	o[3] = h->mss;
	if (!h->ts.at)
		return bytes;
	o[4] = o[5] = o[16] = o[17] = o[18] = o[19] = TCP_OPTION_NOP;
	if (h->options & SYN_OPTION_SACK) {
		o[4] = TCP_OPTION_SACK_OK;
		o[5] = TCP_OPTION_SACK_OK_LENGTH;
	}
	o[6] = TCP_OPTION_TIMESTAMPS;
	o[7] = TCP_OPTION_TIMESTAMPS_LENGTH;
	proxy_write32(o + 8, h->ts.tsval);
	if (scale != SYN_OPTION_WSCALE) {
		o[17] = TCP_OPTION_WSCALE;
		o[18] = TCP_OPTION_WSCALE_LENGTH;
		o[19] = scale;
	}
	return bytes;
}

/* Makes the IP header say that so many bytes follow it. */
static __noinline int proxy_set_length(struct __sk_buff *skb, const struct packet *p, __u32 bytes)
{
	__be16 length = bpf_htons(p->l4 - p->l3 + bytes), before = bpf_htons(p->l3_length);
	int err;

	if (p->ethertype == bpf_htons(ETH_P_IPV6)) {
		length = bpf_htons(p->l4 - p->l3 + bytes - sizeof(struct ipv6hdr));
		return bpf_skb_store_bytes(skb, p->l3 + offsetof(struct ipv6hdr, payload_len),
					   &length, sizeof(length), 0);
	}
	err = bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), before, length,
				  sizeof(length));
	return err
		       ?: bpf_skb_store_bytes(skb, p->l3 + offsetof(struct iphdr, tot_len), &length,
					      sizeof(length), 0);
}

/* What the checksum of the workload's segment covers before the TCP header, not folded. */
static __noinline __s64 proxy_pseudo(const struct rx_ctx *a, __u32 bytes)
{
	const struct address *client = &a->inner.source, *dip = &a->rule.dip;
	struct {
		struct address client;
		struct address dip;
		__be32 length;
		__be32 protocol;
	} pseudo = {
		.client = *client,
		.dip = *dip,
		.length = bpf_htonl(bytes),
		.protocol = bpf_htonl(IPPROTO_TCP),
	};

	if (address_is_v4(dip)) { /* what makes them v6 is not in it */
		pseudo.client.words[2] = 0;
		pseudo.dip.words[2] = 0;
	}
	return bpf_csum_diff(NULL, 0, (__be32 *)&pseudo, sizeof(pseudo), 0);
}

/*
 * Makes the client's segment a SYN to the workload of a->rule; its addresses are those already.
 * Data in it is left out, for the client will send it again. The checksum begins at ~0, which is
 * zero both where the kernel keeps it as a sum yet to be ended, and where it is whole.
 */
static __noinline int proxy_syn(struct __sk_buff *skb, struct rx_ctx *a)
{
	__u32 check = a->inner.l4 + offsetof(struct tcphdr, check);
	__u64 flags = BPF_F_PSEUDO_HDR | (address_is_v4(&a->rule.dip) ? 0 : BPF_F_IPV6);
	struct syn_segment syn;
	__s64 sum, pseudo;
	__u32 bytes = proxy_segment(a, &syn);

	/* Shorter and longer: only that has the kernel forget the sum of what is no more. */
	if (bpf_skb_change_tail(skb, a->inner.l4 + sizeof(syn.tcp), 0) ||
	    bpf_skb_change_tail(skb, a->inner.l4 + bytes, 0))
		return -1;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&syn, sizeof(syn), 0);
	pseudo = proxy_pseudo(a, bytes);
	if (sum < 0 || pseudo < 0 || proxy_set_length(skb, &a->inner, bytes))
		return -1;
	syn.tcp.check = 0xffff;
	if (bytes < sizeof(syn) ? bpf_skb_store_bytes(skb, a->inner.l4, &syn,
						      sizeof(syn.tcp) + SYN_OPTIONS_PLAIN, 0)
				: bpf_skb_store_bytes(skb, a->inner.l4, &syn, sizeof(syn), 0))
		return -1;
	if (bpf_l4_csum_replace(skb, check, 0, sum, 0))
		return -1;
	return bpf_l4_csum_replace(skb, check, 0, pseudo, flags);
}

/* Swaps what the frame and the IP header have of both ends; no checksum changes by it. */
static __noinline int proxy_turn(struct __sk_buff *skb, const struct packet *p)
{
	__u8 macs[12], turned[12];
	__u32 at = p->l3 + offsetof(struct iphdr, saddr);
	__be32 v4[2];
	struct in6_addr v6[2];

	if (bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)))
		return -1;
	__builtin_memcpy(turned, macs + 6, 6);
	__builtin_memcpy(turned + 6, macs, 6);
	if (bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0))
		return -1;
	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		v4[0] = p->destination.words[3];
		v4[1] = p->source.words[3];
		return bpf_skb_store_bytes(skb, at, v4, sizeof(v4), 0);
	}
	at = p->l3 + offsetof(struct ipv6hdr, saddr);
	__builtin_memcpy(&v6[0], &p->destination, sizeof(v6[0]));
	__builtin_memcpy(&v6[1], &p->source, sizeof(v6[1]));
	return bpf_skb_store_bytes(skb, at, v6, sizeof(v6), 0);
}

/* A TCP header and whatever options, and what becomes of them. */
struct proxy_header {
	struct tcphdr tcp;
	__u8 options[TCP_OPTIONS_MAX];
};

struct proxy_scratch {
	struct proxy_header from;
	struct proxy_header to;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct proxy_scratch);
} proxy_scratch SEC(".maps");

/*
 * Makes the workload's segment one of its client: an acknowledgement of a SYN/ACK; a reset of all
 * else that comes instead, of a connection that was. It keeps its length, so that the options
 * become timestamps, if there are any, and padding.
 */
static __noinline int proxy_return(struct __sk_buff *skb, const struct packet *p,
				   const struct session *session, const struct timestamps *ts)
{
	__u32 zero = 0, bytes, l4 = p->l4;
	struct proxy_scratch *s = bpf_map_lookup_elem(&proxy_scratch, &zero);
	bool acks = is_syn_ack(p);
	__s64 difference;

	if (!s || bpf_skb_load_bytes(skb, l4, &s->from.tcp, sizeof(s->from.tcp)))
		return -1;
	bytes = s->from.tcp.doff * 4;
	if (bytes < sizeof(s->from.tcp) || bytes > sizeof(s->from) ||
	    bpf_skb_load_bytes(skb, l4, &s->from, bytes))
		return -1;
	__builtin_memset(s->to.options, TCP_OPTION_NOP, sizeof(s->to.options));
	s->to.tcp = s->from.tcp;
	s->to.tcp.source = s->from.tcp.dest;
	s->to.tcp.dest = s->from.tcp.source;
	s->to.tcp.seq = s->from.tcp.ack_seq;
	s->to.tcp.ack_seq = acks ? bpf_htonl(bpf_ntohl(s->from.tcp.seq) + 1) : 0;
	((__u8 *)&s->to.tcp)[13] = acks ? TCP_FLAG_ACK : TCP_FLAG_RST;
	s->to.tcp.window = acks ? bpf_htons(session->window) : 0;
	if (ts->at && bytes >= sizeof(struct tcp_aligned)) {
		s->to.options[2] = TCP_OPTION_TIMESTAMPS;
		s->to.options[3] = TCP_OPTION_TIMESTAMPS_LENGTH;
		proxy_write32(s->to.options + 4, session->client_tsval);
		proxy_write32(s->to.options + 8, ts->tsval);
	}
	barrier_var(bytes);
	if (bytes < sizeof(s->from.tcp) || bytes > sizeof(s->from))
		return -1;
	difference =
		bpf_csum_diff((__be32 *)&s->from, bytes & ~3U, (__be32 *)&s->to, bytes & ~3U, 0);
	if (difference < 0 || proxy_turn(skb, p) || bpf_skb_store_bytes(skb, l4, &s->to, bytes, 0))
		return -1;
	return bpf_l4_csum_replace(skb, l4 + offsetof(struct tcphdr, check), 0, difference, 0);
}

/* The window scale that a SYN/ACK announces; 0 without. */
static __always_inline __u32 proxy_scale(struct __sk_buff *skb, const struct packet *p)
{
	__u32 at = tcp_option_offset(skb, p->l4, TCP_OPTION_WSCALE, TCP_OPTION_WSCALE_LENGTH);
	__u8 scale;

	if (!at || bpf_skb_load_bytes(skb, p->l4 + at + 2, &scale, sizeof(scale)))
		return 0;
	return scale < 14 ? scale : 14;
}

/* Learns from the workload's SYN/ACK what is to be translated. */
static __noinline int proxy_learn(struct __sk_buff *skb, const struct packet *p,
				  struct session *session, __u32 seq, const struct timestamps *ts)
{
	session->shift = session->isn - seq;
	if (session->window_shift) /* another CPU may learn the same from the same segment again */
		session->window_shift = (__s32)proxy_scale(skb, p) - SYN_COOKIE_WSCALE;
	if (!ts->at)
		session->cookie = session->offer = 0;
	if (session->cookie)
		session->clock_shift = session->tsval - ts->tsval;
	__sync_fetch_and_or(&session->events, SESSION_REPLAYED);
	return 0;
}

/* From a workload whose handshake is the agent's. NONE: it goes to the client, translated. */
static __noinline enum verdict proxy_answer(struct __sk_buff *skb, const struct packet *p,
					    struct session *session)
{
	struct timestamps ts = timestamps_read(skb, p);
	struct address dip = p->source;
	const __u32 *workload;
	__be32 word;
	__u32 seq;

	if (bpf_skb_load_bytes(skb, p->l4 + offsetof(struct tcphdr, seq), &word, sizeof(word)))
		return VERDICT_DROP_SYNCOOKIE_REWRITE;
	seq = bpf_ntohl(word);
	if (p->tcp_flags & TCP_FLAG_RST) {
		if (session_is_early(
			    session)) /* a client believes only the number that it expects */
			session->shift = session->isn + 1 - seq;
		return VERDICT_NONE;
	}
	if (!session_is_early(session)) {
		if (!is_syn_ack(p))
			return VERDICT_NONE;
		if (session->isn !=
		    seq + session->shift) { /* not ours: the client has begun anew */
			session_renew(session);
			return VERDICT_NONE;
		}
	} else if (is_syn_ack(p)) {
		proxy_learn(skb, p, session, seq, &ts);
	}
	if (proxy_return(skb, p, session, &ts))
		return VERDICT_DROP_SYNCOOKIE_REWRITE;
	workload = bpf_map_lookup_elem(&workloads, &dip);
	return workload && *workload ? VERDICT_SYNCOOKIE_ANSWER : VERDICT_SYNCOOKIE_ANSWER_HOST;
}

/* A number of the TCP header, or in an option of it, of bytes that are within the segment. */
static __always_inline int proxy_add(struct __sk_buff *skb, const struct packet *p, __u32 at,
				     __u32 add, __u32 *difference)
{
	__be32 word;

	if (bpf_skb_load_bytes(skb, p->l4 + at, &word, sizeof(word)))
		return -1;
	return rewrite_tcp32(skb, p, at, word, bpf_htonl(bpf_ntohl(word) + add), difference);
}

static __always_inline __u32 proxy_window(__u32 window, __s32 shift)
{
	if (shift < 0)
		return window >> (-shift & 15);
	window <<= shift & 15;
	return window < 65535 ? window : 65535;
}

/* The workload's numbers become those that the client knows. For difference see rewrite_begin(). */
static __noinline int proxy_outward(struct __sk_buff *skb, const struct packet *p,
				    const struct session *session, __u32 *difference)
{
	const __u32 at = offsetof(struct tcphdr, window) - 2;
	__be32 word;
	__u32 rest;

	if (proxy_add(skb, p, offsetof(struct tcphdr, seq), session->shift, difference))
		return -1;
	if (!session->window_shift)
		return 0;
	if (bpf_skb_load_bytes(skb, p->l4 + at, &word, sizeof(word)))
		return -1;
	rest = bpf_ntohl(word);
	rest = (rest & 0xffff0000) | proxy_window(rest & 0xffff, session->window_shift);
	return rewrite_tcp32(skb, p, at, word, bpf_htonl(rest), difference);
}

/* The blocks of a SACK option, of which the client knows other numbers than the workload. */
static __noinline int proxy_blocks(struct __sk_buff *skb, const struct packet *p, __u32 shift,
				   __u32 *difference)
{
	__u32 at = tcp_option_offset(skb, p->l4, TCP_OPTION_SACK, 0);
	__u8 size;

	if (!at)
		return 0;
	if (bpf_skb_load_bytes(skb, p->l4 + at + 1, &size, sizeof(size)))
		return -1;
	for (__u32 i = 0; i < TCP_SACK_NUMBERS; i++) {
		if (2 + (i + 1) * sizeof(__u32) > size)
			return 0;
		if (proxy_add(skb, p, at + 2 + i * sizeof(__u32), -shift, difference))
			return -1;
	}
	return 0;
}

/* What the client acknowledges becomes what the workload has sent. */
static __noinline int proxy_inward(struct __sk_buff *skb, const struct packet *p,
				   const struct session *session, __u32 *difference)
{
	if (!(p->tcp_flags & TCP_FLAG_ACK))
		return 0;
	if (proxy_add(skb, p, offsetof(struct tcphdr, ack_seq), -session->shift, difference))
		return -1;
	return proxy_blocks(skb, p, session->shift, difference);
}
