/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers a SYN in the name of a VIP by a SYN-ACK with a cookie, back the way it came. Nothing is
 * remembered of it. docs/design/syn-cookies.md has its layout.
 */
#pragma once

#include "net/xdp/checksum.h"
#include "net/xdp/encap.h"
#include "mux/syn_ctx.h"
#include "net/xdp/frame.h"
#include "mux/slowpath/reply.h"
#include "mux/syn_cookie.h"
#include "net/syncookie.h"
#include "net/tcp.h"

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
	__be32 mss; /* in the lower half */
	__be32 timestamps_head; /* behind the word for selective acknowledgements */
	__be32 tsval;
	__be32 tsecr;
	__be32 wscale; /* in the lowest byte, behind a padding */
};

#define SYN_ALIGNED_MSS	       0x02040000U
#define SYN_ALIGNED_WSCALE     0x01030300U
#define SYN_ALIGNED_TIMESTAMPS bpf_htonl(0x0402080a)

static __always_inline bool offer_aligned(const struct syn_aligned *o, __u64 *offer)
{
	__u32 mss = bpf_ntohl(o->mss) - SYN_ALIGNED_MSS;
	__u32 scale = bpf_ntohl(o->wscale) - SYN_ALIGNED_WSCALE;

	if (!mss || mss > 0xffff || scale > WSCALE_MAX ||
	    o->timestamps_head != SYN_ALIGNED_TIMESTAMPS)
		return false;
	*offer = offer_pack(bpf_ntohl(o->tsval), mss,
			    SYN_OPTION_TIMESTAMPS | SYN_OPTION_SACK | scale);
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

/* What is read of a SYN. */
struct syn {
	struct syn_flow flow;
	__u64 offer;
	__u64 addresses; /* their sum, for checksums */
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

/* Both halves as a whole: half the loads, and the hash wants them so. Returns their words' sum. */
static __always_inline __u64 syn_read_v6(struct address *to, const struct in6_addr *from)
{
	const __u64 *halves = (const __u64 *)from;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		__u64 half = halves[i];

		to->words[2 * i] = half;
		to->words[2 * i + 1] = half >> 32;
		sum += (__u32)half + (half >> 32);
	}
	return sum;
}

static __always_inline bool syn_read_addresses(void *ip, void *end, struct syn *s, const bool v4)
{
	struct iphdr *ip4 = ip;
	struct ipv6hdr *ip6 = ip;

	if (v4) {
		if ((void *)(ip4 + 1) > end)
			return false;
		address_from_v4(&s->flow.client, ip4->saddr);
		address_from_v4(&s->flow.vip, ip4->daddr);
		s->addresses = (__u64)ip4->saddr + ip4->daddr;
		return true;
	}
	if ((void *)(ip6 + 1) > end)
		return false;
	s->addresses =
		syn_read_v6(&s->flow.client, &ip6->saddr) + syn_read_v6(&s->flow.vip, &ip6->daddr);
	return true;
}

/*
 * Reads the headers; false when the checksum is wrong, the options contradict themselves, or the
 * SYN wants more than to begin a connection: what a backend would drop is not answered either.
 */
static __always_inline bool syn_read(struct xdp_md *ctx, const struct syn_ctx *h, struct syn *s,
				     const bool v4)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = h->l3, l4 = h->l4, length = h->length, header;
	struct syn_aligned *aligned;
	__u64 sum = 0;
	struct tcphdr *tcp;

	barrier_var(l3);
	barrier_var(l4);
	if (l3 > EXTENSIONS_START_MAX || l4 > EXTENSIONS_START_MAX || length > SYN_BYTES_MAX)
		return false;
	if (!syn_read_addresses(data + l3, end, s, v4))
		return false;
	tcp = data + l4;
	barrier_var(tcp);
	if ((void *)(tcp + 1) > end)
		return false;
	header = tcp->doff * 4;
	s->flow.client_port = tcp->source;
	s->flow.vip_port = tcp->dest;
	s->flow.isn = tcp->seq;
	if (tcp->fin || tcp->rst || !tcp->source)
		return false;
	aligned = (void *)(tcp + 1);
	s->offer = OFFER_MALFORMED;
	if (header == SYN_ACK_LONG && (void *)(aligned + 1) <= end &&
	    offer_aligned(aligned, &s->offer) && length == SYN_ACK_LONG)
		sum = syn_aligned_sum(tcp);
	if (s->offer & OFFER_MALFORMED)
		s->offer = offer_search(ctx, l4 + sizeof(*tcp), header - sizeof(*tcp),
					v4 ? MSS_DEFAULT_V4 : MSS_DEFAULT_V6);
	if (s->offer & OFFER_MALFORMED)
		return false;
	if (!sum) /* there are ports: no header's is 0 */
		sum = checksum_frame(ctx, l4, length);
	sum += bpf_htons(length) + ((__u64)IPPROTO_TCP << 8) + s->addresses;
	return !checksum_fold(sum);
}

static __always_inline __u32 syn_own_mss(const bool v4)
{
	const __u32 least = v4 ? MSS_DEFAULT_V4 : MSS_DEFAULT_V6;
	__u32 mss = v4 ? settings.mss4 : settings.mss6;

	return mss > least ? mss : least;
}

/* What a SYN-ACK says. */
struct syn_ack {
	__u32 cookie;
	__u32 tsval;
	__u32 mss;
};

