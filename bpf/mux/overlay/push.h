/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sends a client's segment to a backend's host: VXLAN again, with the FBT as the first TCP option.
 * The head of the frame moves, options and payload stay where they are. All headers are put
 * together in registers.
 */
#pragma once

#include "mux/ctx.h"
#include "mux/overlay/maps.h"
#include "net/fbt.h"
#include "net/tcp.h"
#include "net/vxlan.h"
#include "net/xdp/checksum.h"
#include "net/xdp/encap.h"

/* What is known of a packet in VXLAN: too much for the stack. */
struct vxlan_ctx {
	struct packet outer;
	struct packet quoted; /* by an ICMP error */
	struct fbt_content says;
	__u32 vni;
	__u32 attachment;
	__u32 routed; /* the byte behind the VNI: VXLAN_ROUTE, VXLAN_ANSWER, or 0 */
	__u32 agent; /* the client's host has one */
	__u32 attached; /* flags of the attachment */
	struct address service; /* of an attachment with flags */
	/* Of what is sent. */
	__be16 ethertype; /* of the packet inside */
	__u8 next; /* that its IP header says */
	bool numbered; /* TCP in one piece: its sequence number is known */
	enum verdict forward; /* what it counts as, if it is no whole packet of TCP or UDP */
	__u32 slot; /* of a later fragment: where the first one went; 0: none */
	__u16 length; /* of UDP, with the FBT */
	__u32 inner_l3;
	__u64 hash;
	__u64 sampled; /* of a SYN that is answered: its handshake is followed */
	struct address tunnel;
	__u32 macs[3];
	/* The headers inside, which are written anew, as the CPU loads them. */
	__u32 inner_macs[3];
	__u32 ip[10];
	__u32 tcp[5];
	__u32 fbt[4]; /* or the bypass header */
	struct fbt_segment segment; /* that has it */
	/* Between the outer IP header and the packet inside. */
	__u32 udp[2];
	__u32 vxlan[2];
};

/* Of the packet that this CPU handles. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vxlan_ctx);
} vxlan_ctxs SEC(".maps");

/* The UDP source port: flows spread over links by it. */
static __always_inline __be16 vxlan_source_port(__u64 hash)
{
	return bpf_htons(0xc000 | (hash >> 32 & 0x3fff));
}

/* Loads the headers of the packet inside: the transport's, too, if that is TCP. False: there is not
 * all of them. */
static __always_inline bool inside_load(struct xdp_md *ctx, __u32 l3, struct vxlan_ctx *v,
					const bool inner4, const bool tcp)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u32 words = (inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) / 4;
	const __u32 transport = tcp ? sizeof(struct tcphdr) : 0;
	__u32 at = l3 - sizeof(struct ethhdr), *from;

	barrier_var(at);
	if (at > EXTENSIONS_START_MAX)
		return false;
	from = data + at;
	if ((void *)from + sizeof(struct ethhdr) + 4 * words + transport > end)
		return false;
#pragma unroll
	for (__u32 i = 0; i < 3; i++)
		v->inner_macs[i] = from[i];
	from = (void *)from + sizeof(struct ethhdr);
#pragma unroll
	for (__u32 i = 0; i < words; i++)
		v->ip[i] = from[i];
	from += words;
#pragma unroll
	for (__u32 i = 0; i < transport / 4; i++)
		v->tcp[i] = from[i];
	return true;
}

/* The key of the backend's host to make FBTs with; NULL: there is none. */
static __always_inline const struct fbt_key *backend_key(const struct backend *backend)
{
	__u32 host = backend->flags >> BACKEND_HOST_SHIFT;
	const struct fbt_keys *keys = bpf_map_lookup_elem(&host_keys, &host);
	const struct fbt_key *key;

	if (!host || !keys)
		return NULL;
	key = &keys->rows[overlay.makes & (FBT_KEYS - 1)];
	return key->id && key->id == overlay.makes ? key : NULL;
}

/* The FBT. False: there is no key. */
static __always_inline bool inside_fbt(const struct mux_ctx *w, struct vxlan_ctx *v)
{
	const struct packet *p = &w->packet;
	const struct fbt_key *key = backend_key(w->backend);
	struct fbt_segment segment = {
		.outer = v->tunnel,
		.client = p->source,
		.vip = p->destination,
		.client_port = p->source_port,
		.vip_port = p->destination_port,
		.seq = v->tcp[1],
	};
	struct fbt fbt;

	if (!key)
		return false;
	fbt_write(&fbt, key, &segment, &v->says);
	__builtin_memcpy(v->fbt, &fbt, sizeof(fbt));
	return true;
}

