/*
 * records.h - every struct that crosses from the probes to user space.
 *
 * The agent reads these layouts from the object's BTF (layout.py), so this is
 * the only place where a field is written down. Fixed-width fields, largest
 * first; every time is CLOCK_MONOTONIC in nanoseconds and 0 where it could not
 * be taken. Addresses are IPv6, IPv4 mapped.
 */
#ifndef LATPROF_RECORDS_H
#define LATPROF_RECORDS_H

#include <linux/types.h>

/* The sender's half of one message, written when it left for the driver. */
struct sent_message {
	__u64 flow; /* see struct flow */
	__u64 key; /* UDP: fingerprint of the datagram; TCP: 0 */
	__u64 end; /* TCP: offset of its last byte; UDP: datagram number */
	__u64 send_ns;
	__u64 queue_ns;
	__u64 xmit_ns;
	__u32 size_bytes;
	__u32 packets;
	__u32 pid;
	__u16 merged; /* further messages in this record, the FIFO was full */
	__u16 flags; /* enum record_flag */
};

/* The receiver's half: bytes of [start, end) became readable and were read. */
struct received_range {
	__u64 flow;
	__u64 key;
	__u64 start; /* TCP: offset of the byte before the first; UDP: 0 */
	__u64 end; /* TCP: offset of the last byte; UDP: 0 */
	__u64 arrive_ns;
	__u64 ready_ns;
	__u64 read_ns;
	__u32 size_bytes; /* UDP: payload of the datagram; TCP: 0 */
	__u32 wakeup_ns; /* runnable without a CPU between ready and read */
	__u32 queue_bytes; /* waiting in the socket when it became ready */
	__u32 pid;
	__u16 ttl; /* TTL or hop limit on arrival, 0 unknown */
	__u16 flags;
	__u32 pad;
};

/* What a flow number stands for; sent once by each side that sees it. */
struct flow {
	__u64 flow; /* hash of the five fields below and the first sequence
		       number */
	__u64 t_ns;
	__u8 source[16];
	__u8 destination[16];
	__u32 netns;
	__u16 source_port;
	__u16 destination_port;
	__u16 protocol; /* IPPROTO_ */
	__u16 side; /* enum flow_side */
	/* TCP: of the first byte of this direction, and of the other one, 0
	 * where it is not known yet: a translator (NAT) leaves them as they are
	 */
	__u32 first_sequence;
	__u32 first_answer;
	__u32 accepted; /* 1: this end is a server's, TCP only */
};

/* The name of a process that sent or read. */
struct task {
	__u32 pid;
	__u32 pad;
	__u8 comm[16];
};

/* A segment that TCP sent again. */
struct retransmit {
	__u64 flow;
	__u64 start; /* offset of the first byte before the segment */
	__u64 end;
	__u64 t_ns;
	__u32 packet_bytes; /* payload of each packet it is cut to; 0: one */
	__u32 pad;
};

/* A segment that arrived before its turn: where a later one fills the hole,
 * the bytes behind the hole arrived at this time. */
struct early_segment {
	__u64 flow;
	__u64 end;
	__u64 arrive_ns;
};

/* A packet left for the driver of a device below its first one: a bridge's
 * port, the NIC below a tunnel. The last of them is the sender's `xmit`. */
struct lower_transmit {
	__u64 flow;
	__u64 key; /* as in struct sent_message */
	__u64 start; /* TCP: of the packet's bytes; UDP: 0 */
	__u64 end; /* TCP: of the packet's bytes; UDP: datagram number */
	__u64 t_ns;
	__u32 ifindex;
	__u32 pad;
};

/* A device on the way of a flow's packets, in the socket's own namespace. */
struct path_device {
	__u64 flow;
	__u64 t_ns;
	__u32 ifindex;
	__u32 netns;
	__u32 lower; /* 0: the first that it was handed to */
	__u32 pad;
	__u8 name[16];
	__u8 kind[16]; /* of a virtual device, as in `ip -d link` */
};

