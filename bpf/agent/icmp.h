/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors belong to the connection of the packet that they quote. Inward, about a reply that
 * left as the VIP's, the workload must find in it what it sent itself; outward, about a packet of
 * the client's, the client must. The quoted transport checksum is left as it is: nobody can
 * verify it, for the quote is cut.
 */
#pragma once

#include "agent/snat/flow.h"
#include "agent/maps.h"
#include "agent/chain.h"
#include "net/skb/quote.h"

enum { ICMP_IDENTIFIER = 4 }; /* offset of it in an echo */

static __always_inline bool protocol_is_icmp(__u8 protocol)
{
	return protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6;
}

/* Of a quoted echo request the identifier is its port. */
static __always_inline bool icmp_read_echo(struct __sk_buff *skb, const struct packet *p,
					   struct packet *quoted)
{
	bool v4 = quoted->ethertype == bpf_htons(ETH_P_IP);
	struct icmp_header icmp;

	if (quoted->l4 + sizeof(icmp) > p->l3 + p->l3_length ||
	    bpf_skb_load_bytes(skb, quoted->l4, &icmp, sizeof(icmp)))
		return false;
	if (quoted->protocol != (v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) ||
	    icmp.type != (v4 ? ICMP_ECHO : ICMPV6_ECHO))
		return false;
	quoted->source_port = bpf_htons(bpf_ntohl(icmp.rest) >> 16);
	quoted->destination_port = 0;
	return true;
}

/* The packet that an error p quotes: addresses, ports, protocol and offsets. */
static __noinline bool icmp_read_quoted(struct __sk_buff *skb, const struct packet *p,
					struct packet *quoted)
{
	if (!quote_read_ip(skb, p, quoted))
		return false;
	if (protocol_is_icmp(quoted->protocol) && (settings.snat || settings.steered))
		return icmp_read_echo(skb, p, quoted);
	return quote_read_ports(skb, p, quoted);
}

/* What an address of an error, and the port with it in the quote, become. */
struct icmp_target {
	struct address address;
	__be16 port;
	enum side side; /* of the error */
	__u32 shift; /* by which the quoted sequence number is to be less */
};

