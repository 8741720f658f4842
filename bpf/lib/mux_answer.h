/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers a SYN in the name of a VIP by a SYN-ACK with a cookie, back the way it came. Nothing is
 * remembered of it. docs/design/syn-cookies.md tells what the cookie holds.
 */
#pragma once

#include "lib/checksum.h"
#include "lib/encap.h"
#include "lib/mux_choose.h"
#include "lib/mux_parse.h"
#include "lib/mux_reply.h"
#include "lib/mux_syn.h"
#include "lib/syncookie.h"
#include "lib/tcp.h"

enum {
	SYN_ACK_SHORT = sizeof(struct tcphdr) + TCP_OPTION_MSS_LENGTH,
	SYN_ACK_LONG = 40, /* with timestamps, and whether there is a window scale */
	SYN_BYTES_MAX = CHECKSUM_CHUNK * CHECKSUM_CHUNKS, /* header and data */
	MSS_DEFAULT_V4 = 536, /* RFC 9293, section 3.7.1 */
	MSS_DEFAULT_V6 = 1220,
	WSCALE_MAX = 14, /* RFC 7323, section 2.3 */
};

/* What a client offers in the options of its SYN, from the lowest bit: TSval, MSS, syn_option. */
enum {
	OFFER_MSS_SHIFT = 32,
	OFFER_OPTIONS_SHIFT = 48,
};

#define OFFER_MALFORMED (1ULL << 63)

static __always_inline __u64 offer_pack(__u32 tsval, __u32 mss, __u32 options)
{
	if (!(options & SYN_OPTION_TIMESTAMPS))
		options = 0;
	return tsval | (__u64)(mss & 0xffff) << OFFER_MSS_SHIFT |
	       (__u64)options << OFFER_OPTIONS_SHIFT;
}

/* The options of a SYN as Linux writes them. */
struct syn_aligned {
	__be16 mss_head;
	__be16 mss;
	__be32 timestamps_head; /* behind the word for selective acknowledgements */
	__be32 tsval;
	__be32 tsecr;
	__u8 wscale[4]; /* behind a padding */
};

#define SYN_ALIGNED_MSS	       bpf_htons(0x0204)
#define SYN_ALIGNED_TIMESTAMPS bpf_htonl(0x0402080a)

static __always_inline bool offer_aligned(const struct syn_aligned *o, __u64 *offer)
{
	if (o->mss_head != SYN_ALIGNED_MSS || o->timestamps_head != SYN_ALIGNED_TIMESTAMPS ||
	    o->wscale[0] != TCP_OPTION_NOP || o->wscale[1] != TCP_OPTION_WSCALE ||
	    o->wscale[2] != TCP_OPTION_WSCALE_LENGTH || o->wscale[3] > WSCALE_MAX || !o->mss)
		return false;
	*offer = offer_pack(bpf_ntohl(o->tsval), bpf_ntohs(o->mss),
			    SYN_OPTION_TIMESTAMPS | SYN_OPTION_SACK | o->wscale[3]);
	return true;
}

struct offer_walk {
	__u8 options[TCP_OPTIONS_MAX];
	__u32 length;
	__u32 at;
	__u32 tsval;
	__u32 mss; /* 0: none was said */
	__u32 kept; /* enum syn_option */
	bool malformed;
};

static __always_inline __u32 offer_byte(const struct offer_walk *walk, __u32 at)
{
	barrier_var(at);
	return at < TCP_OPTIONS_MAX ? walk->options[at] : 0;
}

/* The option of the kind and size at the walk's place. One of another size than it has is none. */
static __always_inline void offer_take(struct offer_walk *walk, __u32 kind, __u32 size)
{
	__u32 at = walk->at;
	__u32 scale;

	if (kind == TCP_OPTION_MSS && size == TCP_OPTION_MSS_LENGTH) {
		walk->mss = offer_byte(walk, at + 2) << 8 | offer_byte(walk, at + 3);
	} else if (kind == TCP_OPTION_WSCALE && size == TCP_OPTION_WSCALE_LENGTH) {
		scale = offer_byte(walk, at + 2);
		walk->kept = (walk->kept & ~SYN_OPTION_WSCALE) |
			     (scale > WSCALE_MAX ? WSCALE_MAX : scale);
	} else if (kind == TCP_OPTION_SACK_OK && size == TCP_OPTION_SACK_OK_LENGTH) {
		walk->kept |= SYN_OPTION_SACK;
	} else if (kind == TCP_OPTION_TIMESTAMPS && size == TCP_OPTION_TIMESTAMPS_LENGTH) {
		walk->kept |= SYN_OPTION_TIMESTAMPS;
		walk->tsval = offer_byte(walk, at + 2) << 24 | offer_byte(walk, at + 3) << 16 |
			      offer_byte(walk, at + 4) << 8 | offer_byte(walk, at + 5);
	}
}

