// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The algorithm of MPLB's mux (HotMiddlebox 2016, Figure 6), of IPv4: keys of Multipath TCP are
 * chosen for the server. An experiment, which no program of Weir's shares: the mux draws a key for
 * each SYN with MP_CAPABLE, and the token that follows from it names the bucket. Tokens are those
 * of RFC 8684, so by SHA-256 in the place of SHA-1, and a client's SYN has no key of its own.
 */
#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "net/sha256.h"
#include "net/siphash.h"
#include "net/tcp.h"
#include "net/xdp/encap.h"

enum {
	KEYS_BUCKETS = 65536,
	OPTION_MULTIPATH = 30,
	SUBTYPE_CAPABLE = 0,
	SUBTYPE_JOIN = 1,
	TOKEN_AT = 4, /* in the option of a join */
	OUTER = 20,
};

#include "adopt.h"

volatile const __u64 cfg_secret[2];
volatile const __u32 cfg_flows = 1;
volatile const bool cfg_keep; /* leave the packet as it left, to be looked at */

__u32 flow; /* the next one: the low word of its source */

/* The paper's srv: the server of each bucket. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KEYS_BUCKETS);
	__type(key, __u32);
	__type(value, __be32);
} servers SEC(".maps");

/* What goes to the server behind the outer header: the connection's key, and who redirects. */
struct hint {
	__be32 key[2];
	__be32 redirect;
};

struct syn {
	struct ethhdr eth;
	struct iphdr ip;
	struct tcphdr tcp;
	__u8 options[TCP_OPTIONS_MAX];
} __attribute__((packed));

static __always_inline struct syn *syn_at(struct xdp_md *ctx)
{
	struct syn *s = (void *)(long)ctx->data;

	if ((void *)(s + 1) > (void *)(long)ctx->data_end)
		return NULL;
	if (s->eth.h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)&s->ip != 0x45 ||
	    s->ip.protocol != IPPROTO_TCP || !s->tcp.syn)
		return NULL;
	return s;
}

/* The five-tuple under the secret, 64 bits: also the key of a connection, in its own domain. */
static __always_inline __u64 prf(const struct syn *s, __u64 domain)
{
	const __u64 secret[2] = { cfg_secret[0], cfg_secret[1] ^ domain };
	struct sip sip = sip_begin(secret);

	sip_word(&sip, (__u64)s->ip.saddr << 32 | s->ip.daddr);
	sip_word(&sip, (__u64)s->tcp.source << 32 | (__u64)s->tcp.dest << 16 | IPPROTO_TCP);
	return sip_end(&sip);
}

static __always_inline __be32 server_of(__u32 hash)
{
	__u32 bucket = hash % KEYS_BUCKETS;
	const __be32 *server = bpf_map_lookup_elem(&servers, &bucket);

	return server ? *server : 0;
}

/* Where the option of Multipath TCP begins in the SYN's; 0: nowhere, for SYNs begin with the MSS.
 */
static __always_inline __u32 multipath_at(const __u8 *options)
{
	__u32 at = 0;

	for (int i = 0; i < TCP_OPTIONS_MAX; i++) {
		__u8 kind, size = 1;

		barrier_var(at);
		if (at > TCP_OPTIONS_MAX - 4)
			return 0;
		kind = options[at];
		if (kind == OPTION_MULTIPATH)
			return at;
		if (kind != TCP_OPTION_NOP)
			size = options[at + 1];
		if (kind == TCP_OPTION_END || !size)
			return 0;
		at += size;
	}
	return 0;
}

/*
 * Puts the outer header before the packet, and the hint between both if there is one. Returns how
 * much that is; 0: it failed.
 */
static __always_inline int encapsulate(struct xdp_md *ctx, const struct syn *s, __be32 server,
				       const struct hint *hint)
{
	const __u32 growth = OUTER + (hint ? sizeof(*hint) : 0);
	void *data, *end;
	__u32 *to, length;
	__u64 sum;

	length = bpf_ntohs(s->ip.tot_len) + growth;
	if (bpf_xdp_adjust_head(ctx, -(int)growth))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	to = data + sizeof(struct ethhdr);
	if ((void *)to + OUTER + sizeof(*hint) > end)
		return 0;
	*(__u64 *)data = 0x0202020202010101ULL;
	*(__u32 *)(data + 8) = 0x0b0b0b0b;
	*(__u16 *)(data + 12) = bpf_htons(ETH_P_IP);
	to[0] = 0x45 | (__u32)bpf_htons(length) << 16;
	to[1] = 0;
	to[3] = bpf_htonl(0xac100001);
	to[4] = server;
	sum = (__u64)to[0] + (64 | IPPROTO_IPIP << 8) + to[3] + server;
	to[2] = 64 | IPPROTO_IPIP << 8 | checksum_fold(sum) << 16;
	if (hint)
		__builtin_memcpy(to + OUTER / 4, hint, sizeof(*hint));
	return growth;
}

