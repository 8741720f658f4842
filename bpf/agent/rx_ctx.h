/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Context of a received packet, and the NAT rule that it belongs to. */
#pragma once

#include "abi/agent/multipath.h"
#include "abi/agent/steer.h"
#include "agent/maps.h"
#include "agent/session.h"
#include "net/skb/decap.h"

/* A handshake that a mux answered with a SYN cookie, as the client's first segment has it. */
struct handshake {
	__u32 cookie; /* the mux's initial sequence number: the cookie */
	__u32 seq; /* of the client's first byte */
	__u32 options; /* enum syn_option */
	__u32 mss; /* that the client announced, or less; 0: no option */
	struct timestamps ts;
	__u32 ifindex; /* of the workload's interface */
	__u16 window;
	bool native;
	bool listens; /* a socket of the host's own stack listens for it */
};

/* Kind of a decapsulated packet. Its permitted senders depend on that: see admission.h. */
enum content {
	CONTENT_REFUSED = 0, /* nothing that a workload may get */
	CONTENT_ENDPOINT, /* to an endpoint, by a rule of this host */
	CONTENT_ANSWER, /* to no endpoint: the reply to a connection of source NAT, or stray */
	CONTENT_ECHO, /* the same, an ICMP echo reply */
	CONTENT_ERROR, /* an ICMP error */
	CONTENT_PING, /* an ICMP echo request: for VIPs that switches hold alone */
	CONTENT_FRAGMENT, /* one whose ports nothing says: likewise */
};

/* Where a packet goes on to, in GUE. */
struct hop {
	struct address to;
	struct address other; /* that the packet names, if step is not GUE_CHAIN_NONE */
	enum gue_chain step;
	enum gue_kind kind;
};

/* What steering chose for a packet that a switch brought. */
struct steering {
	__u32 slot; /* 0: none */
	__u32 previous; /* of the backend that may know the connection if that of slot does not */
	enum steer_reason reason;
	__u16 port; /* of the endpoint's key */
};

/* Context of a received, encapsulated packet. It is too large for the stack, so it lives in a map.
 */
struct rx_ctx {
	struct packet outer;
	struct packet inner;
	struct tunnel tunnel;
	enum content content;
	enum content rare; /* CONTENT_PING or CONTENT_FRAGMENT, if it is one */
	bool past_muxes; /* from the Fastpath peer of the connection */
	enum steer_role from; /* a switch that holds the VIP, or a host of it in IP; 0: another */
	struct nat_rule_key key; /* of rule */
	struct nat_rule rule;
	struct handshake handshake;
	struct session fresh; /* scratch: a session that a SYN cookie begins */
	struct hop hop;
	struct steering steering;
	struct packet
		client; /* of the connection that an ICMP error is about: ports and addresses */
	/* Of Multipath TCP, see multipath.h. */
	__be32 join; /* token of a SYN that joins a connection; 0: it does not */
	__u32 proven; /* the client had proven that it is there before this packet */
	bool asks; /* the host that has the subflow is to say so once more */
	bool unconfirmed; /* it has said so of a SYN alone, which may be forged */
	struct multipath_name name;
	struct multipath_holder holder;
	struct multipath_home_key home;
	struct multipath_homes homes;
	struct multipath_flow flow;
	struct multipath_joined joined;
	__u32 until_sample; /* packets, on this CPU: see sample.h */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rx_ctx);
} rx_ctxs SEC(".maps");

/* The session of the packet inside, by a->rule. */
static __always_inline struct session_key rx_session_key(const struct rx_ctx *a)
{
	return session_key_of(&a->inner, &a->rule);
}

/*
 * Finds the NAT rule for key: that of its port, else that of all ports, which keeps the port.
 */
static __always_inline bool rule_find(struct nat_rule_key *key, struct nat_rule *rule)
{
	const struct nat_rule *found = bpf_map_lookup_elem(&nat_rules, key);
	__be16 port = key->port;

	if (!found) {
		key->port = 0;
		found = bpf_map_lookup_elem(&nat_rules, key);
	}
	if (!found)
		return false;
	*rule = *found;
	if (!rule->port)
		rule->port = port;
	return true;
}