/* A CPU gave itself to a task, and the end of that was not told: some kernels
 * hide certain tasks from tracing, and with them every interrupt on top. */
struct hidden_spell {
	__u64 from_ns;
	__u64 until_ns; /* the next switch that was seen */
	__u32 thread;
	__u32 cpu;
};

enum flow_side {
	SIDE_SENDER = 1,
	SIDE_RECEIVER = 2,
};

enum record_flag {
	/* stamps belong to the range's end only: older ends were merged away */
	RECORD_MERGED = 1,
	/* a hole was filled: the arrival is that of an early segment */
	RECORD_HOLE_FILLED = 2,
	/* taken from the backlog of a busy socket: arrival not known */
	RECORD_BACKLOG = 4,
	/* its segment was dropped between qdisc entry and driver, or its
	 * connection ended before it went there */
	RECORD_NOT_TRANSMITTED = 8,
	/* wakeup is not known: the reader's first read, or too many waits */
	RECORD_NO_WAKEUP = 16,
	/* a datagram that found its socket full: it was dropped at read_ns */
	RECORD_DROPPED = 32,
	/* a datagram that nobody had read when its socket was closed */
	RECORD_UNREAD = 64,
};

/* The front of each CPU's ring, see ring.bpf.h. */
struct ring_control {
	__u64 head; /* records that were begun */
	__u64 tail; /* ... and read: moved by user space */
	__u32 first; /* index of slot 0 in the array */
	__u32 mask; /* slots less one; a power of two less one */
};

/* What was counted instead of recorded. Each must be explained by the agent. */
struct counters {
	__u64 failed_storage; /* no memory for a socket's state */
	__u64 merged_sends; /* send FIFO full: neighbours merged */
	__u64 unrecorded_sends; /* ... and all of it stood in a qdisc */
	__u64 merged_reads; /* receive FIFO full: neighbours merged */
	__u64 unmatched_datagram_reads; /* read, arrival not seen */
	__u64 multipath_sockets; /* subflows of MPTCP: not followed */
	__u64 coalesced_in_backlog; /* segments that others were added to */
	__u64 unreadable_headers; /* TCP header of a lower device not found */
	__u64 offline_cpus; /* records of a CPU that came after the start */
	__u64 backlog_arrivals; /* arrival unknown: socket was busy */
	__u64 fragments_out_of_turn; /* of a datagram we were not following */
	__u64 segmented_sends; /* UDP_SEGMENT: its datagrams are not followed */
	__u64 udp_without_send; /* datagram whose send call was not seen */
	__u64 datagrams_dropped_at_socket; /* its receive queue was full */
	__u64 failed_inserts; /* datagram map would not take an entry */
};

/* Set by the agent; the same for every probe. */
struct options {
	__u64 cgroup; /* id of the cgroup whose sockets are watched; 0 any */
	__u32 netns[4]; /* inode numbers; 0 ends the list; none: any */
	__u64 comms[8][2]; /* names of processes; 0 ends the list; none: any */
	__u16 ports[8]; /* either end; 0 ends the list; none: any */
	__u32 generation; /* another one makes all verdicts anew */
	__u8 tcp;
	__u8 udp;
	__u8 pids; /* only processes of the map that has this name */
	__u8 peers; /* also the other ends of their connections, on this host */
};

_Static_assert(sizeof(struct sent_message) == 64, "sent_message");
_Static_assert(sizeof(struct received_range) == 80, "received_range");
_Static_assert(sizeof(struct flow) == 72, "flow");
_Static_assert(sizeof(struct task) == 24, "task");
_Static_assert(sizeof(struct retransmit) == 40, "retransmit");
_Static_assert(sizeof(struct early_segment) == 24, "early_segment");
_Static_assert(sizeof(struct lower_transmit) == 48, "lower_transmit");
_Static_assert(sizeof(struct path_device) == 64, "path_device");
_Static_assert(sizeof(struct hidden_spell) == 24, "hidden_spell");

#endif
