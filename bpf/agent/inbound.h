/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a mux to a workload (Ananta 3.4.1). */
#pragma once

#include "agent/admission.h"
#include "agent/fastpath.h"
#include "agent/fragment.h"
#include "agent/icmp.h"
#include "agent/snat/inbound.h"
#include "agent/syncookie.h"
#include "agent/maps.h"
#include "agent/multipath.h"
#include "agent/parse.h"
#include "agent/chain.h"
#include "net/skb/decap.h"
#include "agent/sample.h"
#include "agent/session.h"
#include "agent/steer_gre.h"
#include "agent/steer_vxlan.h"

static __always_inline enum verdict inbound_parse(struct __sk_buff *skb, struct packet *outer)
{
	/* RFC 1122, 3.3.6; and a link that floods, or an interface that is promiscuous. */
	if (skb->pkt_type != PACKET_HOST)
		return VERDICT_PASS_OTHER_MAC;
	if (frame_is_tagged(skb) && frame_untag(skb))
		return VERDICT_PASS_TAGGED;
	return parse_verdict(frame_parse(skb, outer));
}

static __always_inline enum verdict inbound_gue(struct __sk_buff *skb, const struct packet *outer,
						const struct gue_front *front, struct tunnel *t)
{
	switch (gue_read(skb, outer, front, t)) {
	case GUE_OK:
		return VERDICT_NONE;
	case GUE_MALFORMED:
		return VERDICT_DROP_GUE_MALFORMED;
	case GUE_UNKNOWN:
		return VERDICT_DROP_GUE_UNKNOWN;
	}
	return VERDICT_DROP_GUE_UNKNOWN;
}

/* The tunnel that the packet came by, to an address of ours: IP-in-IP, GUE, a switch's VXLAN or
 * GRE. */
static __always_inline enum verdict inbound_tunnel(struct __sk_buff *skb,
						   const struct packet *outer, struct tunnel *t)
{
	struct address tunnel = outer->destination;
	struct gue_front front = {};

	if (outer->protocol == IPPROTO_UDP) {
		if (bpf_skb_load_bytes(skb, outer->l4, &front, sizeof(front)))
			return VERDICT_PASS_NOT_TUNNEL;
		if (front.udp.dest != bpf_htons(GUE_PORT) &&
		    front.udp.dest != bpf_htons(VXLAN_PORT))
			return VERDICT_PASS_NOT_TUNNEL;
	} else if (!protocol_is_ip(outer->protocol) && outer->protocol != IPPROTO_GRE) {
		return VERDICT_PASS_NOT_TUNNEL;
	}
	if (!bpf_map_lookup_elem(&tunnels, &tunnel))
		return VERDICT_PASS_UNKNOWN_TUNNEL;
	if (outer->protocol == IPPROTO_UDP && front.udp.dest == bpf_htons(VXLAN_PORT))
		return vxlan_read_tunnel(skb, outer, t) ? VERDICT_NONE : VERDICT_PASS_NOT_TUNNEL;
	if (outer->protocol == IPPROTO_UDP && front.gue.head & GUE_CONTROL)
		return VERDICT_PUNT_CONTROL;
	if (outer->protocol == IPPROTO_UDP)
		return inbound_gue(skb, outer, &front, t);
	if (outer->protocol == IPPROTO_GRE)
		return gre_read_tunnel(skb, outer, t) ? VERDICT_NONE : VERDICT_PASS_NOT_TUNNEL;
	t->header = outer->l4 - outer->l3;
	t->payload = outer->l3_length - t->header;
	t->protocol = outer->protocol;
	return VERDICT_NONE;
}

/* Reads the outer headers. */
static __noinline enum verdict inbound_outer(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct packet outer = {};
	struct tunnel t = {};
	enum verdict verdict;

	verdict = inbound_parse(skb, &outer);
	verdict = verdict ?: inbound_tunnel(skb, &outer, &t);
	if (verdict && verdict != VERDICT_PUNT_CONTROL)
		return verdict;
	a->outer = outer;
	a->tunnel = t;
	return verdict;
}

/* Reads the headers of the packet inside. */
static __noinline enum verdict inbound_inner(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct packet inner = {};
	enum parsed parsed = decap_parse(skb, &a->outer, &a->tunnel, &inner);

	a->rare = CONTENT_REFUSED;
	if (parsed == PARSED_FRAGMENT && a->tunnel.kind == GUE_KIND_FRAGMENT)
		parsed = fragment_parse(skb, &a->tunnel, &inner);
	else if (parsed == PARSED_OK)
		parsed = frame_parse_transport(skb, &inner);
	switch (parsed) {
	case PARSED_OK:
		break;
	case PARSED_EXTENSIONS:
	case PARSED_OTHER:
		inner.destination_port = 0;
		if (icmp_holds_error(skb, &inner))
			break;
		if ((settings.snat || settings.steered) && echo_read(skb, &inner, false))
			break;
		if (!settings.steered || !echo_read(skb, &inner, true))
			return VERDICT_DROP_INNER_OTHER;
		a->rare = CONTENT_PING;
		break;
	case PARSED_FRAGMENT:
		if (!settings.steered)
			return VERDICT_DROP_INNER_FRAGMENT;
		a->rare = CONTENT_FRAGMENT;
		break;
	case PARSED_MALFORMED:
		return VERDICT_DROP_INNER_MALFORMED;
	}
	if (decap_is_merged(skb, &inner, &a->tunnel))
		return VERDICT_DROP_GUE_MERGED;
	if (decap_loses_ce(&a->outer, &inner))
		return VERDICT_DROP_ECN;
	a->inner = inner;
	return VERDICT_NONE;
}

