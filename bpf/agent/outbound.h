/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a workload straight to its client (Ananta 3.4.1): direct server return. */
#pragma once

#include "agent/fastpath.h"
#include "agent/fragment.h"
#include "agent/icmp.h"
#include "agent/handshake_proxy.h"
#include "agent/snat/outbound.h"
#include "agent/source_check.h"
#include "agent/maps.h"
#include "agent/parse.h"
#include "net/skb/frame.h"
#include "agent/mss.h"
#include "agent/multipath_announce.h"
#include "agent/multipath_token.h"
#include "agent/session.h"

static __always_inline enum verdict reply_parse(struct __sk_buff *skb, struct packet *p,
						bool at_workload)
{
	enum parsed parsed;

	p->protocol = 0;
	__builtin_memset(&p->source, 0, sizeof(p->source)); /* of what has none, until parsed */
	p->fragment_more = false;
	p->fragment_offset = 0;
	if (frame_is_tagged(skb) && (!at_workload || frame_untag(skb)))
		return at_workload && settings.check_sources ? VERDICT_DROP_TAGGED
							     : VERDICT_PASS_TAGGED;
	parsed = frame_parse(skb, p);
	if (parsed == PARSED_OK || (parsed == PARSED_FRAGMENT && p->fragment_offset == 0))
		parsed = frame_parse_transport(skb, p);
	return parse_verdict(parsed);
}

/* What a reply leaves as, and the tag of the row that says so. */
struct reply_name {
	struct address vip;
	__be16 vip_port;
	__u32 tag;
};

/* Reads it, and notes the packet in the session. False: that is another connection's by now. */
static __noinline bool reply_note(struct __sk_buff *skb, struct session *session,
				  const struct session_key *key, const struct packet *p,
				  struct reply_name *name)
{
	name->vip = session->vip;
	name->vip_port = session->vip_port;
	name->tag = session->tag;
	if (!session_names(session, key, &name->vip, name->vip_port))
		return false;
	session_answered(skb, key, session, p);
	return true;
}

/* Makes a reply the VIP's. A function of its own, so that other ways have its stack. */
static __noinline enum verdict reply_rewrite(struct __sk_buff *skb, const struct packet *p,
					     const struct session_key *key, struct session *session)
{
	struct reply_name name;
	__u32 difference = 0;
	enum verdict verdict;

	if (!reply_note(skb, session, key, p, &name))
		return VERDICT_DROP_SESSION_GONE;

	/* From here on the packet is touched: fail closed. */
	if (session->events & SESSION_PROXIED) {
		verdict = proxy_answer(skb, p, session);
		if (verdict)
			return verdict;
	}
	if (rewrite_begin(skb, p, SOURCE, &name.vip, name.vip_port, &difference))
		return VERDICT_DROP_REWRITE;
	if (cookie_write(skb, p, session, &difference))
		return VERDICT_DROP_REWRITE;
	if (announcement_fits(skb, p) && announcements_remove(skb, p, &name.vip, &difference))
		return VERDICT_DROP_REWRITE;
	if (session->events & SESSION_PROXIED && proxy_outward(skb, p, session, &difference))
		return VERDICT_DROP_REWRITE;
	if (rewrite_end(skb, p, difference))
		return VERDICT_DROP_REWRITE;
	if (mss_clamp(skb, p))
		return VERDICT_DROP_REWRITE;
	if (!session_stays(session, name.tag))
		return VERDICT_DROP_SESSION_GONE;
	if (p->fragment_more)
		fragment_note(p, &name.vip, false);
	return session->direct ? fastpath_send(skb, p) : VERDICT_NONE;
}

/* The connection that a workload's packet is in, as it sees it. */
static __always_inline void reply_key(const struct packet *p, struct session_key *key)
{
	key->client = p->destination;
	key->dip = p->source;
	key->client_port = p->destination_port;
	key->dip_port = p->source_port;
	key->protocol = p->protocol;
	__builtin_memset(key->pad, 0, sizeof(key->pad));
}

