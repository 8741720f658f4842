/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYN cookies in VXLAN: a SYN of a virtual network's client becomes the SYN-ACK in its frame, from
 * the address that all muxes have, so that the client's host knows it as a mux's. The VNI is under
 * the cookie's MAC. Neither timestamps nor what needs them is offered: the server's host has no
 * room for a second clock in a session's row.
 */
#pragma once

#include "mux/overlay/echo.h"
#include "mux/slowpath/syn_reply.h"

enum {
	/* What stands before the client's segments on their way by a mux, and the FBT in them. */
	VXLAN_SYN_ROOM = sizeof(struct ipv6hdr) + sizeof(struct vxlan_front) + sizeof(struct fbt),
};

static __always_inline __u32 vxlan_own_mss(const bool v4)
{
	const __u32 headers = (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) +
			      sizeof(struct tcphdr) + VXLAN_SYN_ROOM;

	return settings.mtu > headers + MSS_DEFAULT_V4 ? settings.mtu - headers : MSS_DEFAULT_V4;
}

/* Writes length and class into an outer header of IPv4. */
static __always_inline bool resize_v4(struct xdp_md *ctx, __u32 l3, __u32 length)
{
	__be16 to = bpf_htons(length);
	struct iphdr ip;

	if (bpf_xdp_load_bytes(ctx, l3, &ip, sizeof(ip)))
		return false;
	ip.check = checksum_replace(ip.check, ip.tot_len, to);
	ip.check = checksum_replace(ip.check, bpf_htons(ip.tos), 0);
	ip.tot_len = to;
	ip.tos = 0;
	return !bpf_xdp_store_bytes(ctx, l3, &ip, sizeof(ip));
}

static __always_inline bool resize_v6(struct xdp_md *ctx, __u32 l3, __u32 payload)
{
	struct ipv6hdr ip;

	if (bpf_xdp_load_bytes(ctx, l3, &ip, sizeof(ip)))
		return false;
	*(__be32 *)&ip = (*(__be32 *)&ip & bpf_htonl(OUTER_LABEL_MASK)) | bpf_htonl(6U << 28);
	ip.payload_len = bpf_htons(payload);
	return !bpf_xdp_store_bytes(ctx, l3, &ip, sizeof(ip));
}

/* UDP, VXLAN and the inner Ethernet header of the answer. UDP has no checksum yet. */
static __always_inline bool turn_syn_front(struct xdp_md *ctx, __u32 l4, __u32 length)
{
	struct vxlan_front front;
	__u8 mac[ETH_ALEN];

	if (bpf_xdp_load_bytes(ctx, l4, &front, sizeof(front)))
		return false;
	__builtin_memcpy(mac, front.eth.h_dest, ETH_ALEN);
	__builtin_memcpy(front.eth.h_dest, front.eth.h_source, ETH_ALEN);
	__builtin_memcpy(front.eth.h_source, mac, ETH_ALEN);
	front.vxlan.route = 0;
	front.udp.len = bpf_htons(length);
	front.udp.check = 0;
	return !bpf_xdp_store_bytes(ctx, l4, &front, sizeof(front));
}

/* UDP's checksum over IPv6, where none is not allowed. */
static __always_inline bool write_udp_checksum(struct xdp_md *ctx, const struct packet *outer,
					       __u32 length)
{
	__u64 sum = checksum_frame(ctx, outer->l4, length);
	__sum16 check;

#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)outer->source.words[i] + outer->destination.words[i];
	check = checksum_fold(sum + bpf_htons(length) + (IPPROTO_UDP << 8));
	if (!check)
		check = 0xffff;
	return !bpf_xdp_store_bytes(ctx, outer->l4 + offsetof(struct udphdr, check), &check,
				    sizeof(check));
}

/* All that stands before the answer inside, which has so many bytes. */
static __always_inline bool turn_syn_outer(struct xdp_md *ctx, const struct packet *outer,
					   __u32 inside)
{
	__u32 length = sizeof(struct vxlan_front) + inside;
	struct changed_word hop;
	struct frame_head back;

	if (!turn_syn_front(ctx, outer->l4, length))
		return false;
	if (outer->ethertype == bpf_htons(ETH_P_IP)) {
		if (!turn_v4(ctx, outer->l3) ||
		    !resize_v4(ctx, outer->l3, outer->l4 - outer->l3 + length))
			return false;
	} else if (!turn_v6(ctx, outer->l3, &hop) || !resize_v6(ctx, outer->l3, length) ||
		   !write_udp_checksum(ctx, outer, length)) {
		return false;
	}
	if (!frame_head_load(ctx, &back))
		return false;
	frame_head_turn(&back);
	return frame_head_store(ctx, outer, &back);
}

