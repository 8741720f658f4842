/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SipHash-2-4 (Aumasson and Bernstein), a keyed hash for short messages. The caller gives the words
 * of a message whose length is a multiple of eight bytes, or puts the length into the last one.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline struct sip sip_begin(const __u64 *key)
{
	struct sip s = {
		.v0 = key[0] ^ 0x736f6d6570736575ULL,
		.v1 = key[1] ^ 0x646f72616e646f6dULL,
		.v2 = key[0] ^ 0x6c7967656e657261ULL,
		.v3 = key[1] ^ 0x7465646279746573ULL,
	};

	return s;
}

static __always_inline __u64 sip_rotate(__u64 word, __u32 bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v1 = sip_rotate(s->v1, 13) ^ s->v0;
	s->v0 = sip_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = sip_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = sip_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = sip_rotate(s->v1, 17) ^ s->v2;
	s->v2 = sip_rotate(s->v2, 32);
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

static __always_inline __u64 sip_end(struct sip *s)
{
	s->v2 ^= 0xff;
#pragma unroll
	for (int i = 0; i < 4; i++)
		sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}
