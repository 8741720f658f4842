// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Makes one FBT, and inserts it into a segment, for a test. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/fbt.h"
#include "net/xdp/fbt.h"

struct call {
	struct fbt_key key;
	struct fbt_segment segment;
	struct fbt_content says;
	struct fbt fbt; /* the answer, and what is inserted */
};

struct call made SEC(".data.made");

SEC("syscall")
int make(void *ctx)
{
	struct fbt_segment segment = made.segment;
	struct fbt_content says = made.says;
	struct fbt_key key = made.key;
	struct fbt fbt = {};

	fbt_write(&fbt, &key, &segment, &says);
	made.fbt = fbt;
	return 0;
}

enum { DROPPED = 1, SENT = 3, INNER = 14 + 20 + 30 };

/* The segment inside VXLAN over IPv4, or the frame's own. */
static __always_inline int insert_at(struct xdp_md *ctx, __u32 l3, __be16 ethertype)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = { .l3 = l3, .ethertype = ethertype, .limit = end - data };
	struct fbt fbt = made.fbt;
	struct fbt_moves moves;
	struct tcphdr *tcp;

	if (parse_ip(data, end, &p) != PARSED_OK || parse_transport(data, end, &p) != PARSED_OK)
		return DROPPED;
	tcp = data + p.l4;
	if ((void *)(tcp + 1) > end || !fbt_has_room(tcp))
		return DROPPED;
	return fbt_insert(ctx, &p, &fbt, &moves) ? SENT : DROPPED;
}

SEC("xdp")
int insert(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data, *inner = data + INNER - sizeof(*inner);
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > end)
		return DROPPED;
	if (eth->h_proto == bpf_htons(ETH_P_IP) && ip->protocol == IPPROTO_UDP)
		return (void *)(inner + 1) <= end ? insert_at(ctx, INNER, inner->h_proto) : DROPPED;
	return insert_at(ctx, sizeof(*eth), eth->h_proto);
}

char _license[] SEC("license") = "Dual BSD/GPL";
