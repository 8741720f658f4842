/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYN cookies: muxes make them, hosts check them. internal/syncookie is the twin in Go.
 * Nothing here reads a packet or calls a helper, so XDP and TC programs share it.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"
#include "abi/shared/slot.h"
#include "abi/shared/syncookie.h"
#include "net/packet.h"
#include "net/siphash.h"

/* A connection that is to be. */
struct syn_flow {
	struct address client;
	struct address vip;
	__be16 client_port;
	__be16 vip_port;
	__be32 isn; /* of the client's SYN, as on the wire */
	__u32 vni; /* of the network that both addresses are of; 0: none */
};

/* What became of the check, if it is not an MSS. */
enum syn_refusal {
	SYN_REFUSED_FORGED = -1, /* none of ours, or of another connection */
	SYN_REFUSED_OLD = -2, /* its tick is over, or its secret is not valid any more */
};

/*
 * SipHash-2-4 (Aumasson and Bernstein) of the connection's addresses, four bytes of each for IPv4,
 * the VNI in eight bytes if there is one, ports and the client's ISN, all but the VNI as on the
 * wire; then the tick, and detail in two bytes. Each kind of connection has a length of its own.
 */
static __always_inline __u64 syn_mac(const struct syn_secret *secret, const struct syn_flow *flow,
				     __u32 tick, __u32 detail)
{
	const __u32 *c = flow->client.words, *v = flow->vip.words;
	__u64 last = tick | (__u64)detail << 32;
	struct sip s = sip_begin(secret->key);

	if (address_is_v4(&flow->vip)) {
		sip_word(&s, c[3] | (__u64)v[3] << 32);
		last |= 22ULL << 56; /* bytes in all */
	} else {
		sip_word(&s, c[0] | (__u64)c[1] << 32);
		sip_word(&s, c[2] | (__u64)c[3] << 32);
		sip_word(&s, v[0] | (__u64)v[1] << 32);
		sip_word(&s, v[2] | (__u64)v[3] << 32);
		last |= 46ULL << 56;
	}
	if (flow->vni) {
		sip_word(&s, flow->vni);
		last += 8ULL << 56;
	}
	sip_word(&s, flow->client_port | (__u32)flow->vip_port << 16 | (__u64)flow->isn << 32);
	sip_word(&s, last);
	return sip_end(&s);
}

/* The largest MSS of a class. */
static __always_inline __u32 syn_mss(__u32 class)
{
	switch (class) {
	case 0:
		return 536;
	case 1:
		return 1220;
	case 2:
		return 1300;
	case 3:
		return 1360;
	case 4:
		return 1400;
	case 5:
		return 1440;
	case 6:
		return 1460;
	default:
		return 8940;
	}
}

/* The class of the largest MSS that is not above the client's, or the lowest. */
static __always_inline __u32 syn_class(__u32 mss)
{
	if (mss >= 1440)
		return mss >= 1460 ? 6 + (mss >= 8940) : 5;
	if (mss >= 1300)
		return mss >= 1360 ? 3 + (mss >= 1400) : 2;
	return mss >= 1220;
}

static __always_inline __u32 syn_detail(__u32 class, __u32 options)
{
	return class | options << SYN_COOKIE_MSS_BITS;
}

/*
 * The cookie of a SYN at a time since 1970 in ns, made with a secret that has an id. Options are of
 * enum syn_option: without timestamps no other can be kept, and they are to be 0.
 */
static __always_inline __u32 syn_cookie_make(const struct syn_secret *secret,
					     const struct syn_flow *flow, __u32 mss, __u32 options,
					     __u64 time)
{
	__u32 class = syn_class(mss), tick = time >> SYN_COOKIE_TICK;
	__u32 mac = syn_mac(secret, flow, tick, syn_detail(class, options));

	return mac << SYN_COOKIE_MAC_SHIFT |
	       (secret->id & (SYN_COOKIE_SECRETS - 1)) << SYN_COOKIE_SECRET_SHIFT |
	       (tick & ((1 << SYN_COOKIE_TICK_BITS) - 1)) << SYN_COOKIE_TICK_SHIFT | class;
}

/* The TSval of the SYN-ACK. Without the time it is what the client must send back. */
static __always_inline __u32 syn_tsval(__u32 slot, __u32 options, __u64 time)
{
	__u32 clock = time >> 28;

	return clock << 18 | (options & SYN_OPTION_MASK) << SLOT_BITS | slot;
}

/* The options that a TSval has kept, of a segment with timestamps. */
static __always_inline __u32 syn_options(__u32 tsecr)
{
	return (tsecr >> SLOT_BITS & SYN_OPTION_MASK) | SYN_OPTION_TIMESTAMPS;
}

/*
 * The row of the secret that a cookie says it is of. The caller reads the
 * secret there and asks its id: 0 means that the cookie is old.
 */
static __always_inline __u32 syn_cookie_row(__u32 cookie)
{
	return cookie >> SYN_COOKIE_SECRET_SHIFT & (SYN_COOKIE_SECRETS - 1);
}

/*
 * The MSS of the client if the cookie is right and of this tick, the one before, or the next one,
 * as the clock of its mux may be ahead; else enum syn_refusal.
 */
static __always_inline __s32 syn_cookie_check(const struct syn_secret *secret,
					      const struct syn_flow *flow, __u32 cookie,
					      __u32 options, __u64 time)
{
	const __u32 ticks = (1 << SYN_COOKIE_TICK_BITS) - 1;
	__u32 class = cookie & ((1 << SYN_COOKIE_MSS_BITS) - 1);
	__u32 now = time >> SYN_COOKIE_TICK;
	__u32 age = (now - (cookie >> SYN_COOKIE_TICK_SHIFT)) & ticks;
	__u32 tick, mac;

	if (!secret->id || age == 2)
		return SYN_REFUSED_OLD;
	tick = age == ticks ? now + 1 : now - age;
	mac = syn_mac(secret, flow, tick, syn_detail(class, options));
	if ((mac ^ cookie >> SYN_COOKIE_MAC_SHIFT) << SYN_COOKIE_MAC_SHIFT)
		return SYN_REFUSED_FORGED;
	return syn_mss(class);
}
