/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/*
 * An IPv6 address, or an IPv4 address mapped into IPv6 (::ffff:a.b.c.d), in network byte
 * order: one path for both families. The words are the 16 bytes as the CPU loads them.
 */
struct address {
	__u32 words[4];
};

_Static_assert(sizeof(struct address) == 16, "address");
