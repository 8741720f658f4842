// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A stand-in for a switch as a hardware mux (Duet, section 3.1), on every port of a router: its
 * tables, its limits and a hash that nobody knows.
 *
 *   packet ──▶ hosts: VIP ──▶ ecmp: base + hash * size ──▶ tunnels ──▶ IP-in-IP, routed
 *
 * What it does not know passes to the kernel, which routes.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/packet.h"
#include "switch/ecmp.h"
#include "switch/finish.h"
#include "switch/forward.h"

/* The ports of TCP and UDP as one word, for the hash; 0 where there are none. */
static __always_inline bool parse_ports(void *data, void *end, const struct packet *p, __u32 *ports)
{
	__u32 *at = data + p->l4;

	*ports = 0;
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return true;
	barrier_var(at);
	if ((void *)(at + 1) > end || p->l4 + sizeof(*at) > p->l3 + p->l3_length)
		return false;
	*ports = *at;
	return true;
}

static __always_inline enum verdict parse(struct xdp_md *ctx, struct packet *p, __u32 *ports)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	enum parsed parsed;

	if ((void *)(eth + 1) > end)
		return VERDICT_PASS_MALFORMED;
	p->l3 = sizeof(*eth);
	p->ethertype = eth->h_proto;
	if (eth->h_dest[0] & 1)
		return VERDICT_PASS_NOT_ROUTED;
	parsed = parse_ip(data, end, p);
	if (parsed == PARSED_OTHER)
		return VERDICT_PASS_NOT_ROUTED;
	if (parsed == PARSED_MALFORMED)
		return VERDICT_PASS_MALFORMED;
	if (!packet_is_whole(p)) {
		p->limit = bpf_xdp_get_buff_len(ctx); /* a frame in several buffers */
		if (!packet_is_whole(p))
			return VERDICT_PASS_MALFORMED;
	}
	*ports = 0;
	if (parsed == PARSED_OK && !parse_ports(data, end, p, ports))
		return VERDICT_PASS_MALFORMED;
	return VERDICT_NONE;
}

static __always_inline int switch_main(struct xdp_md *ctx)
{
	struct packet p;
	struct host *host;
	enum verdict verdict;
	__u32 ports, hash, port = 0, *row;

	p.limit = ctx->data_end - ctx->data;
	verdict = parse(ctx, &p, &ports);
	if (verdict)
		return finish(verdict, p.limit, 0);
	host = bpf_map_lookup_elem(&hosts, &p.destination);
	if (!host)
		return finish(VERDICT_PASS_NO_HOST, p.limit, 0);
	hash = vendor_hash(&p, ports);
	row = choose(host, hash);
	if (!row)
		return finish(VERDICT_PASS_NO_HOST, p.limit, 0);
	verdict = forward(ctx, &p, *row, hash, &port);
	if (verdict == VERDICT_FORWARD)
		count(&host_counts, host->id, p.limit);
	return finish(verdict, p.limit, port);
}

SEC("xdp.frags")
int switch_port(struct xdp_md *ctx)
{
	return switch_main(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
