// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A stand-in for a switch as a hardware mux (Duet, section 3.1), on every port of a router: its
 * tables, its limits and a hash that nobody knows.
 *
 *   packet ──▶ hosts: VIP ──▶ ecmp: base + hash * size ──▶ tunnels ──▶ IP-in-IP, routed
 *
 * What it does not know passes to the kernel, which routes. Of a TIP the group is that of the
 * packet inside.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "switch/ecmp.h"
#include "switch/finish.h"
#include "switch/forward.h"
#include "switch/parse.h"
#include "switch/tip.h"

static __always_inline int switch_main(struct xdp_md *ctx)
{
	struct packet p;
	struct host *host;
	enum verdict verdict;
	__u32 ports, hash, port = 0, *row, bytes;

	verdict = parse(ctx, &p, &ports);
	bytes = p.limit;
	if (verdict)
		return finish(verdict, bytes, 0);
	host = bpf_map_lookup_elem(&hosts, &p.destination);
	if (!host)
		return finish(VERDICT_PASS_NO_HOST, bytes, 0);
	if (host->tip)
		verdict = decapsulate(ctx, &p, &ports, host);
	if (verdict)
		return finish(verdict, bytes, 0);
	hash = vendor_hash(&p, ports);
	row = choose(host, hash);
	verdict = row ? forward(ctx, &p, *row, hash, &port) : VERDICT_PASS_NO_HOST;
	if (host->tip)
		verdict = verdict_of_tip(verdict);
	if (verdict == VERDICT_FORWARD)
		count(&host_counts, host->id, bytes);
	return finish(verdict, bytes, port);
}

SEC("xdp.frags")
int switch_port(struct xdp_md *ctx)
{
	return switch_main(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