/* Lengths and checksums with the FBT. */
static __always_inline void inside_grow(const struct packet *p, struct vxlan_ctx *v)
{
	__u32 segment = p->l3_length - (p->l4 - p->l3);
	__u32 total = p->l3_length + sizeof(struct fbt);
	__u32 head = v->tcp[3], grown = head + (sizeof(struct fbt) / 4 << 4);
	__u64 sum = (__u64)(__u16)~head + (__u16)~bpf_htons(segment) + (__u16)~v->tcp[4];

	sum += (__u16)grown + (__u64)bpf_htons(segment + sizeof(struct fbt));
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += v->fbt[i];
	v->tcp[3] = grown;
	v->tcp[4] = (v->tcp[4] & 0xffff0000) | checksum_fold(sum);
	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		__u16 check = checksum_replace(v->ip[2] >> 16, v->ip[0] >> 16, bpf_htons(total));

		v->ip[2] = (v->ip[2] & 0xffff) | (__u32)check << 16;
		v->ip[0] = (v->ip[0] & 0xffff) | (__u32)bpf_htons(total) << 16;
	} else {
		v->ip[1] = (v->ip[1] & 0xffff0000) | bpf_htons(total - sizeof(struct ipv6hdr));
	}
}

/*
 * UDP's checksum over IPv6, where none is not allowed: of the headers, and of a segment whose own
 * checksum is right, which tells the sum of all of it.
 */
static __always_inline __u32 vxlan_checksum(const struct vxlan_ctx *v, const struct address *from,
					    const bool inner4)
{
	const __u32 words = (inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) / 4;
	const __u32 first = inner4 ? 3 : 2; /* word of the inner addresses */
	const __u32 segment = v->length - sizeof(struct vxlan_front) - 4 * words;
	__u64 sum = (__u64)v->udp[0] + v->udp[1] + bpf_htons(v->length) + (IPPROTO_UDP << 8);
	__u64 pseudo = (__u64)bpf_htons(segment) + (IPPROTO_TCP << 8);
	__u32 check;

	sum += (__u64)v->vxlan[0] + v->vxlan[1] + v->ethertype;
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)from->words[i] + v->tunnel.words[i];
#pragma unroll
	for (int i = 0; i < 3; i++)
		sum += v->inner_macs[i];
#pragma unroll
	for (__u32 i = 0; i < words; i++) {
		sum += v->ip[i];
		pseudo += i < first ? 0 : v->ip[i];
	}
	check = checksum_fold(sum + checksum_fold(pseudo));
	return check ? check : 0xffff;
}

/* UDP and VXLAN, from an address of the mux. */
static __always_inline void vxlan_fill(struct vxlan_ctx *v, const struct address *from,
				       const bool v4, const bool inner4)
{
	struct vxlan header;

	vxlan_write(&header, v->vni, false);
	__builtin_memcpy(v->vxlan, &header, sizeof(header));
	v->udp[0] = vxlan_source_port(v->hash) | (__u32)bpf_htons(VXLAN_PORT) << 16;
	v->udp[1] = bpf_htons(v->length);
	if (!v4)
		v->udp[1] |= vxlan_checksum(v, from, inner4) << 16;
}

/* Writes the outer IP header. Congestion that was met so far stays told (RFC 6040). */
static __always_inline void write_vxlan_ip(__u32 *to, const struct vxlan_ctx *v,
					   const struct address *source, const bool v4)
{
	__u32 tos = v->outer.tos, length = v->length;

	if (v4) {
		__be32 from = source->words[3], at = v->tunnel.words[3];
		__u32 rest = OUTER_TTL | IPPROTO_UDP << 8, fragment = OUTER_DONT_FRAGMENT << 16;
		__u32 head = 0x45 | tos << 8;

		head |= (__u32)bpf_htons(length + sizeof(struct iphdr)) << 16;
		to[0] = head;
		to[1] = fragment;
		to[2] = rest | checksum_fold((__u64)head + fragment + rest + from + at) << 16;
		to[3] = from;
		to[4] = at;
		return;
	}
	to[0] = bpf_htonl(6U << 28 | tos << 20 | ((__u32)v->hash & OUTER_LABEL_MASK));
	to[1] = bpf_htons(length) | IPPROTO_UDP << 16 | (__u32)OUTER_TTL << 24;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		to[2 + i] = source->words[i];
		to[6 + i] = v->tunnel.words[i];
	}
}