/* The sequence number in what p quotes of a session whose numbers are translated. */
static __noinline int icmp_rewrite_number(struct __sk_buff *skb, const struct packet *p,
					  const struct packet *quoted, __u32 shift)
{
	__u32 at = quoted->l4 + offsetof(struct tcphdr, seq);
	__be32 from, to;
	int err;

	if (at + sizeof(from) > p->l3 + p->l3_length) /* so much is not quoted */
		return 0;
	if (bpf_skb_load_bytes(skb, at, &from, sizeof(from)))
		return -1;
	to = bpf_htonl(bpf_ntohl(from) - shift);
	err = bpf_l4_csum_replace(skb, p->l4 + 2, from, to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

/*
 * Replaces an address of the error p, and the same one with its port on the other side of what it
 * quotes.
 */
static __noinline int icmp_rewrite(struct __sk_buff *skb, const struct packet *p,
				   const struct packet *quoted, const struct icmp_target *to)
{
	enum side side = to->side, inside = side == SOURCE ? DESTINATION : SOURCE;
	struct address from = side == SOURCE ? p->source : p->destination;
	__be16 from_port = inside == SOURCE ? quoted->source_port : quoted->destination_port;
	struct address target = to->address;
	__be16 port = to->port;
	__u32 at = quoted->l4 + inside * sizeof(port);
	int err;

	if (protocol_is_icmp(quoted->protocol))
		at = quoted->l4 + ICMP_IDENTIFIER;

	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		err = icmp_rewrite_v4(skb, p->l3, side, from.words[3], target.words[3]);
		err = err
			      ?: icmp_rewrite_v4(skb, quoted->l3, inside, from.words[3],
						 target.words[3]);
	} else {
		err = icmp_rewrite_v6(skb, p, p->l3, side, &from, &target);
		err = err ?: icmp_rewrite_v6(skb, p, quoted->l3, inside, &from, &target);
	}
	if (!err && to->shift)
		err = icmp_rewrite_number(skb, p, quoted, to->shift);
	if (err || from_port == port)
		return err;
	err = bpf_l4_csum_replace(skb, p->l4 + 2, from_port, port, sizeof(port));
	return err ?: bpf_skb_store_bytes(skb, at, &port, sizeof(port), 0);
}

/* Is what an error quotes of a workload's own connection? Then rule says whose. */
static __always_inline bool icmp_find_snat(const struct packet *quoted, struct nat_rule *rule)
{
	struct snat_port_key key = {
		.vip = quoted->source,
		.remote = quoted->destination,
		.port = quoted->source_port,
		.remote_port = quoted->destination_port,
		.protocol = quoted->protocol,
	};
	const struct snat_port *port = bpf_map_lookup_elem(&snat_ports, &key);

	if (!port)
		return false;
	rule->dip = port->dip;
	rule->port = port->dip_port;
	return true;
}

/* By how much the client sees higher numbers than the workload that a->rule names; 0 mostly. */
static __noinline __u32 icmp_shift(const struct rx_ctx *a, const struct packet *quoted)
{
	struct session_key key = {
		.client = quoted->destination,
		.dip = a->rule.dip,
		.client_port = quoted->destination_port,
		.dip_port = a->rule.port,
		.protocol = quoted->protocol,
	};
	const struct session *session = session_lookup(&key);

	return session && session->events & SESSION_REPLAYED ? session->shift : 0;
}

/* Whose reply an error quotes: the rule in a->rule, NONE if its workload knows the connection. */
static __noinline enum verdict icmp_find(struct __sk_buff *skb, struct rx_ctx *a,
					 const struct packet *quoted)
{
	struct packet client = {
		.source = quoted->destination,
		.destination = quoted->source,
		.source_port = quoted->destination_port,
		.destination_port = quoted->source_port,
		.protocol = quoted->protocol,
	};

	a->key.vip = quoted->source;
	a->key.tunnel = a->outer.destination;
	a->key.port = quoted->source_port;
	a->key.protocol = quoted->protocol;
	a->key.pad = 0;
	if (!address_equal(&quoted->source, &a->inner.destination))
		return VERDICT_DROP_ICMP_UNKNOWN;
	if (settings.snat && icmp_find_snat(quoted, &a->rule))
		return VERDICT_NONE;
	if (!rule_find(&a->key, &a->rule))
		return VERDICT_DROP_NO_RULE;
	return chain_knows(skb, &client, &a->rule, false) ? VERDICT_NONE
							  : VERDICT_DROP_ICMP_UNKNOWN;
}

/* An error from the network to the workload whose reply it quotes. Sets ifindex, as inbound(). */
static __noinline enum verdict icmp_inbound(struct __sk_buff *skb, struct rx_ctx *a, __u32 *ifindex)
{
	struct packet quoted = {};
	struct icmp_target to = {};
	enum verdict verdict;
	const __u32 *workload;

	if (!icmp_read_quoted(skb, &a->inner, &quoted))
		return VERDICT_DROP_ICMP_UNKNOWN;
	verdict = icmp_find(skb, a, &quoted);
	if (verdict)
		return verdict;
	workload = bpf_map_lookup_elem(&workloads, &a->rule.dip);
	if (!workload)
		return VERDICT_DROP_NO_WORKLOAD;

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &a->inner))
		return VERDICT_DROP_DECAPSULATE;
	quoted.l3 -= a->tunnel.header;
	quoted.l4 -= a->tunnel.header;
	to.address = a->rule.dip;
	to.port = a->rule.port;
	to.side = DESTINATION;
	to.shift = icmp_shift(a, &quoted);
	if (icmp_rewrite(skb, &a->inner, &quoted, &to))
		return VERDICT_DROP_REWRITE;
	*ifindex = *workload;
	return *workload ? VERDICT_DELIVER_INTERFACE : VERDICT_DELIVER_NATIVE;
}

/* An error of a workload, or of its host, about a client's packet: it must speak of the VIP. */
static __noinline enum verdict icmp_reply(struct __sk_buff *skb, const struct packet *p)
{
	struct packet quoted = {};
	const struct session *session;
	const struct snat_flow *flow;
	struct icmp_target to = {};
	struct session_key key = {};

	if (!icmp_read_quoted(skb, p, &quoted) || !address_equal(&quoted.source, &p->destination) ||
	    !address_equal(&quoted.destination, &p->source))
		return VERDICT_PASS_OTHER;
	key.client = quoted.source;
	key.dip = quoted.destination;
	key.client_port = quoted.source_port;
	key.dip_port = quoted.destination_port;
	key.protocol = quoted.protocol;
	session = session_lookup(&key);
	flow = session || !settings.snat ? NULL : bpf_map_lookup_elem(&snat_flows, &key);
	if (session) {
		to.address = session->vip;
		to.port = session->vip_port;
		if (!session_names(session, &key, &to.address, to.port))
			return VERDICT_DROP_SESSION_GONE;
	} else if (flow && flow->queued & SNAT_OPEN) {
		to.address = flow->vip;
		to.port = flow->vip_port;
	} else {
		return VERDICT_PASS_NO_SESSION;
	}
	to.side = SOURCE;
	return icmp_rewrite(skb, p, &quoted, &to) ? VERDICT_DROP_REWRITE : VERDICT_NONE;
}