/* The answer inside. False: there is no room. */
static __always_inline bool write_syn_inside(struct xdp_md *ctx, __u32 l3, const struct syn *s,
					     const struct syn_ack *a, const bool v4)
{
	const __u32 header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *to;
	__u64 sum;

	barrier_var(l3);
	if (l3 > EXTENSIONS_START_MAX)
		return false;
	to = (void *)(long)ctx->data + l3;
	barrier_var(to);
	if (to + header + SYN_ACK_SHORT > (void *)(long)ctx->data_end)
		return false;
	sum = write_syn_ip(to, s, SYN_ACK_SHORT, v4);
	write_syn_ack(to + header, s, a, sum, false);
	return true;
}

static __always_inline enum verdict vxlan_answer_family(struct xdp_md *ctx, struct syn_ctx *h,
							const struct vxlan_ctx *v, const bool v4)
{
	const __u32 inside = (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + SYN_ACK_SHORT;
	__u32 row = syn_secrets.makes & (SYN_COOKIE_SECRETS - 1);
	const struct syn_secret *secret = &syn_secrets.rows[row];
	__u64 time = syn_coarse_ns(h) + syn_secrets.clock;
	struct syn_ack a = { .mss = vxlan_own_mss(v4) };
	__u32 length = h->l3 + inside, is = bpf_xdp_get_buff_len(ctx);
	struct syn s;

	if (!secret->id || !syn_read(ctx, h, &s, v4))
		return VERDICT_DROP_SYN;
	s.flow.vni = v->vni;
	a.cookie = syn_cookie_make(secret, &s.flow, s.offer >> OFFER_MSS_SHIFT & 0xffff, 0, time);

	/* From here on the packet is changed. */
	if (length != is && bpf_xdp_adjust_tail(ctx, (int)length - (int)is))
		return VERDICT_DROP_NO_HEADROOM;
	if (!write_syn_inside(ctx, h->l3, &s, &a, v4) || !turn_syn_outer(ctx, &v->outer, inside))
		return VERDICT_DROP_NO_HEADROOM;
	return VERDICT_REPLY_SYN;
}

/* Answers the SYN that was handed over. A function of its own, as mux_trace has no stack left. */
__noinline int vxlan_answer_syn(struct xdp_md *ctx)
{
	__u32 row = 0;
	const struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	struct syn_ctx *h = syn_ctx();
	enum verdict verdict;

	if (!v || !h)
		return VERDICT_DROP_SYN;
	syn_count_followed(h->id, v->hash, v->sampled);
	verdict = h->v4 ? vxlan_answer_family(ctx, h, v, true)
			: vxlan_answer_family(ctx, h, v, false);
	if (verdict == VERDICT_REPLY_SYN)
		syn_count_answer(h->id);
	return verdict;
}

/*
 * What SYN cookies make of a client's segment whose backend is known: DROP_SYN unless another step
 * answers it, which has a stack of its own. A handshake is followed only if its SYN is answered
 * here: the ACK of another one goes past the muxes.
 */
static __always_inline enum verdict vxlan_handshake(struct xdp_md *ctx, struct mux_ctx *w,
						    struct vxlan_ctx *v)
{
	if (w->forward != VERDICT_FORWARD_SYN) {
		if (w->forward == VERDICT_FORWARD_BUCKET &&
		    w->endpoint->flags & ENDPOINT_SYN_COUNTED)
			syn_follow(ctx, w, v->vni);
		return VERDICT_NONE;
	}
	if (!syn_is_answered(w)) {
		syn_count_one(w->endpoint->id);
		return VERDICT_NONE;
	}
	v->hash = w->hash;
	v->sampled = syn_is_sampled(w);
	syn_ctx_store(w);
	return VERDICT_DROP_SYN;
}
