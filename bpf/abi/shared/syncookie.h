/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * A SYN cookie is the sequence number of a SYN-ACK that is sent without state. From the lowest bit:
 *
 *    3  class of the MSS that the client announced
 *    2  tick at which it was made, the low bits
 *    2  secret that made it: the low bits of its id
 *   25  of a MAC over connection, tick, class, and the options below
 *
 * What the client offered beside it is in the TSval of the SYN-ACK, which the client sends back.
 * Without timestamps it is offered nothing. From the lowest bit:
 *
 *   13  slot of the backend, Weir's other cookie
 *    4  window scale of the client; 15: none
 *    1  the client takes selective acknowledgements
 *   14  time, in 268 ms: all in all it counts nearly as Weir's other TSvals do, 8192 in 8 ms
 */
enum syn_cookie_format {
	SYN_COOKIE_MSS_BITS = 3,
	SYN_COOKIE_TICK_BITS = 2,
	SYN_COOKIE_SECRET_BITS = 2,
	SYN_COOKIE_TICK_SHIFT = SYN_COOKIE_MSS_BITS,
	SYN_COOKIE_SECRET_SHIFT = SYN_COOKIE_TICK_SHIFT + SYN_COOKIE_TICK_BITS,
	SYN_COOKIE_MAC_SHIFT = SYN_COOKIE_SECRET_SHIFT + SYN_COOKIE_SECRET_BITS,
	SYN_COOKIE_SECRETS = 1 << SYN_COOKIE_SECRET_BITS,
	SYN_COOKIE_TICK = 36, /* a tick has 1 << 36 ns: 69 s */
	SYN_COOKIE_WSCALE = 9, /* that a SYN-ACK with a cookie announces, if any */
	SYN_COOKIE_WINDOW = 16384, /* and its window: enough for what a client sends at once */
};
ABI_ENUM(syn_cookie_format);

/* What a client offered, as TSval has it behind the slot. */
enum syn_option {
	SYN_OPTION_WSCALE = 15, /* mask of the window scale; all of it: none */
	SYN_OPTION_SACK = 16,
	SYN_OPTION_MASK = 31,
	SYN_OPTION_TIMESTAMPS = 32, /* never in TSval: it says that there was one */
};
ABI_ENUM(syn_option);

struct syn_secret {
	__u64 key[2];
	__u32 id; /* 0: none */
	__u32 pad;
};

/*
 * The secrets of the cluster. User space writes a row only while no cookie of it is right, and has
 * `makes` name one only that is there already.
 */
struct syn_secrets {
	__u64 clock; /* CLOCK_MONOTONIC and this is the time since 1970, in ns; 0: no cookies yet */
	__u32 makes; /* row that new cookies are made with */
	__u32 pad;
	struct syn_secret rows[SYN_COOKIE_SECRETS]; /* by the low bits of the id */
};

_Static_assert(sizeof(struct syn_secret) == 24, "syn_secret");
_Static_assert(sizeof(struct syn_secrets) == 112, "syn_secrets");
