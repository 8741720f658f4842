/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sockets of the host's own stack, for backends that are processes of the host. */
#pragma once

#include "agent/maps.h"
#include "agent/session.h"

/* The TCP socket of the host's own stack for the client's packet, or NULL; to be released. */
static __always_inline struct bpf_sock *socket_find(struct __sk_buff *skb,
						    const struct session_key *key)
{
	bool v4 = address_is_v4(&key->client);
	struct bpf_sock_tuple tuple = {};

	if (v4) {
		tuple.ipv4.saddr = key->client.words[3];
		tuple.ipv4.daddr = key->dip.words[3];
		tuple.ipv4.sport = key->client_port;
		tuple.ipv4.dport = key->dip_port;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &key->client, sizeof(key->client));
		__builtin_memcpy(tuple.ipv6.daddr, &key->dip, sizeof(key->dip));
		tuple.ipv6.sport = key->client_port;
		tuple.ipv6.dport = key->dip_port;
	}
	return bpf_skc_lookup_tcp(skb, &tuple, v4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6),
				  BPF_F_CURRENT_NETNS, 0);
}

/* The state (BPF_TCP_*) of that socket; 0: there is none. */
static __noinline __u32 socket_state(struct __sk_buff *skb, const struct session_key *key)
{
	struct bpf_sock *socket = socket_find(skb, key);
	__u32 state;

	if (!socket)
		return 0;
	state = socket->state;
	bpf_sk_release(socket);
	return state;
}