/* VIP and port become DIP and port; a later fragment has no port, and no options. */
static __always_inline enum verdict inbound_rewrite(struct __sk_buff *skb, const struct packet *p,
						    const struct nat_rule *rule,
						    struct session *session, __u32 tag,
						    const struct timestamps *ts)
{
	struct address dip = rule->dip;
	__u32 difference = 0;
	int err;

	if (p->fragment_offset) {
		err = rewrite_fragment(skb, p, DESTINATION, &dip);
	} else {
		err = rewrite_begin(skb, p, DESTINATION, &dip, rule->port, &difference);
		err = err ?: cookie_restore(skb, p, session, ts, &difference);
		if (session->events & SESSION_REPLAYED)
			err = err ?: proxy_inward(skb, p, session, &difference);
		err = err ?: rewrite_end(skb, p, difference);
	}
	if (err)
		return VERDICT_DROP_REWRITE;
	return session_stays(session, tag) ? VERDICT_NONE : VERDICT_DROP_SESSION_GONE;
}

/*
 * May the packet begin a session? Not if the workload has a connection of its own with the same
 * client and ports: replies to both would look the same. A session that is known is none to begin,
 * but for a SYN: what is known may be of a stray ACK alone.
 */
static __noinline bool inbound_has_room(const struct rx_ctx *a, const struct session *known)
{
	struct session_key key = rx_session_key(a);

	if (a->inner.protocol == IPPROTO_TCP ? !(a->inner.tcp_flags & TCP_FLAG_SYN) : !!known)
		return true;
	return snat_makes_room(&key);
}

/* To the workload of a->rule. Sets ifindex where the verdict redirects. */
static __noinline enum verdict inbound_deliver(struct __sk_buff *skb, struct rx_ctx *a,
					       __u32 *ifindex)
{
	const __u32 *workload = bpf_map_lookup_elem(&workloads, &a->rule.dip);
	struct session_key key = rx_session_key(a);
	struct packet inner = a->inner;
	struct timestamps ts = {};
	struct session *session;
	enum verdict verdict;
	__u32 tag;

	if (!workload)
		return VERDICT_DROP_NO_WORKLOAD;
	if (!inner.fragment_offset)
		ts = timestamps_read(skb, &inner);
	session = session_of_client(skb, &key, &inner);
	if (settings.snat && !inbound_has_room(a, session))
		return VERDICT_DROP_SESSION_TAKEN;
	if (syncookie_is_applicable(a, &inner, session)) {
		verdict = syncookie_verify(skb, a, &key, session, &ts);
		if (verdict)
			return verdict;
		if (a->handshake.mss)
			return syncookie_accept(skb, a, &key, ifindex);
		/* Another CPU may have begun it meanwhile, and not know yet what to translate. */
		session = session_lookup(&key);
		if (session && session_is_early(session))
			return VERDICT_DROP_SYNCOOKIE_PENDING;
	}
	a->proven = session ? session->events & SESSION_CLIENT_ACK : 0;
	verdict = session_open(skb, &key, &inner, &a->rule, &ts, &session, &tag);
	if (verdict)
		return verdict;
	if (a->rule.flags & NAT_RULE_MULTIPATH)
		multipath_delivered(skb, a, session);

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &inner))
		return VERDICT_DROP_DECAPSULATE;
	verdict = inbound_rewrite(skb, &inner, &a->rule, session, tag, &ts);
	if (verdict)
		return verdict;
	*ifindex = *workload;
	return *workload ? VERDICT_DELIVER_INTERFACE : VERDICT_DELIVER_NATIVE;
}

/* To the workload of a->rule, or to the other backend that the packet names. */
static __always_inline enum verdict inbound_endpoint(struct __sk_buff *skb, struct rx_ctx *a,
						     __u32 *ifindex)
{
	enum verdict verdict = VERDICT_NONE;

	if (a->rule.flags & NAT_RULE_MULTIPATH)
		verdict = multipath(skb, a);
	if (!verdict && a->tunnel.step != GUE_CHAIN_NONE)
		verdict = chain(skb, a);
	if (!verdict)
		sample(skb, a);
	return verdict ?: inbound_deliver(skb, a, ifindex);
}

/* Sets ifindex where the verdict redirects. */
static __always_inline enum verdict inbound(struct __sk_buff *skb, __u32 *ifindex)
{
	__u32 zero = 0;
	struct rx_ctx *a = bpf_map_lookup_elem(&rx_ctxs, &zero);
	enum verdict verdict, refusal;

	if (!a) /* never */
		return VERDICT_PASS_OTHER;
	verdict = inbound_outer(skb, a);
	if (verdict == VERDICT_PUNT_CONTROL)
		return control_take(skb, a);
	if (verdict)
		return verdict;
	refusal = inbound_inner(skb, a);
	a->content = refusal ? CONTENT_REFUSED : content_find(a);
	verdict = admit(a) ?: refusal;
	*ifindex = settings.uplink; /* for packets that are steered or chained */
	if (!verdict && a->from)
		verdict = steer(skb, a);
	if (verdict)
		return verdict;
	switch (a->content) {
	case CONTENT_ENDPOINT:
		return inbound_endpoint(skb, a, ifindex);
	case CONTENT_ANSWER:
	case CONTENT_ECHO:
		return settings.snat ? snat_answer(skb, a, ifindex) : VERDICT_DROP_NO_RULE;
	case CONTENT_ERROR:
		return icmp_inbound(skb, a, ifindex);
	case CONTENT_FRAGMENT: /* muxes say its ports */
		return VERDICT_DROP_INNER_FRAGMENT;
	case CONTENT_PING: /* muxes answer those that they get */
	case CONTENT_REFUSED: /* never: refusal says why */
		break;
	}
	return VERDICT_DROP_INNER_OTHER;
}
