/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * The SYN counters of an endpoint. With ENDPOINT_SYN_COUNTED every eighth handshake, by its hash,
 * is sampled: whether an ACK follows the SYN. If the SYN is answered here, the ACK must bring the
 * cookie back.
 */
struct syn_counter {
	__u64 syns; /* all that came, answered or forwarded */
	__u64 answered; /* with a cookie */
	__u64 tried; /* sampled handshakes: SYNs that came */
	__u64 completed; /* of those: the ACK came */
};

_Static_assert(sizeof(struct syn_counter) == 32, "syn_counter");

enum syn_sample_size {
	SYN_SAMPLES = 1 << 17, /* handshakes that can be under way at a time */
	SYN_SAMPLE_SHIFT = 3, /* one in 1 << 3 is */
};
ABI_ENUM(syn_sample_size);
