/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a mux to a workload (Ananta 3.4.1). */
#pragma once

#include "lib/agent_tables.h"
#include "lib/decap.h"
#include "lib/mss.h"
#include "lib/session.h"

static __always_inline enum verdict inbound_parse(struct __sk_buff *skb, struct packet *outer)
{
	if (frame_is_tagged(skb))
		return VERDICT_PASS_TAGGED;
	switch (frame_parse(skb, outer)) {
	case PARSED_OK:
		break;
	case PARSED_EXTENSIONS:
	case PARSED_OTHER:
		return VERDICT_PASS_OTHER;
	case PARSED_FRAGMENT:
		return VERDICT_PASS_FRAGMENT;
	case PARSED_MALFORMED:
		return VERDICT_PASS_MALFORMED;
	}
	if (outer->protocol != IPPROTO_IPIP && outer->protocol != IPPROTO_IPV6)
		return VERDICT_PASS_NOT_TUNNEL;
	return VERDICT_NONE;
}

/* Is the tunnel ours, and does a mux send? */
static __always_inline enum verdict inbound_admit(const struct packet *outer)
{
	struct prefix mux = { .bits = 8 * sizeof(mux.address), .address = outer->source };
	struct address tunnel = outer->destination;

	if (!bpf_map_lookup_elem(&tunnels, &tunnel))
		return VERDICT_PASS_NOT_OUR_TUNNEL;
	if (!bpf_map_lookup_elem(&muxes, &mux))
		return VERDICT_DROP_NOT_A_MUX;
	return VERDICT_NONE;
}

static __always_inline enum verdict
inbound_parse_inner(struct __sk_buff *skb, const struct packet *outer, struct packet *inner)
{
	switch (decap_parse(skb, outer, inner)) {
	case PARSED_OK:
		break;
	case PARSED_EXTENSIONS:
	case PARSED_OTHER:
		return VERDICT_DROP_INNER_OTHER;
	case PARSED_FRAGMENT:
		return VERDICT_DROP_INNER_FRAGMENT;
	case PARSED_MALFORMED:
		return VERDICT_DROP_INNER_MALFORMED;
	}
	return decap_loses_ce(outer, inner) ? VERDICT_DROP_ECN : VERDICT_NONE;
}

static __always_inline const struct nat_rule *inbound_rule(const struct packet *outer,
							   const struct packet *inner)
{
	struct nat_rule_key key = {
		.vip = inner->destination,
		.tunnel = outer->destination,
		.port = inner->destination_port,
		.protocol = inner->protocol,
	};

	return bpf_map_lookup_elem(&nat_rules, &key);
}

/* Sets ifindex where the verdict redirects. */
static __always_inline enum verdict inbound(struct __sk_buff *skb, __u32 *ifindex)
{
	const struct nat_rule *rule;
	struct packet outer, inner;
	struct session *session;
	struct timestamps ts;
	enum verdict verdict;
	const __u32 *workload;

	verdict = inbound_parse(skb, &outer);
	if (verdict)
		return verdict;
	verdict = inbound_admit(&outer);
	if (verdict)
		return verdict;
	verdict = inbound_parse_inner(skb, &outer, &inner);
	if (verdict)
		return verdict;
	rule = inbound_rule(&outer, &inner);
	if (!rule)
		return VERDICT_DROP_NO_RULE;
	workload = bpf_map_lookup_elem(&workloads, &rule->dip);
	if (!workload)
		return VERDICT_DROP_NO_WORKLOAD;
	ts = timestamps_read(skb, &inner);
	verdict = session_open(&inner, rule, &ts, &session);
	if (verdict)
		return verdict;

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &outer, &inner))
		return VERDICT_DROP_DECAPSULATE;
	if (rewrite(skb, &inner, DESTINATION, &rule->dip, rule->port))
		return VERDICT_DROP_REWRITE;
	if (mss_clamp(skb, &inner, settings.mtu))
		return VERDICT_DROP_REWRITE;
	if (cookie_restore(skb, &inner, session, &ts))
		return VERDICT_DROP_REWRITE;
	*ifindex = *workload;
	return *workload ? VERDICT_DELIVER_INTERFACE : VERDICT_DELIVER_NATIVE;
}