/* Writes the TCP header of the answer; sum is that of the pseudo header. */
static __always_inline void write_syn_ack(__u32 *to, const struct syn *s, const struct syn_ack *a,
					  __u64 sum, const bool timestamps)
{
	__u32 options = s->offer >> OFFER_OPTIONS_SHIFT & 0xff;
	__u32 head = timestamps ? SYN_ACK_LONG << 2 : SYN_ACK_SHORT << 2;
	__u32 words[SYN_ACK_LONG / 4] = {};

	words[0] = s->flow.vip_port | (__u32)s->flow.client_port << 16;
	words[1] = bpf_htonl(a->cookie);
	words[2] = bpf_htonl(bpf_ntohl(s->flow.isn) + 1);
	words[3] = head | (TCP_FLAG_SYN | TCP_FLAG_ACK) << 8 |
		   (__u32)bpf_htons(SYN_COOKIE_WINDOW) << 16;
	words[5] = bpf_htonl(SYN_ALIGNED_MSS | a->mss);
	if (timestamps) {
		words[6] =
			options & SYN_OPTION_SACK ? SYN_ALIGNED_TIMESTAMPS : TCP_ALIGNED_TIMESTAMPS;
		words[7] = bpf_htonl(a->tsval);
		words[8] = bpf_htonl((__u32)s->offer);
		words[9] = (options & SYN_OPTION_WSCALE) == SYN_OPTION_WSCALE
				   ? bpf_htonl(0x01010101)
				   : bpf_htonl(SYN_ALIGNED_WSCALE | SYN_COOKIE_WSCALE);
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
static __always_inline __u64 write_syn_ip(__u32 *ip, const struct syn *s, const __u32 length,
					  const bool v4)
{
	const __u32 *from = s->flow.vip.words, *to = s->flow.client.words;

	if (v4) {
		__u32 head = 0x45 | (__u32)bpf_htons(length + sizeof(struct iphdr)) << 16;
		__u32 rest = REPLY_TTL | IPPROTO_TCP << 8, fragment = bpf_htonl(0x4000);

		ip[0] = head;
		ip[1] = fragment;
		ip[2] = rest | checksum_fold(s->addresses + head + fragment + rest) << 16;
		ip[3] = from[3];
		ip[4] = to[3];
	} else {
		ip[0] = bpf_htonl(6U << 28);
		ip[1] = bpf_htons(length) | IPPROTO_TCP << 16 | (__u32)REPLY_TTL << 24;
#pragma unroll
		for (int i = 0; i < 4; i += 2) {
			*(__u64 *)(ip + 2 + i) = from[i] | (__u64)from[i + 1] << 32;
			*(__u64 *)(ip + 6 + i) = to[i] | (__u64)to[i + 1] << 32;
		}
	}
	return s->addresses + bpf_htons(length) + ((__u64)IPPROTO_TCP << 8);
}

/* Makes of the SYN its answer. From the first change on it is dropped, not passed. */
static __always_inline enum verdict write_answer(struct xdp_md *ctx, const struct syn_ctx *h,
						 const struct syn *s, const struct syn_ack *a,
						 const bool v4, const bool timestamps)
{
	const __u32 header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const __u32 tcp = timestamps ? SYN_ACK_LONG : SYN_ACK_SHORT;
	__u32 l3 = h->l3, length = l3 + header + tcp;
	void *data, *end, *to;
	__u64 sum;

	if (length != h->limit && bpf_xdp_adjust_tail(ctx, (int)length - (int)h->limit))
		return VERDICT_DROP_NO_HEADROOM;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	barrier_var(l3);
	if (l3 < sizeof(struct ethhdr) || l3 > ETH_HLEN_MAX)
		return VERDICT_DROP_NO_HEADROOM;
	to = data + l3;
	barrier_var(to);
	if (to + header + tcp > end || data + sizeof(struct ethhdr) > end)
		return VERDICT_DROP_NO_HEADROOM;
	frame_head_turn(data);
	sum = write_syn_ip(to, s, tcp, v4);
	write_syn_ack(to + header, s, a, sum, timestamps);
	return VERDICT_REPLY_SYN;
}

/* The answer by family: what it is made of then stands in constant places. */
static __always_inline enum verdict answer_family(struct xdp_md *ctx, struct syn_ctx *h,
						  const bool v4)
{
	__u32 row = syn_secrets.makes & (SYN_COOKIE_SECRETS - 1), options;
	const struct syn_secret *secret = &syn_secrets.rows[row];
	__u64 time = syn_coarse_ns(h) + syn_secrets.clock;
	struct syn_ack a;
	struct syn s;

	s.flow.vni = 0;
	if (!secret->id || !syn_read(ctx, h, &s, v4))
		return VERDICT_DROP_SYN;
	options = s.offer >> OFFER_OPTIONS_SHIFT & 0xff;
	a.cookie = syn_cookie_make(secret, &s.flow, s.offer >> OFFER_MSS_SHIFT & 0xffff, options,
				   time);
	a.mss = syn_own_mss(v4);
	if (!(options & SYN_OPTION_TIMESTAMPS))
		return write_answer(ctx, h, &s, &a, v4, false);
	a.tsval = syn_tsval(h->slot, options, time);
	return write_answer(ctx, h, &s, &a, v4, true);
}

/* A SYN that was handed over. */
static __always_inline enum verdict answer_syn(struct xdp_md *ctx, struct syn_ctx *h)
{
	enum verdict verdict = h->v4 ? answer_family(ctx, h, true) : answer_family(ctx, h, false);

	if (verdict == VERDICT_REPLY_SYN)
		syn_count_answer(h->id);
	return verdict;
}

/* The same as a function of its own: mux_trace has no stack left. */
__noinline int answer_syn_parsed(struct xdp_md *ctx)
{
	struct syn_ctx *h = syn_ctx();

	return h ? answer_syn(ctx, h) : VERDICT_DROP_SYN;
}