static long offer_step(__u64 step, struct offer_walk *walk)
{
	__u32 at = walk->at, kind, size;

	(void)step;
	if (at >= walk->length)
		return 1;
	kind = offer_byte(walk, at);
	if (kind == TCP_OPTION_END)
		return 1;
	if (kind == TCP_OPTION_NOP) {
		walk->at = at + 1;
		return 0;
	}
	size = offer_byte(walk, at + 1);
	if (at + 2 > walk->length || size < 2 || at + size > walk->length) {
		walk->malformed = true;
		return 1;
	}
	offer_take(walk, kind, size);
	walk->at = at + size;
	return 0;
}

/* The offer in length bytes of options at the offset. Walked once by the verifier. */
__noinline __u64 offer_search(struct xdp_md *ctx, __u32 offset, __u32 length, __u32 mss)
{
	struct offer_walk walk = { .kept = SYN_OPTION_WSCALE };

	if (length > TCP_OPTIONS_MAX)
		return OFFER_MALFORMED;
	if (length && bpf_xdp_load_bytes(ctx, offset, walk.options, length))
		return OFFER_MALFORMED;
	walk.length = length;
	bpf_loop(TCP_OPTIONS_MAX, offer_step, &walk, 0);
	if (walk.malformed)
		return OFFER_MALFORMED;
	return offer_pack(walk.tsval, walk.mss ? walk.mss : mss, walk.kept);
}

/* What is known of a SYN that is to be answered. */
struct syn {
	struct syn_flow flow;
	__u64 offer;
	__u64 slices;
	__u64 time; /* since 1970, in ns */
	__u32 slot;
	__u32 l3;
	__u32 length; /* of the frame */
	bool v4;
};

/* The sum of a SYN's words of which all are options as Linux writes them, and none is data. */
static __always_inline __u64 syn_aligned_sum(const struct tcphdr *tcp)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < SYN_ACK_LONG / 4; i++)
		sum += ((const __u32 *)tcp)[i];
	return sum;
}

/*
 * Reads the TCP header; false when its checksum is wrong, its options contradict themselves, or it
 * wants more than to begin a connection: what a backend would drop is not answered either.
 */
static __always_inline bool syn_read(struct xdp_md *ctx, const struct packet *p, struct syn *s)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l4 = p->l4, length = p->l3 + p->l3_length - l4, header;
	struct syn_aligned *aligned;
	__u64 sum = 0;
	struct tcphdr *tcp;

	barrier_var(l4);
	if (l4 > EXTENSIONS_START_MAX || length > SYN_BYTES_MAX)
		return false;
	tcp = data + l4;
	barrier_var(tcp);
	if ((void *)(tcp + 1) > end)
		return false;
	header = tcp->doff * 4;
	if (p->tcp_flags & (TCP_FLAG_FIN | TCP_FLAG_RST) || !p->source_port)
		return false;
	s->flow.isn = tcp->seq;
	aligned = (void *)(tcp + 1);
	s->offer = OFFER_MALFORMED;
	if (header == SYN_ACK_LONG && (void *)(aligned + 1) <= end &&
	    offer_aligned(aligned, &s->offer) && length == SYN_ACK_LONG)
		sum = syn_aligned_sum(tcp);
	if (s->offer & OFFER_MALFORMED)
		s->offer = offer_search(ctx, l4 + sizeof(*tcp), header - sizeof(*tcp),
					s->v4 ? MSS_DEFAULT_V4 : MSS_DEFAULT_V6);
	if (s->offer & OFFER_MALFORMED)
		return false;
	if (!sum) /* there are ports: no header's is 0 */
		sum = checksum_frame(ctx, l4, length);
	sum += bpf_htons(length) + ((__u64)IPPROTO_TCP << 8);
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)p->source.words[i] + p->destination.words[i];
	if (s->v4) /* the words that map an address count twice */
		sum += 2ULL * (0xffffffff - V4_MAPPED_PREFIX);
	return !checksum_fold(sum);
}