/* Nothing is chosen: what parsing, the look-up of one bucket and the outer header cost. */
static __always_inline int choose_none(struct xdp_md *ctx, struct syn *s)
{
	return encapsulate(ctx, s, server_of(s->tcp.source), NULL);
}

static __always_inline int choose_tuple(struct xdp_md *ctx, struct syn *s)
{
	return encapsulate(ctx, s, server_of(prf(s, 0)), NULL);
}

static __always_inline int choose_key(struct xdp_md *ctx, struct syn *s)
{
	__u8 options[TCP_OPTIONS_MAX];
	struct hint hint;
	__u32 token, at;
	__u64 key;

	__builtin_memcpy(options, s->options, sizeof(options));
	at = multipath_at(options);
	barrier_var(at);
	if (!at || at > TCP_OPTIONS_MAX - 4 || options[at + 2] >> 4 != SUBTYPE_CAPABLE)
		return choose_tuple(ctx, s);
	key = prf(s, 1);
	hint.key[0] = bpf_htonl(key >> 32);
	hint.key[1] = bpf_htonl((__u32)key);
	hint.redirect = server_of(prf(s, 0));
	token = sha256_first(key >> 32, (__u32)key);
	return encapsulate(ctx, s, server_of(token), &hint);
}

static __always_inline int choose_token(struct xdp_md *ctx, struct syn *s)
{
	__u8 options[TCP_OPTIONS_MAX];
	struct hint hint = {};
	__be32 token;
	__u32 at;

	__builtin_memcpy(options, s->options, sizeof(options));
	at = multipath_at(options);
	barrier_var(at);
	if (!at || at > TCP_OPTIONS_MAX - 12 || options[at + 2] >> 4 != SUBTYPE_JOIN)
		return choose_tuple(ctx, s);
	__builtin_memcpy(&token, options + at + TOKEN_AT, sizeof(token));
	hint.redirect = server_of(prf(s, 0));
	return encapsulate(ctx, s, server_of(bpf_ntohl(token)), &hint);
}

/* Runs on the next flow's packet, which the run before has left as it came. */
static __always_inline int measured(struct xdp_md *ctx,
				    int (*choose)(struct xdp_md *, struct syn *))
{
	struct syn *s = (void *)(long)ctx->data;
	int growth;

	if ((void *)(s + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*(__u64 *)s = 0x0a02020000000002ULL;
	*((__u32 *)s + 2) = 0x0a0a0a0a;
	s->eth.h_proto = bpf_htons(ETH_P_IP);
	s->ip.saddr = (s->ip.saddr & bpf_htonl(0xff000000)) | bpf_htonl(flow);
	flow = flow + 1 < cfg_flows ? flow + 1 : 0;
	s = syn_at(ctx);
	growth = s ? choose(ctx, s) : 0;
	if (!growth || (!cfg_keep && bpf_xdp_adjust_head(ctx, growth)))
		return XDP_ABORTED;
	return XDP_TX;
}

SEC("xdp")
int keys_floor(struct xdp_md *ctx)
{
	return measured(ctx, choose_none);
}

SEC("xdp")
int keys_tuple(struct xdp_md *ctx)
{
	return measured(ctx, choose_tuple);
}

SEC("xdp")
int keys_capable(struct xdp_md *ctx)
{
	return measured(ctx, choose_key);
}

SEC("xdp")
int keys_join(struct xdp_md *ctx)
{
	return measured(ctx, choose_token);
}

/* Egress of the server's interface. */
SEC("tcx/egress")
int keys_replace(struct __sk_buff *skb)
{
	const __u64 secret[2] = { cfg_secret[0], cfg_secret[1] };

	adopt(skb, secret);
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
