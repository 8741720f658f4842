/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The token of a connection of Multipath TCP: the first 32 bits of SHA-256 of the server's key (RFC
 * 8684, section 3.2), which stands in its SYN/ACK. What the client echoes of it is not believed.
 */
#pragma once

#include "agent/maps.h"
#include "agent/tcp_cookie.h"
#include "net/sha256.h"
#include "net/skb/tcp_options.h"

/* Options of Multipath TCP, by their length: the subtype is in the upper half of the third byte. */
enum {
	TCP_OPTION_MULTIPATH = 30,
	MULTIPATH_CAPABLE = 0,
	MULTIPATH_JOIN = 1,
	MULTIPATH_DSS = 2,
	MULTIPATH_ADD_ADDRESS = 3,
	MULTIPATH_ECHO = 1, /* of a client's announcement: none of its own */
	MULTIPATH_VERSION = 1,
	MULTIPATH_CAPABLE_LENGTH = 12, /* of a SYN/ACK: with the server's key */
	MULTIPATH_JOIN_LENGTH = 12, /* of a SYN: with the token */
};

struct multipath_capable {
	__u8 kind;
	__u8 length;
	__u8 subtype; /* and version */
	__u8 flags;
	__be32 key[2];
};

struct multipath_join_option {
	__u8 kind;
	__u8 length;
	__u8 subtype; /* and flags */
	__u8 address;
	__be32 token;
	__be32 nonce;
};

/*
 * Notes the token of a connection in its session when the workload answers the SYN. A subflow that
 * joins has got it from its SYN. Not static: the verifier looks at it once.
 */
__noinline int multipath_learn(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
			       struct session *session __arg_nonnull)
{
	struct multipath_capable option;
	__u32 at = tcp_option_offset(skb, p->l4, TCP_OPTION_MULTIPATH, 0), token = 0;

	if (at && !bpf_skb_load_bytes(skb, p->l4 + at, &option, sizeof(option))) {
		if (option.subtype >> 4 == MULTIPATH_JOIN)
			return 0;
		if (option.length == MULTIPATH_CAPABLE_LENGTH &&
		    option.subtype == (MULTIPATH_CAPABLE << 4 | MULTIPATH_VERSION))
			token = sha256_first(bpf_ntohl(option.key[0]), bpf_ntohl(option.key[1]));
	}
	if (session->token != bpf_htonl(token))
		session->token = bpf_htonl(token);
	if (session->events & SESSION_JOINED) /* of a subflow that had these ports */
		__sync_fetch_and_and(&session->events, ~SESSION_JOINED);
	return 0;
}
