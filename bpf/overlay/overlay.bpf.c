// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Load-balancer bypass on a host, on TCX. The server's side (NGLB's VCTK):
 *
 *          from_underlay: out of VXLAN, FBT off           (interface)
 *   mux ──────────▶ client, VIP to local address, backend ──────▶ server
 *   client's host ─▶ likewise, for later packets                    │
 *        ▲                                                          ▼
 *        └──────── VXLAN ◀─ backend, local address to VIP, client ──┘
 * from_server, to_underlay
 *
 * The client's side (NGLB's AVS), whose hosts' interfaces are ports:
 *
 *          from_client: source checked, into VXLAN        (port)
 *   client ──────▶ not learnt: to the muxes; learnt: straight to the server's host
 *     ▲
 *     └─── out of VXLAN ◀── from_underlay: learns the server's host by its answer
 *
 * What is VXLAN for no VIP that is attached here belongs to the user's own
 * overlay, and passes.
 */
#include "overlay/client/inbound.h"
#include "overlay/client/outbound.h"
#include "overlay/datagram.h"
#include "overlay/error.h"
#include "overlay/finish.h"
#include "overlay/inbound.h"
#include "overlay/outbound.h"
#include "overlay/syncookie.h"

/* The table of NGLB's section IV-B: by sender, kind of segment, and whether
 * there is a session. */
static __always_inline enum verdict inbound(struct __sk_buff *skb, struct overlay_ctx *a)
{
	enum verdict verdict;
	__u32 vni = 0;
	bool syn;
	int row;

	verdict = inbound_outer(skb, a, &vni);
	verdict = verdict ?: inbound_inner(skb, a, vni);
	if (verdict == VERDICT_PASS_NOT_OURS)
		return client_inbound(skb, a, vni);
	if (!verdict && a->error)
		verdict = inbound_quoted(skb, a);
	verdict = verdict ?: inbound_sender(skb, a);
	if (verdict)
		return verdict;
	if (a->error)
		return error_inbound(skb, a);
	if (a->key.udp || a->parsed == PARSED_FRAGMENT) {
		verdict = datagram_session(a);
		return verdict ?: datagram_deliver(skb, a);
	}
	syn = (a->inner.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
	if (syn && !a->from_mux)
		return VERDICT_DROP_SYN_PAST_MUX;
	row = session_find(&a->key);
	a->mss = 0;
	if (row >= 0) {
		a->number = row;
		a->tag = session_tag(row);
	}
	if (!syn) {
		verdict = syncookie_take(a, row < 0 ? NULL : session_at(row));
		if (!verdict && row < 0 && !a->mss)
			return reset_client(skb, a);
		verdict = verdict ?: session_at_host(a);
	} else {
		verdict = row < 0 ? session_begin(a) : session_again(a);
	}
	verdict = verdict ?: deliver(skb, a);
	if (a->mss && (verdict == VERDICT_DELIVER_NATIVE || verdict == VERDICT_DELIVER_INTERFACE))
		return handshake_begin(skb, a);
	return verdict;
}

/* Ingress of the uplink. */
SEC("tcx/ingress")
int from_underlay(struct __sk_buff *skb)
{
	__u32 zero = 0, packets = skb->gso_segs ?: 1, bytes = skb->len;
	struct overlay_ctx *a = bpf_map_lookup_elem(&overlay_ctxs, &zero);
	enum verdict verdict = a ? inbound(skb, a) : VERDICT_PASS_OTHER;

	verdict_count(verdict, packets, bytes);
	return finish(skb, verdict, a ? a->ifindex : 0);
}

static __always_inline int from(struct __sk_buff *skb, bool native)
{
	__u32 zero = 0, packets = skb->gso_segs ?: 1, bytes = skb->len;
	struct overlay_ctx *a = bpf_map_lookup_elem(&overlay_ctxs, &zero);
	enum verdict verdict = a ? outbound(skb, a, native) : VERDICT_PASS_OTHER;

	verdict_count(verdict, packets, bytes);
	return finish(skb, verdict, a ? a->ifindex : 0);
}

/* Ingress of a workload's host-side interface. */
SEC("tcx/ingress")
int from_server(struct __sk_buff *skb)
{
	return from(skb, false);
}

/* Ingress of a client's host-side interface, a port. */
SEC("tcx/ingress")
int from_client(struct __sk_buff *skb)
{
	__u32 zero = 0, packets = skb->gso_segs ?: 1, bytes = skb->len;
	struct overlay_ctx *a = bpf_map_lookup_elem(&overlay_ctxs, &zero);
	enum verdict verdict = a ? client_outbound(skb, a) : VERDICT_PASS_OTHER;

	verdict_count(verdict, packets, bytes);
	return finish(skb, verdict, a ? a->ifindex : 0);
}

/* Egress of the uplink, for servers on the host itself. */
SEC("tcx/egress")
int to_underlay(struct __sk_buff *skb)
{
	return from(skb, true);
}

char _license[] SEC("license") = "Dual BSD/GPL";
