/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The keyed hash of a five-tuple, and of the VNI that it is in, that chooses a bucket, the same on
 * every mux of a pool. NH, the universal hash of UMAC (RFC 4418, section 5.2.2), with a secret key,
 * then the finaliser of MurmurHash3 so that the low bits, which the mask keeps, depend on all of
 * it. The products are independent of each other, so they overlap in the CPU: about as quick as one
 * round of jhash, for v6 as for v4. internal/flowhash is its twin in Go.
 */
#pragma once

#include "abi/shared/flowhash.h"
#include "net/packet.h"

static __always_inline __u64 nh_term(__u32 a, __u32 b, const __u32 *key)
{
	return (__u64)(__u32)(a + key[0]) * (__u32)(b + key[1]);
}

/*
 * Of a flow in a virtual network; VNI 0: in none. The low 32 bits choose the bucket; all 64 tell
 * flows apart.
 */
static __always_inline __u64 flowhash_in(__u32 vni, const struct packet *p,
					 const struct flowhash_key *key)
{
	const __u32 *s = p->source.words, *d = p->destination.words;
	const __u32 *k = key->words;
	__u32 ports = (__u32)p->destination_port << 16 | p->source_port;
	__u32 protocol = p->protocol | vni << 8;
	__u64 h;

	h = nh_term(s[0], s[1], k) + nh_term(s[2], s[3], k + 2) + nh_term(d[0], d[1], k + 4) +
	    nh_term(d[2], d[3], k + 6) + nh_term(ports, protocol, k + 8);
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return h;
}

static __always_inline __u64 flowhash(const struct packet *p, const struct flowhash_key *key)
{
	return flowhash_in(0, p, key);
}
