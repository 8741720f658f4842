// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The agent's programs, on TCX.
 *
 *               from_uplink                          (interface)
 *   mux ──────▶ decapsulate, VIP to DIP ──────┬────▶ workload ───▶ from_workload ──▶ client
 *                                             └────▶ native                DIP to VIP
 *                                                    workload ───▶ to_uplink ──────▶ client
 *
 * Each program parses, decides, rewrites; finish() alone turns the verdict into an action and
 * counts it. Until a packet is touched, whatever is not ours passes; from then on errors drop.
 */
#include "agent/finish.h"
#include "agent/inbound.h"
#include "agent/outbound.h"
#include "agent/snat/calls.h"
#include "agent/snat/sweep.h"
#include "agent/tenants.h"

/* Ingress of the uplink: encapsulated packets from the muxes. */
SEC("tcx/ingress")
int from_uplink(struct __sk_buff *skb)
{
	struct skb_meta how = skb_meta(skb);

	return finish(skb, inbound(skb, &how.ifindex), &how);
}

/* Egress of the uplink: replies of native workloads, among all that the host sends. */
SEC("tcx/egress")
int to_uplink(struct __sk_buff *skb)
{
	struct skb_meta how = skb_meta(skb);
	struct packet p;
	enum verdict verdict;

	if (departure_is_sealed(skb))
		return finish(skb, VERDICT_PASS_OURS, &how);
	verdict = reply(skb, &p, skb->ingress_ifindex, false);
	how.ifindex = settings.uplink; /* for what goes to a peer */
	return finish(skb, verdict ?: VERDICT_REPLY_NATIVE, &how);
}

/* Ingress of a workload's host-side interface: what the workload sends. */
SEC("tcx/ingress")
int from_workload(struct __sk_buff *skb)
{
	struct skb_meta how = skb_meta(skb);
	struct packet p;
	enum verdict verdict = reply(skb, &p, skb->ifindex, true);

	how.ifindex = settings.uplink; /* for what goes to a peer, or out */
	return finish(skb, verdict ?: reply_route(&p, &how.ifindex), &how);
}

/* Has a connection leave the muxes, or come back to them (state 0). User space runs it. */
SEC("syscall")
int fastpath_set(struct fastpath_command *c)
{
	struct session_key key = {};
	struct session *session = NULL;
	struct snat_flow *flow = NULL;
	struct fastpath_command command = *c;
	bool direct = false;

	command.now = 0;
	command.answer = command.client ? fastpath_opened(&command, &key, &flow)
					: fastpath_served(&command, &key, &session);
	if (!command.state)
		bpf_map_delete_elem(&fastpath, &key);
	else if (command.answer)
		goto out;
	else if (bpf_map_lookup_elem(&tunnels, &command.peer))
		command.answer = FASTPATH_LOCAL;
	else
		command.answer = fastpath_put(&command, &key);
	if (command.answer == FASTPATH_UNNAMED)
		goto out;
	direct = command.now == FASTPATH_SEND;
	if (session)
		session->direct = direct;
	if (flow)
		flow->direct = direct;
out:
	c->answer = command.answer;
	c->now = command.now;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
