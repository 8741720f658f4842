/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames and packets that no router forwards: to another Ethernet address (RFC 1122, section
 * 3.3.6), and from an address that is no host's (RFC 1812, section 5.3.7).
 */
#pragma once

#include "mux/endpoint.h"
#include "mux/maps.h"
#include "net/packet.h"

/*
 * Is the frame, whose Ethernet header is at hand, to the interface's own address? The kernel asks
 * this behind XDP only (PACKET_OTHERHOST). One word: the shift takes off what is of the source.
 */
static __always_inline bool frame_is_ours(const void *data)
{
	return *(const __u64 *)data << 16 == settings.mac;
}

/*
 * Can the source be a host's? A reply to a group or to nobody would make trouble for others. Most
 * of IPv6 takes a look at one word.
 */
static __always_inline bool source_is_host(const struct packet *p)
{
	const __u32 *words = p->source.words;
	__u32 first;

	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		first = words[3] & 0xff;
		return first - 1 < 223 && first != 127;
	}
	return (words[0] & 0xff) != 0xff &&
	       (words[0] || words[1] | words[2] | (words[3] & ~bpf_htonl(1)));
}

/* Do workloads leave as the VIP? Rare, so a function of its own. */
__noinline int vip_is_source(const struct address *vip)
{
	struct endpoint *row = vip ? vip_of(vip) : NULL;

	return row && row->flags & ENDPOINT_SNAT;
}

/*
 * To be asked of a packet to a VIP: does it come from where no packet comes from? From the VIP
 * itself only what workloads send that leave as it.
 */
static __always_inline bool source_is_martian(const struct packet *p)
{
	struct address vip;

	if (!source_is_host(p))
		return true;
	if (p->source.words[3] != p->destination.words[3] ||
	    !address_equal(&p->source, &p->destination))
		return false;
	vip = p->destination; /* a copy: what has an address is kept in memory */
	return !vip_is_source(&vip);
}
