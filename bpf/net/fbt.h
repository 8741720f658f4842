/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Fast Bypass TCP option and its MAC: muxes make it, servers' hosts check it. internal/fbt is
 * the twin in Go. Nothing here reads a packet or calls a helper, so XDP and TC programs share it.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"
#include "abi/shared/fbt.h"
#include "net/packet.h"
#include "net/siphash.h"
#include "net/vxlan.h"

/* What the MAC is of, beside the option. */
struct fbt_segment {
	struct address outer; /* destination of the VXLAN packet: a tunnel of the server's host */
	struct address client;
	struct address vip;
	__be16 client_port;
	__be16 vip_port;
	__be32 seq; /* as on the wire */
};

/* What an option says. */
struct fbt_content {
	__u32 vni;
	__be32 host; /* IPv4 address of the client's host; with FBT_NUMBER its number */
	__u8 flags; /* FBT_NUMBER, FBT_VIA */
};

/* Is that the option's head? Another version is not ours to read. */
static __always_inline bool fbt_is_ours(const struct fbt *o)
{
	return o->kind == FBT_KIND && o->length == FBT_LENGTH && o->exid == bpf_htons(FBT_EXID) &&
	       (o->bits & FBT_VERSION_MASK) == FBT_VERSION;
}

static __always_inline __u32 fbt_key_row(const struct fbt *o)
{
	return o->bits >> FBT_KEY_SHIFT & (FBT_KEYS - 1);
}

/*
 * SipHash-2-4 of the option's first 12 bytes, the sequence number, the ports, and the addresses:
 * four bytes of those that are IPv4. Each combination of families has a length of its own.
 */
static __always_inline __u32 fbt_mac(const struct fbt_key *key, const struct fbt *o,
				     const struct fbt_segment *t)
{
	const __u32 *c = t->client.words, *v = t->vip.words, *d = t->outer.words;
	struct sip s = sip_begin(key->key);
	__u64 words = 4, head;
	__u32 ports = t->client_port | (__u32)t->vip_port << 16;

	__builtin_memcpy(&head, o, sizeof(head));
	sip_word(&s, head);
	sip_word(&s, o->host | (__u64)t->seq << 32);
	if (address_is_v4(&t->outer)) {
		sip_word(&s, ports | (__u64)d[3] << 32);
	} else {
		sip_word(&s, ports);
		sip_word(&s, d[0] | (__u64)d[1] << 32);
		sip_word(&s, d[2] | (__u64)d[3] << 32);
		words += 2;
	}
	if (address_is_v4(&t->vip)) {
		sip_word(&s, c[3] | (__u64)v[3] << 32);
	} else {
		sip_word(&s, c[0] | (__u64)c[1] << 32);
		sip_word(&s, c[2] | (__u64)c[3] << 32);
		sip_word(&s, v[0] | (__u64)v[1] << 32);
		sip_word(&s, v[2] | (__u64)v[3] << 32);
		words += 3;
	}
	sip_word(&s, words * 8 << 56);
	return sip_end(&s);
}

static __always_inline __u8 fbt_bits(const struct fbt_key *key, const struct fbt_content *says)
{
	return FBT_VERSION | (says->flags & (FBT_NUMBER | FBT_VIA)) |
	       (key->id & (FBT_KEYS - 1)) << FBT_KEY_SHIFT;
}

/* The option of a segment, under a key of the host that receives it. */
static __always_inline void fbt_write(struct fbt *o, const struct fbt_key *key,
				      const struct fbt_segment *t, const struct fbt_content *says)
{
	o->kind = FBT_KIND;
	o->length = FBT_LENGTH;
	o->exid = bpf_htons(FBT_EXID);
	vni_write(o->vni, says->vni);
	o->bits = fbt_bits(key, says);
	o->host = says->host;
	o->mac = fbt_mac(key, o, t);
}
