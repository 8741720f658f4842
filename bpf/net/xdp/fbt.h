/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Inserting the Fast Bypass TCP option into a segment, in place, at any depth of the frame. */
#pragma once

#include "net/fbt.h"
#include "net/xdp/checksum.h"
#include "net/xdp/encap.h"

enum {
	/* Ethernet, IPv6, UDP, VXLAN, Ethernet, IPv6, TCP: all that moves. */
	FBT_MOVES_MAX = 14 + 40 + 8 + 8 + 14 + 40 + 20,
	FBT_OPTIONS_MAX = 60 - sizeof(struct fbt), /* of the header that it goes into, in bytes */
};

struct fbt_moves {
	__u8 bytes[FBT_MOVES_MAX];
};

/* Has the segment's header room for the option? */
static __always_inline bool fbt_has_room(const struct tcphdr *tcp)
{
	return tcp->doff * 4 <= FBT_OPTIONS_MAX;
}

/* Writes p's length into the IP header. */
static __always_inline bool fbt_set_length(struct xdp_md *ctx, const struct packet *p)
{
	__be16 length = bpf_htons(p->l3_length - sizeof(struct ipv6hdr)), was;
	__u32 at = p->l3 + offsetof(struct iphdr, tot_len);
	__sum16 check;

	if (p->ethertype != bpf_htons(ETH_P_IP))
		return !bpf_xdp_store_bytes(ctx, p->l3 + offsetof(struct ipv6hdr, payload_len),
					    &length, sizeof(length));
	length = bpf_htons(p->l3_length);
	if (bpf_xdp_load_bytes(ctx, at, &was, sizeof(was)) ||
	    bpf_xdp_load_bytes(ctx, p->l3 + offsetof(struct iphdr, check), &check, sizeof(check)))
		return false;
	check = checksum_replace(check, was, length);
	return !bpf_xdp_store_bytes(ctx, at, &length, sizeof(length)) &&
	       !bpf_xdp_store_bytes(ctx, p->l3 + offsetof(struct iphdr, check), &check,
				    sizeof(check));
}

/*
 * Puts the option before all others of the segment that p is about; the frame grows at its head, so
 * p's offsets stay. Lengths and checksums before p's IP header are the caller's. False: the frame
 * is spoilt.
 */
static __always_inline bool fbt_insert(struct xdp_md *ctx, struct packet *p, const struct fbt *fbt,
				       struct fbt_moves *moves)
{
	__u32 l3 = p->l3, l4 = p->l4, moved = l4 + sizeof(struct tcphdr);
	struct tcphdr tcp;
	__u32 sum = 0;
	__be16 *doff = (__be16 *)&tcp + 6, length;

	barrier_var(moved);
	if (moved < sizeof(tcp) || moved > sizeof(moves->bytes))
		return false;
	if (bpf_xdp_load_bytes(ctx, 0, moves->bytes, moved) ||
	    bpf_xdp_load_bytes(ctx, l4, &tcp, sizeof(tcp)))
		return false;
	length = bpf_htons(p->l3_length - (l4 - l3));
	sum = (__u16) ~*doff + (__u16)~length;
	tcp.doff += sizeof(*fbt) / 4;
	sum += *doff + bpf_htons(p->l3_length - (l4 - l3) + sizeof(*fbt)) + (__u16)~tcp.check;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)fbt, sizeof(*fbt), sum);
	tcp.check = checksum_fold(sum);
	p->l3_length += sizeof(*fbt);
	p->limit += sizeof(*fbt);
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*fbt)))
		return false;
	return !bpf_xdp_store_bytes(ctx, 0, moves->bytes, moved) &&
	       !bpf_xdp_store_bytes(ctx, l4, &tcp, sizeof(tcp)) &&
	       !bpf_xdp_store_bytes(ctx, moved, (void *)fbt, sizeof(*fbt)) &&
	       fbt_set_length(ctx, p);
}
