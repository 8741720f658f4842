/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cookies: the client is told TSval in ticks, with the backend's slot below them, and its TSecr is
 * turned back into what the workload sent. Neither end notices.
 *
 *   workload's TSval   tttttttttttttttttttttttttttttttt
 *   client's           ttttttttttttttttttt sssssssssssss      shifted left by cookie_scale
 */
#pragma once

#include "abi/agent/session.h"
#include "agent/maps.h"
#include "agent/steer_workload.h"
#include "net/skb/timestamps.h"

#define COOKIE_MASK ((1U << COOKIE_BITS) - 1)

static __always_inline bool timestamp_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static __always_inline __u32 cookie_make(const struct session *session, __u32 tsval)
{
	return (tsval << session->cookie_scale & ~COOKIE_MASK) | session->cookie;
}

/* The bits of TSval below a tick. */
static __always_inline __u32 cookie_tick_mask(const struct session *session)
{
	return COOKIE_MASK >> session->cookie_scale;
}

/* Where session.tsvals keeps the tick of tsval. */
static __always_inline __u32 *cookie_tick(struct session *session, __u32 tsval)
{
	__u32 scale = session->cookie_scale;
	__u32 tick = scale < COOKIE_BITS ? tsval >> (COOKIE_BITS - scale) : tsval;

	return &session->tsvals[tick & (SESSION_TICKS - 1)];
}

/*
 * The last TSval that the workload sent in the tick that the client echoes. If that is too long
 * ago to be known, the highest of the tick: a measured round trip is then too short by less than a
 * tick, and what was sent is never taken for later than its echo. Never above the last one sent.
 * 0, which means none, if nothing is known.
 */
static __always_inline __u32 cookie_true_value(struct session *session, __u32 tsecr)
{
	__u32 last = session->tsval, mask = cookie_tick_mask(session);
	__u32 behind, value, sent;

	if (!session->tsval || (tsecr & COOKIE_MASK) != session->cookie)
		return 0;
	behind = cookie_make(session, last) - tsecr;
	if ((__s32)behind < 0)
		return last;
	value = ((last & ~mask) - (behind >> session->cookie_scale)) | mask;
	sent = *cookie_tick(session, value);
	if ((sent | mask) == value)
		value = sent;
	return timestamp_after(value, last) ? last : value;
}

static __always_inline bool is_syn_ack(const struct packet *p)
{
	const __u8 both = TCP_FLAG_SYN | TCP_FLAG_ACK;

	return (p->tcp_flags & both) == both;
}

/*
 * Notes what the workload sends. Most segments of a millisecond carry the same and change nothing.
 * A SYN/ACK begins a new row of TSvals: the agent may have missed how an older connection of the
 * same ports ended.
 */
static __always_inline void cookie_note(const struct packet *p, struct session *session,
					__u32 tsval)
{
	if (session->tsval && !timestamp_after(tsval, session->tsval) && !is_syn_ack(p))
		return;
	*cookie_tick(session, tsval) = tsval;
	session->tsval = tsval;
	session->last_sent = bpf_ktime_get_coarse_ns();
}

/* The workload's SYN/ACK decides whether the connection carries a cookie. */
static __always_inline void cookie_decide(struct session *session, bool timestamps)
{
	if (!timestamps)
		session->offer = 0;
	session->cookie = session->offer;
	if (!session->cookie_scale)
		session->cookie_scale = settings.cookie_scale;
}

/* Puts the cookie into what the workload sends. For difference see rewrite_begin(). */
static __always_inline int cookie_write(struct __sk_buff *skb, const struct packet *p,
					struct session *session, __u32 *difference)
{
	struct timestamps ts;
	__u32 tsval;

	if (p->protocol != IPPROTO_TCP || !(session->cookie | session->offer))
		return 0;
	ts = timestamps_read(skb, p);
	if (is_syn_ack(p)) {
		if (settings.steered && session->offer)
			steer_learn(p, ts.at != 0);
		cookie_decide(session, ts.at != 0);
	}
	if (!session->cookie || !ts.at)
		return 0;
	tsval = ts.tsval;
	if (session->events & SESSION_REPLAYED)
		tsval += session->clock_shift;
	cookie_note(p, session, tsval);
	return rewrite_tcp32(skb, p, ts.at, bpf_htonl(ts.tsval),
			     bpf_htonl(cookie_make(session, tsval)), difference);
}

/*
 * Turns what the client echoes back into what the workload sent; ts is what the client sent. For
 * difference see rewrite_begin().
 */
static __always_inline int cookie_restore(struct __sk_buff *skb, const struct packet *p,
					  struct session *session, const struct timestamps *ts,
					  __u32 *difference)
{
	__u32 echo;

	if (!ts->at || !session->cookie)
		return 0;
	if (timestamp_after(ts->tsval, session->client_tsval))
		session->client_tsval = ts->tsval;
	if (!(p->tcp_flags & TCP_FLAG_ACK))
		return 0;
	echo = cookie_true_value(session, ts->tsecr);
	if (echo && session->events & SESSION_REPLAYED)
		echo -= session->clock_shift;
	return rewrite_tcp32(skb, p, ts->at + 4, bpf_htonl(ts->tsecr), bpf_htonl(echo), difference);
}
