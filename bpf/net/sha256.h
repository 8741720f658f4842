/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SHA-256 (FIPS 180-4) of 8 bytes, which is what tokens of Multipath TCP are made of. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

static const __u32 sha256_constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

static __always_inline __u32 sha256_rotate(__u32 x, __u32 by)
{
	return x >> by | x << (32 - by);
}

/* The words of the block, 16 of them at a time. */
struct sha256_block {
	__u32 words[16];
};

/* The next word of the block in the place of the one that is 16 before it. */
static __always_inline __u32 sha256_extend(struct sha256_block *block, __u32 i)
{
	__u32 a = block->words[(i + 1) & 15], b = block->words[(i + 14) & 15];

	block->words[i & 15] += block->words[(i + 9) & 15] +
				(sha256_rotate(a, 7) ^ sha256_rotate(a, 18) ^ a >> 3) +
				(sha256_rotate(b, 17) ^ sha256_rotate(b, 19) ^ b >> 10);
	return block->words[i & 15];
}

/*
 * The first 32 bits of SHA-256 of 8 bytes, given as two numbers (FIPS 180-4, section 6.2). A
 * function of its own, so that other ways have its stack.
 */
__noinline __u32 sha256_first(__u32 high, __u32 low)
{
	struct sha256_block block = { .words = { high, low, 0x80000000, [15] = 64 } };
	__u32 a = 0x6a09e667, b = 0xbb67ae85, c = 0x3c6ef372, d = 0xa54ff53a;
	__u32 e = 0x510e527f, f = 0x9b05688c, g = 0x1f83d9ab, h = 0x5be0cd19;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 64; i++) {
		__u32 word = i < 16 ? block.words[i & 15] : sha256_extend(&block, i);
		__u32 t1 = h + (sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25)) +
			   ((e & f) ^ (~e & g)) + sha256_constants[i & 63] + word;
		__u32 t2 = (sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22)) +
			   ((a & b) ^ (a & c) ^ (b & c));

		h = g;
		g = f;
		f = e;
		e = d + t1;
		d = c;
		c = b;
		b = a;
		a = t1 + t2;
	}
	return a + 0x6a09e667;
}
