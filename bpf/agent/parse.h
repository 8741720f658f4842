/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading a frame: the VLAN tags before its IP header, and what its parser found as a verdict. */
#pragma once

#include "abi/agent/verdict.h"
#include "net/skb/frame.h"

enum {
	FRAME_TAGS_MAX = 4, /* one behind the other; what has more is left alone, or refused */
	FRAME_VID_MASK = 0xfff,
};

/* VID of the outermost tag of a tagged frame. */
static __always_inline __u16 frame_vid(struct __sk_buff *skb)
{
	__be16 tci = bpf_htons(FRAME_VID_MASK);

	if (skb->vlan_present)
		return skb->vlan_tci & FRAME_VID_MASK;
	bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &tci, sizeof(tci));
	return bpf_ntohs(tci) & FRAME_VID_MASK;
}

/*
 * Takes off priority tags (IEEE 802.1Q, VID 0), which say no VLAN: the kernel would do so behind
 * us, and give the packet to IP. Is the frame tagged still?
 */
static __noinline bool frame_untag(struct __sk_buff *skb)
{
	for (int i = 0; i < FRAME_TAGS_MAX; i++) {
		if (!frame_is_tagged(skb))
			return false;
		if (frame_vid(skb) || bpf_skb_vlan_pop(skb))
			return true;
	}
	return frame_is_tagged(skb);
}

/* Why the packet is not one that the programs go on with; NONE: it is. */
static __always_inline enum verdict parse_verdict(enum parsed parsed)
{
	switch (parsed) {
	case PARSED_OK:
		return VERDICT_NONE;
	case PARSED_EXTENSIONS:
	case PARSED_OTHER:
		return VERDICT_PASS_OTHER;
	case PARSED_FRAGMENT:
		return VERDICT_PASS_FRAGMENT;
	case PARSED_MALFORMED:
		break;
	}
	return VERDICT_PASS_MALFORMED;
}
