/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071), of words as the CPU loads them. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/* The checksum after a word under it was changed (RFC 1624, equation 3). */
static __always_inline __sum16 checksum_replace(__sum16 checksum, __u16 from, __u16 to)
{
	__u32 sum = (__u16)~checksum + (__u16)~from + to;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

enum {
	CHECKSUM_CHUNK = 64,
	CHECKSUM_CHUNKS = 20, /* 1280 bytes */
};

/*
 * Adds length bytes of the frame at offset, at most a chunk, to the sum; negative when they are not
 * there. Functions of their own, which the verifier walks once.
 */
__noinline __s64 checksum_chunk(struct xdp_md *ctx, __u32 offset, __u32 length, __s64 sum)
{
	__u8 chunk[CHECKSUM_CHUNK] = {};

	if (length < 1 || length > CHECKSUM_CHUNK)
		return -1;
	if (bpf_xdp_load_bytes(ctx, offset, chunk, length))
		return -1;
	return bpf_csum_diff(NULL, 0, (__be32 *)chunk, sizeof(chunk), sum);
}

/* The sum, not folded, of length bytes of the frame at offset; 0 when they are not there. */
__noinline __u64 checksum_frame(struct xdp_md *ctx, __u32 offset, __u32 length)
{
	__s64 sum = 0;

	for (int i = 0; i < CHECKSUM_CHUNKS && length; i++) {
		__u32 size = length < CHECKSUM_CHUNK ? length : CHECKSUM_CHUNK;

		sum = checksum_chunk(ctx, offset, size, sum);
		if (sum < 0)
			return 0;
		offset += size;
		length -= size;
	}
	return sum;
}