/* A reply that is a fragment without ports, or an ICMP error; verdict is why it got here. */
static __always_inline enum verdict reply_slow(struct __sk_buff *skb, const struct packet *p,
					       enum verdict verdict)
{
	if (verdict == VERDICT_PASS_FRAGMENT)
		return fragment_reply(skb, p);
	if (verdict == VERDICT_PASS_OTHER && protocol_is_icmp(p->protocol) &&
	    icmp_holds_error(skb, p))
		return icmp_reply(skb, p);
	return verdict;
}

/*
 * Is the packet more likely in a session than in a connection of the workload's own? To these Linux
 * gives ports from 32768 on (net.ipv4.ip_local_port_range). It only says where to look
 * first: a connection is in one table alone, but for one that its own remote has in both.
 */
static __always_inline bool reply_is_likely(const struct packet *p)
{
	return bpf_ntohs(p->source_port) < 32768 &&
	       !(p->protocol == IPPROTO_TCP && p->tcp_flags & TCP_FLAG_SYN);
}

/*
 * Rewrites DIP to VIP if the packet replies in a session: NONE; or if it is in a connection of the
 * workload's own. It came from the interface of ifindex, or from the host itself: 0. Its source is
 * looked at before anything is noted of a session; flows know their interface.
 */
static __always_inline enum verdict reply(struct __sk_buff *skb, struct packet *p, __u32 ifindex,
					  bool at_workload)
{
	struct session_key key;
	struct session *session = NULL;
	enum verdict verdict = VERDICT_NONE, aside;

	if (!at_workload && ifindex) {
		verdict = source_check_leaving(skb, ifindex);
		if (verdict)
			return verdict;
	}
	aside = reply_parse(skb, p, at_workload);
	if (aside == VERDICT_PASS_OTHER && protocol_is_icmp(p->protocol) && settings.snat &&
	    echo_read(skb, p, true))
		aside = VERDICT_NONE;
	if (aside) {
		if (at_workload && aside == VERDICT_PASS_MALFORMED)
			source_read(skb, p); /* the parser may have stopped before it */
		verdict = at_workload ? source_check(skb, p, ifindex)
				      : source_check_passing(p, ifindex);
		if (!verdict && at_workload && source_speaks_as_agent(p))
			return VERDICT_DROP_OWN_TUNNEL;
		return verdict ?: reply_slow(skb, p, aside);
	}
	reply_key(p, &key);
	if (settings.snat && reply_is_likely(p))
		session = bpf_map_lookup_elem(&sessions, &key);
	if (settings.snat && !session)
		verdict = snat_out(skb, p, &key, ifindex);
	if (!verdict && at_workload)
		verdict = source_check(skb, p, ifindex);
	if (verdict)
		return verdict;
	session = session ?: session_lookup(&key);
	if (!session && at_workload && source_speaks_as_agent(p))
		return VERDICT_DROP_OWN_TUNNEL;
	if (!session)
		return settings.snat ? snat_new(skb, p, &key, ifindex) : VERDICT_PASS_NO_SESSION;
	if (!at_workload && source_check_passing(p, ifindex))
		return VERDICT_DROP_SPOOFED_SOURCE;
	if (settings.multipath && p->protocol == IPPROTO_TCP && is_syn_ack(p))
		multipath_learn(skb, p, session);
	return reply_rewrite(skb, p, &key, session);
}

/*
 * Where a rewritten reply goes. A client on this host must be met here: the network would not
 * bring the packet back.
 */
static __always_inline enum verdict reply_route(const struct packet *p, __u32 *ifindex)
{
	struct address client = p->destination;
	const __u32 *local = bpf_map_lookup_elem(&workloads, &client);

	if (local && *local == 0)
		return VERDICT_REPLY_HOST;
	if (local) {
		*ifindex = *local;
		return VERDICT_REPLY_INTERFACE;
	}
	*ifindex = settings.uplink;
	return VERDICT_REPLY_UPLINK;
}
