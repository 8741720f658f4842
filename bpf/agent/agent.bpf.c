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
#include "agent/inbound.h"
#include "agent/outbound.h"
#include "agent/snat/calls.h"
#include "agent/snat/sweep.h"
#include "agent/tenants.h"

/* What finish() must know of a packet besides the verdict, taken before it is changed. */
struct passage {
	__u32 packets; /* of the wire: GRO makes one buffer of many */
	__u32 bytes;
	__u32 ifindex; /* where to, for the verdicts that redirect */
};

static __always_inline struct passage passage(struct __sk_buff *skb)
{
	struct passage passage = { .packets = skb->gso_segs ?: 1, .bytes = skb->len };

	return passage;
}

static __always_inline int finish(struct __sk_buff *skb, enum verdict verdict,
				  const struct passage *passage)
{
	struct counter *counter = bpf_map_lookup_elem(&verdicts, &verdict);

	if (counter) {
		counter->packets += passage->packets;
		counter->bytes += passage->bytes;
	}
	switch (verdict) {
	case VERDICT_PASS_OURS:
	case VERDICT_PASS_NOT_FOR_US:
	case VERDICT_PASS_TAGGED:
	case VERDICT_PASS_OTHER:
	case VERDICT_PASS_MALFORMED:
	case VERDICT_PASS_FRAGMENT:
	case VERDICT_PASS_NOT_TUNNEL:
	case VERDICT_PASS_NOT_OUR_TUNNEL:
	case VERDICT_PASS_NO_SESSION:
	case VERDICT_DELIVER_NATIVE:
	case VERDICT_REPLY_NATIVE:
	case VERDICT_REPLY_HOST:
	case VERDICT_PASS_EXCEPT:
	case VERDICT_PASS_NO_FLOW:
	case VERDICT_SNAT_NATIVE:
	case VERDICT_COOKIE_SOCKET:
	case VERDICT_COOKIE_NATIVE:
		return TCX_NEXT;
	case VERDICT_REPLY_UPLINK: /* by the uplink */
	case VERDICT_CHAIN_ON:
	case VERDICT_CHAIN_BACK:
	case VERDICT_REPLY_DIRECT:
	case VERDICT_SNAT_UPLINK:
		departure_seal(skb);
		return bpf_redirect_neigh(passage->ifindex, NULL, 0, 0);
	case VERDICT_DELIVER_INTERFACE:
	case VERDICT_REPLY_INTERFACE:
	case VERDICT_COOKIE_INTERFACE:
		return bpf_redirect_neigh(passage->ifindex, NULL, 0, 0);
	case VERDICT_COOKIE_ANSWER: /* back where it came from */
		return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
	case VERDICT_COOKIE_ANSWER_HOST:
	case VERDICT_COOKIE_WAIT:
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	case VERDICT_NONE:
	case VERDICT_DROP_NOT_A_MUX:
	case VERDICT_DROP_NOT_A_PEER:
	case VERDICT_DROP_GUE_MALFORMED:
	case VERDICT_DROP_GUE_UNKNOWN:
	case VERDICT_DROP_GUE_MERGED:
	case VERDICT_DROP_INNER_MALFORMED:
	case VERDICT_DROP_INNER_FRAGMENT:
	case VERDICT_DROP_INNER_OTHER:
	case VERDICT_DROP_ICMP_UNKNOWN:
	case VERDICT_DROP_NO_RULE:
	case VERDICT_DROP_NO_WORKLOAD:
	case VERDICT_DROP_ECN:
	case VERDICT_DROP_SESSION_TAKEN:
	case VERDICT_DROP_SESSION_FULL:
	case VERDICT_DROP_SESSION_GONE:
	case VERDICT_DROP_CHAIN_FAMILY:
	case VERDICT_DROP_CHAIN:
	case VERDICT_SNAT_HOLD: /* user space has it */
	case VERDICT_DROP_NOT_ITS_SOURCE:
	case VERDICT_DROP_TAGGED:
	case VERDICT_DROP_OWN_TUNNEL:
	case VERDICT_DROP_PORTS_EXHAUSTED:
	case VERDICT_DROP_FLOWS_FULL:
	case VERDICT_DROP_UNSOLICITED_FULL:
	case VERDICT_DROP_FILTERED:
	case VERDICT_DROP_HOLD_FULL:
	case VERDICT_DROP_HOLD_LARGE:
	case VERDICT_DROP_HOLD_FRAGMENT:
	case VERDICT_DROP_DECAPSULATE:
	case VERDICT_DROP_REWRITE:
	case VERDICT_DROP_DIRECT:
	case VERDICT_DROP_CONTROL:
	case VERDICT_TAKE_CONTROL:
	case VERDICT_DROP_COOKIE_FORGED:
	case VERDICT_DROP_COOKIE_OLD:
	case VERDICT_DROP_COOKIE_AGAIN:
	case VERDICT_DROP_COOKIE_EARLY:
	case VERDICT_DROP_COOKIE_REPLAY:
	case VERDICT_COUNT:
		return TCX_DROP;
	}
	return TCX_DROP;
}

/* Ingress of the uplink: encapsulated packets from the muxes. */
SEC("tcx/ingress")
int from_uplink(struct __sk_buff *skb)
{
	struct passage how = passage(skb);

	return finish(skb, inbound(skb, &how.ifindex), &how);
}

/* Egress of the uplink: replies of native workloads, among all that the host sends. */
SEC("tcx/egress")
int to_uplink(struct __sk_buff *skb)
{
	struct passage how = passage(skb);
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
	struct passage how = passage(skb);
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