/* Writes UDP, VXLAN, and the head of the packet inside. Returns where that ends. */
static __always_inline __u32 *write_vxlan(__u32 *to, const struct vxlan_ctx *v, const bool inner4,
					  const bool tcp)
{
	const __u32 words = (inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) / 4;

	to[0] = v->udp[0];
	to[1] = v->udp[1];
	to[2] = v->vxlan[0];
	to[3] = v->vxlan[1];
#pragma unroll
	for (int i = 0; i < 3; i++)
		to[4 + i] = v->inner_macs[i];
	*(__be16 *)(to + 7) = v->ethertype;
	to = (void *)(to + 7) + sizeof(__be16);
#pragma unroll
	for (__u32 i = 0; i < words; i++)
		to[i] = v->ip[i];
	to += words;
	if (tcp) {
#pragma unroll
		for (int i = 0; i < 5; i++)
			to[i] = v->tcp[i];
		to += 5;
	}
	return to;
}

/* Moves the head of the frame and writes it anew. False: there is no room. */
static __always_inline bool vxlan_write_head(struct xdp_md *ctx, struct vxlan_ctx *v, const bool v4,
					     const bool inner4, const bool tcp)
{
	const __u32 ip = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const __u32 bytes = ip + sizeof(struct vxlan_front) + (tcp ? sizeof(struct tcphdr) : 0) +
			    sizeof(struct fbt) +
			    (inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	__u32 l3 = v->outer.l3, *behind;
	void *to;

	vxlan_fill(v, &settings.source6, v4 || !tcp, inner4);
	to = move_head(ctx, (int)(v->outer.l4 - l3) - (int)(ip + sizeof(struct fbt)), l3, v->macs,
		       v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6), bytes);
	if (!to)
		return false;
	write_vxlan_ip(to, v, v4 ? &settings.source4 : &settings.source6, v4);
	behind = write_vxlan(to + ip, v, inner4, tcp);
#pragma unroll
	for (int i = 0; i < 4; i++)
		behind[i] = v->fbt[i]; /* the FBT, or the bypass header */
	return true;
}

/* With the FBT. */
static __always_inline enum verdict push_fbt(struct xdp_md *ctx, const struct mux_ctx *w,
					     struct vxlan_ctx *v, const bool inner4)
{
	bool sent;

	if (!inside_load(ctx, w->packet.l3, v, inner4, true))
		return VERDICT_DROP_VXLAN;
	if (!inside_fbt(w, v))
		return VERDICT_DROP_NO_HOST_KEY;
	inside_grow(&w->packet, v);

	/* From here on the packet is changed. */
	sent = w->backend->flags & BACKEND_V4 ? vxlan_write_head(ctx, v, true, inner4, true)
					      : vxlan_write_head(ctx, v, false, inner4, true);
	return sent ? VERDICT_NONE : VERDICT_DROP_NO_HEADROOM;
}

/* All that is known before the packet is changed. */
static __always_inline enum verdict push_prepare(const struct mux_ctx *w, struct vxlan_ctx *v)
{
	const struct backend *backend = w->backend;
	const struct packet *p = &w->packet;
	bool v4 = backend->flags & BACKEND_V4, inner4 = p->ethertype == bpf_htons(ETH_P_IP);
	struct next_hop *hop = bpf_map_lookup_elem(&next_hops, &backend->next_hop);
	__u32 length = p->l3_length + sizeof(struct fbt) + sizeof(struct vxlan_front);

	if (!backend->next_hop || !hop)
		return VERDICT_DROP_NO_NEXT_HOP;
	if (v4 ? !settings.source4.words[3] : !address_is_set(&settings.source6))
		return VERDICT_DROP_NO_SOURCE;
	/* Behind options of IP its place would be hard to find. */
	if (inner4 && p->l4 - p->l3 != sizeof(struct iphdr))
		return VERDICT_DROP_FBT_NO_ROOM;
	if (length + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) > settings.mtu)
		return v->outer.l3_length > settings.mtu ? VERDICT_DROP_MERGED
							 : VERDICT_DROP_TOO_BIG;
	v->ethertype = p->ethertype;
	v->length = length;
	v->hash = w->hash;
	v->tunnel = backend->tunnel;
	__builtin_memcpy(v->macs, hop->macs, sizeof(v->macs));
	return VERDICT_NONE;
}