static __always_inline __u32 syn_own_mss(bool v4)
{
	__u32 headers = (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) +
			sizeof(struct tcphdr) + ROOM_V6;
	__u32 least = v4 ? MSS_DEFAULT_V4 : MSS_DEFAULT_V6;

	return pool.mtu > headers + least ? pool.mtu - headers : least;
}

/* Writes the TCP header of the answer; sum is that of the pseudo header. Returns its length. */
static __always_inline void write_syn_ack(__u32 *to, const struct syn *s, __u32 cookie, __u64 sum,
					  const bool timestamps)
{
	__u32 options = s->offer >> OFFER_OPTIONS_SHIFT & 0xff;
	__u32 head = timestamps ? SYN_ACK_LONG << 2 : SYN_ACK_SHORT << 2;
	__u32 words[SYN_ACK_LONG / 4] = {};

	words[0] = s->flow.vip_port | (__u32)s->flow.client_port << 16;
	words[1] = bpf_htonl(cookie);
	words[2] = bpf_htonl(bpf_ntohl(s->flow.isn) + 1);
	words[3] = head | (TCP_FLAG_SYN | TCP_FLAG_ACK) << 8 |
		   (__u32)bpf_htons(SYN_COOKIE_WINDOW) << 16;
	words[5] =
		bpf_htonl(TCP_OPTION_MSS << 24 | TCP_OPTION_MSS_LENGTH << 16 | syn_own_mss(s->v4));
	if (timestamps) {
		words[6] =
			options & SYN_OPTION_SACK ? SYN_ALIGNED_TIMESTAMPS : TCP_ALIGNED_TIMESTAMPS;
		words[7] = bpf_htonl(syn_tsval(s->slot, options, s->time));
		words[8] = bpf_htonl((__u32)s->offer);
		words[9] = (options & SYN_OPTION_WSCALE) == SYN_OPTION_WSCALE
				   ? bpf_htonl(0x01010101)
				   : bpf_htonl(0x01030300 | SYN_COOKIE_WSCALE);
	}
#pragma unroll
	for (int i = 0; i < SYN_ACK_LONG / 4; i++)
		sum += words[i];
	words[4] = checksum_fold(sum);
#pragma unroll
	for (int i = 0; i < SYN_ACK_LONG / 4; i++)
		if (timestamps || i < SYN_ACK_SHORT / 4)
			to[i] = words[i];
}

/* The IP header of an answer with so many bytes behind it; returns the pseudo header's sum. */
static __always_inline __u64 write_syn_ip(__u32 *ip, const struct syn *s, __u32 length)
{
	const __u32 *from = s->flow.vip.words, *to = s->flow.client.words;
	__u64 sum = bpf_htons(length) + ((__u64)IPPROTO_TCP << 8);

	if (s->v4) {
		__u32 head = 0x45 | (__u32)bpf_htons(length + sizeof(struct iphdr)) << 16;
		__u32 rest = REPLY_TTL | IPPROTO_TCP << 8, fragment = bpf_htonl(0x4000);

		sum += (__u64)from[3] + to[3];
		ip[0] = head;
		ip[1] = fragment;
		ip[2] = rest | checksum_fold((__u64)head + fragment + rest + from[3] + to[3]) << 16;
		ip[3] = from[3];
		ip[4] = to[3];
		return sum;
	}
	ip[0] = bpf_htonl(6U << 28);
	ip[1] = bpf_htons(length) | IPPROTO_TCP << 16 | (__u32)REPLY_TTL << 24;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		ip[2 + i] = from[i];
		ip[6 + i] = to[i];
		sum += (__u64)from[i] + to[i];
	}
	return sum;
}

/* Makes of the SYN its answer. From the first change on it is dropped, not passed. */
static __always_inline enum verdict syn_ack(struct xdp_md *ctx, struct syn *s, __u32 cookie,
					    const bool v4, const bool timestamps)
{
	const __u32 header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const __u32 tcp = timestamps ? SYN_ACK_LONG : SYN_ACK_SHORT;
	__u32 l3 = s->l3, length = l3 + header + tcp;
	struct frame_head head;
	void *data, *end, *to;
	__u64 sum;

	if (length != s->length && bpf_xdp_adjust_tail(ctx, (int)length - (int)s->length))
		return VERDICT_DROP_NO_HEADROOM;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(head.macs) > end)
		return VERDICT_DROP_NO_HEADROOM;
	__builtin_memcpy(head.macs, data, sizeof(head.macs));
	frame_head_turn(&head);
	__builtin_memcpy(data, head.macs, sizeof(head.macs));
	barrier_var(l3);
	if (l3 > ETH_HLEN_MAX)
		return VERDICT_DROP_NO_HEADROOM;
	to = data + l3;
	barrier_var(to);
	if (to + header + tcp > end)
		return VERDICT_DROP_NO_HEADROOM;
	sum = write_syn_ip(to, s, tcp);
	write_syn_ack(to + header, s, cookie, sum, timestamps);
	return VERDICT_REPLY_SYN;
}

