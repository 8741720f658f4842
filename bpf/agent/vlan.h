/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VLAN tags before the IP header. */
#pragma once

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
