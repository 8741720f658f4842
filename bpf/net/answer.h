/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An answer that goes by a mux: VXLAN from a server's host to a mux, which sends it on to the
 * client's host. It is as long as what the mux sends on: what authenticates it stands where VXLAN
 * has reserved bits, and the inner frame its source. A network card cuts a long segment into
 * several and copies these, so the MAC is of a connection, not of its numbers. internal/fbt has the
 * twin.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"
#include "abi/shared/fbt.h"
#include "net/siphash.h"
#include "net/vxlan.h"

enum {
	ANSWER_DOMAIN = 0x41, /* first byte under the MAC: that of FBTs is FBT_KIND */
	ANSWER_MAC_BITS = 48,
	ANSWER_MAC_BYTES = 6 * 8 + 3, /* what the MAC is of */
};

/* What the MAC is of. */
struct answer {
	__u32 vni;
	__u32 host; /* number of the client's host */
	struct address client;
	struct address vip;
	__be16 client_port;
	__be16 vip_port;
	__u8 mac[6]; /* of the client: the inner frame's destination */
	__u8 protocol; /* TCP or UDP */
	__u8 pad;
};

/* SipHash-2-4 under a key of the server's host, as the inner frame's source has it. */
static __always_inline void answer_mac(const struct fbt_key *key, const struct answer *a, __u8 *to)
{
	const __u32 *c = a->client.words, *v = a->vip.words;
	struct sip s = sip_begin(key->key);
	__u64 mac = 0;

	__builtin_memcpy(&mac, a->mac, sizeof(a->mac));
	sip_word(&s, ANSWER_DOMAIN | (__u64)a->vni << 8 | (__u64)a->host << 32);
	sip_word(&s, mac | (__u64)a->client_port << ANSWER_MAC_BITS);
	sip_word(&s, c[0] | (__u64)c[1] << 32);
	sip_word(&s, c[2] | (__u64)c[3] << 32);
	sip_word(&s, v[0] | (__u64)v[1] << 32);
	sip_word(&s, v[2] | (__u64)v[3] << 32);
	sip_word(&s, a->vip_port | (__u64)a->protocol << 16 | (__u64)ANSWER_MAC_BYTES << 56);
	mac = sip_end(&s);
	__builtin_memcpy(to, &mac, ANSWER_MAC_BITS / 8);
}

/* Is it an answer's header? */
static __always_inline bool vxlan_is_answer(const struct vxlan *h)
{
	return h->flags == VXLAN_FLAGS && (h->route & ~VXLAN_ANSWER_KEY) == VXLAN_ANSWER;
}

/* Makes a header that of an answer to a host's client, under the key of an id. */
static __always_inline void answer_mark(struct vxlan *h, __u32 host, __u32 key)
{
	vni_write(h->reserved, host);
	h->route = VXLAN_ANSWER | (key & VXLAN_ANSWER_KEY);
}
