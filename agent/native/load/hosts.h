/*
 * hosts.h - what the sessions of one host take together, and those of all.
 *
 * A host is an IPv4 address, or a /64 of IPv6, of which one machine may take
 * any address; of link-local ones each is its own.
 *
 * CPU time is not rationed, which would lengthen the round trips that are
 * measured: who takes more than the bound for long has sessions ended.
 */
#ifndef LATPROF_LOAD_HOSTS_H
#define LATPROF_LOAD_HOSTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* 0: none. */
struct share_bounds {
	uint64_t sessions, memory_bytes;
	uint64_t cpu_percent; /* of one CPU */
};

struct share {
	uint64_t sessions, memory_bytes;
	uint64_t cpu_ns; /* since the last look */
	uint64_t looked_ns; /* between the two looks before */
	uint64_t debt_ns; /* CPU time above the bound, not made up for yet */
	bool owing; /* sessions were ended for it: no more until it is paid */
};

enum share_lack {
	SHARE_LACKS_NOTHING,
	SHARE_LACKS_SESSIONS,
	SHARE_LACKS_MEMORY,
	SHARE_LACKS_CPU,
	SHARE_LACKS_COUNT,
};

/* What is missing for one more session with so much memory? */
enum share_lack share_lack(const struct share *s, const struct share_bounds *b,
			   uint64_t memory_bytes);
void share_take(struct share *s, uint64_t memory_bytes);
void share_return(struct share *s, uint64_t memory_bytes);
/* A look, after so much time: how much CPU time since the last one has to go,
 * 0 as long as it is a peak. */
uint64_t share_look(struct share *s, const struct share_bounds *b,
		    uint64_t elapsed_ns);

struct host {
	struct host *next;
	struct in6_addr prefix;
	uint32_t scope;
	uint64_t guests, arriving; /* connections; those without a session */
	struct share share;
};

/* The host of an address, one guest more; NULL: out of memory. */
struct host *host_enter(struct host **hosts, const struct sockaddr_in6 *peer);
void host_leave(struct host *h);
/* Those without a guest that owe nothing. */
void hosts_forget(struct host **hosts);

#endif