/* The answer, by family and length: each is written to constant places. */
__noinline int syn_answer(struct xdp_md *ctx, struct syn *s, __u32 cookie)
{
	if (!s)
		return VERDICT_DROP_SYN;
	if (s->offer >> OFFER_OPTIONS_SHIFT & SYN_OPTION_TIMESTAMPS) {
		if (s->v4)
			return syn_ack(ctx, s, cookie, true, true);
		return syn_ack(ctx, s, cookie, false, true);
	}
	if (s->v4)
		return syn_ack(ctx, s, cookie, true, false);
	return syn_ack(ctx, s, cookie, false, false);
}

/* Finds the backend that the ACK will find. */
static __always_inline enum verdict syn_choose(struct work *w)
{
	w->endpoint_port = w->packet.destination_port;
	w->endpoint = endpoint_of(&w->packet.destination, w->packet.protocol, &w->endpoint_port);
	if (!w->endpoint)
		return VERDICT_DROP_SYN; /* it was there a moment ago */
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	w->hash = flowhash(&w->packet, &pool.hash_key);
	w->slot = bucket_slot(w->slices, bucket_hash(w));
	if (!backend_at(w->slices, w->slot))
		return VERDICT_DROP_NO_BACKEND;
	return VERDICT_NONE;
}

static __always_inline enum verdict answer_with_cookie(struct xdp_md *ctx, struct work *w)
{
	const struct packet *p = &w->packet;
	struct syn s = {
		.flow.client = p->source,
		.flow.vip = p->destination,
		.flow.client_port = p->source_port,
		.flow.vip_port = p->destination_port,
		.slot = w->slot,
		.l3 = p->l3,
		.length = p->limit,
		.v4 = p->ethertype == bpf_htons(ETH_P_IP),
	};
	__u32 row = syn_secrets.makes & (SYN_COOKIE_SECRETS - 1), cookie;
	struct syn_secret secret = syn_secrets.rows[row];

	s.time = bpf_ktime_get_coarse_ns() + syn_secrets.clock;
	if (!secret.id || !address_is_host(&p->source) ||
	    address_equal(&p->source, &p->destination))
		return VERDICT_DROP_SYN;
	if (!syn_read(ctx, p, &s))
		return VERDICT_DROP_SYN;
	cookie = syn_cookie_make(&secret, &s.flow, s.offer >> OFFER_MSS_SHIFT & 0xffff,
				 s.offer >> OFFER_OPTIONS_SHIFT & 0xff, s.time);
	return syn_answer(ctx, &s, cookie);
}

/* Parses as the fast path does where that will do, which is nearly always. */
static __always_inline bool syn_parse(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (parse_ethernet(data, end, p) == PARSED_OK && parse_ip(data, end, p) == PARSED_OK &&
	    packet_is_whole(p))
		return parse_transport(data, end, p) == PARSED_OK;
	return parse_aside(ctx, p) == PARSED_OK && parse_transport_aside(data, end, p) == PARSED_OK;
}

/* A SYN that the mux is to answer. A function of its own: mux_look has no stack left. */
__noinline int answer_syn(struct xdp_md *ctx)
{
	enum verdict verdict;
	struct work w;

	w.endpoint = NULL;
	if (!syn_parse(ctx, &w.packet))
		return VERDICT_DROP_SYN;
	verdict = syn_choose(&w);
	if (!verdict)
		verdict = answer_with_cookie(ctx, &w);
	if (w.endpoint) {
		syn_count(&w, verdict == VERDICT_REPLY_SYN);
		if (verdict == VERDICT_REPLY_SYN && w.endpoint->flags & ENDPOINT_WATCHED)
			syn_try(w.endpoint->id, w.hash, true);
	}
	return verdict;
}
