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

#define WORK_NS 16 /* unit of what a thread did between a read and a send */

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
	__u16 head; /* enum head_kind */
	__u16 head_id;
	/* RECORD_ANSWER: what its thread did since it had read the request, in
	 * units of WORK_NS */
	__u32 run; /* it was on a CPU; all ones: but for `waited` always */
	__u32 waited; /* it could run, and had no CPU */
	__u32 pad;
};

/* The receiver's half: bytes of [start, end) became readable and were read. */
struct received_range {
	__u64 flow;
	__u64 key;
	__u64 start; /* TCP: offset of the byte before the first; UDP: its enum
			head_kind, and above 16 bits its head_id */
	__u64 end; /* TCP: offset of the last byte; UDP: 0 */
	__u64 arrive_ns;
	__u64 ready_ns;
	__u64 read_ns;
	__u32 size_bytes; /* UDP: payload of the datagram; TCP: the low water
			     mark (SO_RCVLOWAT) that it was below, or 0 */
	__u32 wakeup_ns; /* runnable without a CPU between ready and read */
	__u32 queue_bytes; /* waiting in the socket when it became ready */
	__u32 pid;
	__u16 ttl; /* TTL or hop limit on arrival, 0 unknown */
	__u16 flags;
	__u32 thread; /* that read it, of pid */
};

/* What a flow number stands for; sent once by each side that sees it. */
struct flow {
	__u64 flow; /* hash of the five fields below and the first sequence
		       number, or `sender_netns` */
	__u64 t_ns;
	__u64 sender_netns; /* UDP: cookie of the namespace that it is sent in;
			       0: not known, and TCP */
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
	__u16 accepted; /* 1: this end is a server's, TCP only */
	__u16 group; /* of this end, with histograms */
};

/* A name from t_ns on: of a process that sent or read, which is its first
 * thread's, or of another thread that read. */
struct task {
	__u64 t_ns;
	__u64 comm[2];
	__u32 pid; /* or the thread's number: no process has the same */
	__u32 pad;
};

/* A segment that TCP sent again. */
struct retransmit {
	__u64 flow;
	__u64 start; /* offset of the first byte before the segment */
	__u64 end;
	__u64 t_ns; /* before it was sent */
	__u32 packet_bytes; /* payload of each packet it is cut to; 0: one */
	__u32 cause; /* enum resent_by */
};

/* A segment that the kernel freed, and nobody had read. */
struct freed_segment {
	__u64 t_ns;
	__u64 location; /* in the function that freed it */
	__u32 start; /* sequence number of its first byte */
	__u32 end; /* and behind its last one */
	__u16 source_port;
	__u16 destination_port;
	__u32 reason; /* enum skb_drop_reason of the running kernel */
	__u8 device[16]; /* that it was at or came by, not in a socket's queue
			  */
};

/* Why a segment was sent again. */
enum resent_by {
	RESENT_TIMEOUT = 1, /* a timer ran out, or what follows from that */
	RESENT_FAST, /* the peer acknowledged later ones */
	RESENT_PROBE, /* tail loss probe */
	RESENT_HANDSHAKE, /* SYN or SYN-ACK */
};

/* A segment that arrived before its turn: where a later one fills the hole,
 * the bytes behind the hole arrived at this time. */
struct early_segment {
	__u64 flow;
	__u64 end;
	__u64 arrive_ns;
};

/* An ACK came for bytes that this end has sent, and it was the first one for
 * the last of them. */
struct acknowledged {
	__u64 flow; /* of the bytes */
	__u64 end; /* offset of the last one that it acknowledges */
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

/* What one end saw of an exchange, with histograms only. A client's is
 * written when it is over, a server's when its reply leaves. */
struct turn {
	__u64 flow; /* of the requests */
	__u64 end; /* offset of the request's last byte */
	__u64 send_ns; /* first of what this end said */
	__u64 xmit_ns; /* client: last of the request; server: first of the
			  reply */
	__u64 arrive_ns; /* client: first of the reply; server: last of the
			    request */
	__u64 ready_ns; /* server: the request was whole */
	__u64 read_ns; /* client: last of the reply */
	__u32 pid;
	__u32 thread; /* server, TCP: that began the reply, of pid */
	__u16 group;
	__u8 role;
	__u8 pad;
	__u16 flags;
	__u16 pads;
};

/* A CPU gave itself to a task, and the end of that was not traced: some kernels
 * hide certain tasks from tracing, and with them every interrupt on top. */
struct untraced_period {
	__u64 from_ns;
	__u64 until_ns; /* the next switch that was seen */
	__u32 thread;
	__u32 cpu;
};

/* A CPU went from one task to another; see flight.bpf.c. */
struct task_switch {
	__u64 t_ns;
	__u32 left_thread; /* 0: the idle task, as below */
	__u32 left_pid;
	__u32 left_delay_ns; /* run delay of who left until now, low bits */
	__u32 thread; /* who came */
	__u32 pid;
	__u32 delay_ns; /* the same of who came, with this wait */
	__u32 waited_ns; /* in the queue of this CPU; all ones: not known */
	__u16 cpu;
	__u16 left_state; /* as task_struct.__state; 0: it could run on */
	__u16 left_call; /* system call, 0xffff: an exception, 0xfffe: none,
			    0xfffd: one of a 32-bit program */
	__u8 left_operation; /* its second argument, of a futex: what is done,
				without its flags */
	__u8 left_flags; /* enum task_flag; TASK_CAME_ of who came */
	__u32 left_value; /* its third, of a futex: what that was */
	__u8 comm[16]; /* of who came */
};

#define SLEEP_FRAMES 8
#define SLEEP_USER_FRAMES 18

/* A task that slept long is woken; see flight_wake.bpf.c. Where it slept is
 * as in a stack_sample. */
struct wake {
	__u64 t_ns;
	__u64 kernel[SLEEP_FRAMES]; /* without those of the scheduler itself */
	__u64 user[SLEEP_USER_FRAMES]; /* one, but of readers */
	__u32 thread; /* that slept */
	__u32 pid;
	__u32 image;
	__u32 by_thread; /* 0: by an interrupt, by the idle task, or not known
			  */
	__u32 by_pid;
	__u32 by_value; /* third argument of its call, of a futex: how many */
	__u16 by_call; /* as left_call */
	__u16 by_operation;
	__u16 sleeper_flags; /* enum task_flag */
	__u8 kernel_frames;
	__u8 user_frames;
	__u8 comm[16]; /* of by_thread */
};

/* A task came to a CPU after a long wait, and its control group, or one above
 * that, has a CPU quota that was used up at some time. */
struct quota_wait {
	__u64 t_ns; /* as the switch by which it came */
	__u64 throttled_ns; /* its group was last throttled on this CPU */
	__u64 period_end_ns; /* a period of the quota begins */
	__u64 period_ns;
	__u64 quota_ns;
	__u64 cgroup; /* of the group with the quota */
	__u32 throttled_count; /* how often the quota was used up */
	__u32 thread;
	__u16 cpu;
	__u8 name[54]; /* of the control group, its last part */
};

/* An interrupt took a CPU from whoever had it. As of all that a flight recorder
 * keeps the first field is when it was written. */
struct interrupt {
	__u64 until_ns;
	__u64 from_ns;
	__u32 number; /* of the line, or of the soft interrupt */
	__u32 cpu;
	__u32 thread; /* whom it met */
	__u32 soft;
};

#define KERNEL_FRAMES 16
#define USER_FRAMES 32

/* Where a task was, innermost frame first. */
struct stack_sample {
	__u64 t_ns;
	__u64 kernel[KERNEL_FRAMES];
	__u64 user[USER_FRAMES];
	__u32 thread;
	__u32 pid;
	__u32 image; /* which program: low bits of start_stack / 16, of each
			exec another */
	__u16 cpu;
	__u8 kernel_frames;
	__u8 user_frames;
};

/* A device's queue has taken a packet; see flight_queue.bpf.c. */
struct queued_packet {
	__u64 t_ns;
	__u8 source[16];
	__u8 destination[16];
	__u32 handed_ns; /* so long before it was handed over */
	__u32 inode; /* of its socket's file; 0: not known */
	__u32 bytes; /* all ones: not known, nor its ends */
	__u32 backlog_bytes; /* that stood before it; all ones: not known */
	__u32 queue; /* by which it is found among device_queues */
	__u16 source_port;
	__u16 destination_port;
	__u16 protocol;
	__u16 pads[3];
};

struct device_queue {
	__u64 since_ns; /* what is older was another queue's */
	__u32 netns; /* of the device */
	__u32 ifindex;
	__u32 handle;
	__u32 parent; /* class that it is in; all ones: the device's root */
	__u8 device[16];
	__u8 kind[16];
	__u8 within[16]; /* kind of the queue in it, of tbf */
};

/* What held back the bytes that a TCP socket was given, for some time. The
 * numbers are of its end. */
struct socket_state {
	__u64 until_ns;
	__u64 from_ns;
	__u64 flow;
	__u64 pacing; /* bytes per second; all ones: it is not paced */
	__u32 unsent_bytes; /* of those in the socket's queue */
	__u32 cwnd; /* packets, as the next two */
	__u32 ssthresh; /* all but the highest bit: none yet */
	__u32 in_flight;
	__u32 window_bytes; /* that the peer allows behind what it has */
	__u32 rtt_us; /* the least that TCP has seen */
	__u32 rto_jiffies; /* until it sends again what is not acknowledged */
	__u16 mss;
	__u16 held; /* enum held_by */
};

/* A packet waited for the link address of its next hop (ARP, NDP), until it was
 * handed to a device. */
struct address_wait {
	__u64 until_ns;
	__u64 from_ns;
	__u64 flow;
	__u64 next_hop[2];
	__u32 given_up; /* 1: until it was freed: the address was not found */
	__u32 pad;
};

/* In the order in which the kernel asks before it sends a segment. */
enum held_by {
	HELD_NOT_KNOWN, /* by none of these */
	HELD_PACING,
	HELD_CONGESTION_WINDOW,
	HELD_LOSS_RECOVERY, /* the same, while what was lost is sent again */
	HELD_RECEIVE_WINDOW,
	HELD_ZERO_WINDOW, /* nothing is on its way, nothing more may be */
	HELD_CORK,
	HELD_NAGLE,
	HELD_DELAYED_ACK, /* Nagle, until an ACK that was late by a timer */
	HELD_OWN_BACKLOG, /* too much of it waits in the device's queue (TSQ) */
	HELD_SEND_BUFFER, /* all that it has room for is on its way */
};

enum flow_side {
	SIDE_SENDER = 1,
	SIDE_RECEIVER = 2,
	/* no announcement: at t_ns a connection was accepted that had brought
	   bytes before; nothing else is filled in but its flow */
	SIDE_ACCEPTED = 3,
	/* no announcement either: at t_ns this end closed its connection, or
	   lost it: `accepted` is its enum ending, `group` its error */
	SIDE_CLOSED = 4,
};

enum ending {
	ENDING_CLOSED = 1,
	ENDING_RESET, /* by either end, or given up by TCP */
	ENDING_BY_PEER, /* by the other end: all that it had is here */
};

/* What traffic is grouped by, of which only what is asked for is filled in
 * (enum grouping). The same for all connections of a group. */
struct group {
	__u64 remote[2]; /* subnet of the other end */
	__u64 cgroup;
	__u64 comm[2];
	__u32 ifindex;
	__u32 netns; /* of the interface */
	__u16 service; /* port of the server's end */
	__u8 protocol;
	__u8 role; /* of our end, enum group_role */
	__u32 pad;
};

enum group_role {
	ROLE_CLIENT = 1,
	ROLE_SERVER = 2,
};

/* What distinguishes groups; bits. */
enum grouping {
	BY_SERVICE = 1,
	BY_CGROUP = 2,
	BY_COMM = 4,
	BY_REMOTE = 8,
	BY_INTERFACE = 16,
};

/* What a group has a histogram of, each. */
enum quantity {
	/* messages, at their sender */
	SEND_QUEUE,
	QDISC,
	/* messages, at their receiver: their sender is on this host */
	RECEIVE_STACK,
	RECEIVE_QUEUE,
	WAKEUP,
	/* the same of readable ranges, whose sender is elsewhere */
	RANGE_RECEIVE_STACK,
	RANGE_RECEIVE_QUEUE,
	RANGE_WAKEUP,
	/* exchanges: at the client, and at the server */
	RESPONSE,
	SERVER,
	/* network RTT: of the handshake, and the least that TCP has seen */
	RTT_HANDSHAKE,
	RTT_FLOOR,
	/* of TLS, at the client: from its hello to the last word */
	TLS_HANDSHAKE,
	QUANTITIES,
};

/* Numbers of groups: a service on this host takes two, one for each role. Their
 * histograms are made by blocks. */
#define GROUPS 8192
#define BLOCK_GROUPS 64

/* Log-linear: one bucket below 64 ns, 32 in each octave up to 2^36 ns, and one
 * for what is longer. Counts wrap: whoever reads takes differences. */
#define HISTOGRAM_BUCKETS 962

struct histogram {
	__u64 sum_ns;
	__u32 counts[HISTOGRAM_BUCKETS];
};

/* What is counted of a group. */
struct group_counts {
	__u64 sent_messages;
	__u64 sent_bytes;
	__u64 sent_packets;
	__u64 received_messages; /* whose sender is on this host */
	__u64 received_ranges;
	__u64 received_bytes;
	__u64 exchanges;
	__u64 unanswered; /* requests, at the client */
	__u64 no_turns; /* messages sent where both ends talk at once */
	__u64 uncounted; /* at most, of TLS: first exchanges of connections */
	/* a server's time in exchanges of which its thread's work is known: on
	 * a CPU; it had read, and waited for one; not yet read, or asleep */
	__u64 server_run_ns;
	__u64 server_wait_ns;
	__u64 server_rest_ns;
};

/* What is slow in a group; 0 nothing. */
struct group_limit {
	__u64 sent_ns; /* from send to driver */
	__u64 received_ns; /* from arrival to read */
	__u64 turn_ns; /* response, or server's time */
	__s32 tokens; /* records that it may make until it gets the next */
	__u32 pad;
};

/* Where packets of watched flows were freed before anybody read them: by it
 * they are counted. User space judges the reason by its name. */
struct drop {
	__u64 location; /* in the kernel's code; 0: the last two places */
	__u32 reason; /* enum skb_drop_reason of the running kernel */
	__u32 netns; /* of the device */
	__u32 ifindex; /* 0: not known */
	__u32 qdisc; /* handle of the device's queue */
	__u16 group; /* of the end that it is counted at */
	__u16 sender; /* group of the socket that sent them; 0 not watched */
	__u8 protocol;
	__u8 place; /* enum drop_place */
	__u8 empty; /* they take no place in TCP's sequence: ACKs, resets */
	__u8 pad;
};

enum drop_place {
	DROP_AT_SENDER = 1, /* in the namespace of the socket that sent it */
	DROP_BETWEEN, /* in another namespace of this host */
	DROP_AT_RECEIVER,
	DROP_UNREAD, /* closed with it: datagrams, or bytes of one stream */
	DROP_REFUSED, /* by a listener; those with a reason are in it, too */
};

struct dropped {
	__u64 packets; /* on the wire: those that segmentation makes of it */
	__u64 buffers; /* as the kernel's own counters have it */
	__u64 bytes; /* of payload */
	__u8 device[16];
};

/* Of the segments of a group. */
struct segments {
	/* sent again, by cause */
	__u64 timeout; /* a timer ran out, or what follows from that */
	__u64 fast; /* the peer acknowledged later ones */
	__u64 probe; /* tail loss probe */
	__u64 handshake; /* SYN or SYN-ACK */
	/* sent again, but ... */
	__u64 spurious; /* the peer says that it had it (DSACK) */
	__u64 unproven; /* the peer could not say so: no SACK */
	__u64 early; /* received before its turn */
};

/* A request that waits for its answer now, as an iterator says. */
struct waiting_request {
	__u64 begin_ns;
	__u32 group;
	__u32 pad;
};

/* What the first bytes of a message are, see head.bpf.h. */
enum head_kind {
	HEAD_NONE,
	HEAD_TLS_HANDSHAKE, /* but a hello */
	HEAD_TLS_ALERT,
	HEAD_TLS_DATA, /* encrypted: also the later part of a handshake */
	HEAD_HTTP2, /* the preface of a connection */
	HEAD_INTERIM, /* HTTP: 100 Continue */
	HEAD_DNS_QUERY,
	HEAD_DNS_ANSWER,
	HEAD_TLS_HELLO, /* of either end */
	HEAD_TLS_EARLY, /* the client's, with a request, or that (0-RTT) */
	HEAD_QUIC,
	HEAD_TLS_CHANGE, /* of the cipher, and more of the handshake, or no more
			  */
};

/* Of a task that left its CPU, and of one that is woken. */
enum task_flag {
	/* its system call has a fourth argument: of a futex a timeout */
	TASK_TIMED = 1,
	/* its control group had used its CPU quota up */
	TASK_THROTTLED = 2,
	/* how the scheduler ranks who came, three values of these two bits */
	TASK_CAME_IDLE_POLICY = 4, /* SCHED_IDLE */
	TASK_CAME_NORMAL = 8,
	TASK_CAME_REAL_TIME = 12, /* or with a deadline, or lent that */
	/* real-time tasks had used up what they may have of its CPU */
	TASK_CAME_BY_LIMIT = 16,
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
	/* chosen for the sample; slower than its group's limit */
	RECORD_SAMPLED = 128,
	RECORD_SLOW = 256,
	/* nobody had accepted its connection when it became readable */
	RECORD_NOT_ACCEPTED = 512,
	/* it waited in a queue at the entry of its host: that of an ifb */
	RECORD_ENTRY_QUEUED = 1024,
	/* fewer bytes than its socket's low water mark: nobody was woken */
	RECORD_BELOW_MARK = 2048,
	/* it begins a server's reply, by the thread that has read the request
	 */
	RECORD_ANSWER = 4096,
};

/* The front of each CPU's ring, see ring.bpf.h. */
struct ring_control {
	__u64 head; /* records that were begun */
	__u64 tail; /* ... and read: moved by user space */
	__u32 first; /* index of slot 0 in the array */
	__u32 mask; /* slots less one; a power of two less one */
	__u32 taking; /* a number is being taken; only of old.bpf.h */
	__u32 pad;
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
	__u64 early_xmits; /* before its queue: another packet's, left out */
	__u64 offline_cpus; /* records of a CPU that came after the start */
	__u64 backlog_arrivals; /* arrival unknown: socket was busy */
	__u64 fragments_out_of_turn; /* of a datagram we were not following */
	__u64 segmented_sends; /* UDP_SEGMENT: its datagrams are not followed */
	__u64 udp_without_send; /* datagram whose send call was not seen */
	__u64 datagrams_dropped_at_socket; /* its receive queue was full */
	__u64 datagrams_without_address; /* that of their next hop was not
					    found, or too many waited for it */
	__u64 failed_inserts; /* datagram map would not take an entry */
	__u64 unpaired_messages; /* counted at their reader without their ends
				  */
	__u64 talked_at_once; /* turns that are no exchange */
	__u64 uncounted_drops; /* packets: no room for another place */
	__u64 unseen_ready; /* reads of what became readable unseen */
};

/* What a filter asks of a socket. They are asked in this order: from the
 * cheapest to the dearest, namespaces first. */
enum term_kind {
	TERM_NONE, /* ends the list */
	TERM_NETNS, /* inode number */
	TERM_PORT, /* of either end */
	TERM_LOCAL_PORT,
	TERM_REMOTE_PORT,
	TERM_UID,
	TERM_REMOTE, /* address, by value and mask */
	TERM_PID, /* any of the map `pids`; the mask is a bit of `facts` */
	TERM_COMM, /* name of a process; the same */
	TERM_INTERFACE, /* name */
	TERM_CGROUP, /* id of the group, or of one above */
};

#ifndef MOST_TERMS
#define MOST_TERMS 64
#endif

struct term {
	__u64 value[2];
	__u64 mask[2];
	__u8 kind; /* enum term_kind */
	__u8 negated;
	__u8 pad[6];
};

/* A process that is asked for by its number, and its descendants; in `pids`. */
struct followed {
	__u32 notes; /* as of struct options: another one is of an older filter
		      */
	__u32 facts; /* bits, the masks of terms that hold for it */
};

/* Set by the agent; the same for every probe. */
struct options {
	struct term terms[MOST_TERMS];
	__u64 since_ns; /* what is older was not seen by these programs */
	__u64 idle_ns; /* so long after its last read an exchange is over */
	/* remote ports that terms ask for: bits of their lowest byte; where one
	 * is set, a datagram of a socket without a remote end is asked */
	__u64 remote_ports[4];
	__u32 generation; /* another one makes all verdicts anew; never 0 */
	__u32 notes; /* another one: also what was noted of processes and
		      * connections */
	__u32 zero; /* that the verifier does not know to be one */
	__u32 by; /* bits of enum grouping */
	__u32 window; /* of time: what began in another one is not followed */
	__u16 ephemeral[2]; /* ports that the kernel hands out: first, last */
	__u16 shard_mask; /* CPUs that share histograms, see histogram.bpf.h */
	__u8 prefix_ipv4; /* of the other end's subnet, bits */
	__u8 prefix_ipv6;
	/* one block of so many bits of each period: see sample.bpf.h */
	__u8 sample_block_bits;
	__u8 sample_period_bits;
	__u8 closing; /* what begins now is not counted any more, what has begun
			 is */
	__u8 tcp;
	__u8 udp;
	__u8 peers; /* also the other ends of their connections, on this host */
	__u8 remote_asked; /* one of remote_ports is set */
	__u8 pad[5];
};

_Static_assert(sizeof(struct sent_message) == 80, "sent_message");
_Static_assert(sizeof(struct received_range) == 80, "received_range");
_Static_assert(sizeof(struct flow) == 80, "flow");
_Static_assert(sizeof(struct task) == 32, "task");
_Static_assert(sizeof(struct retransmit) == 40, "retransmit");
_Static_assert(sizeof(struct freed_segment) == 48, "freed_segment");
_Static_assert(sizeof(struct early_segment) == 24, "early_segment");
_Static_assert(sizeof(struct acknowledged) == 24, "acknowledged");
_Static_assert(sizeof(struct lower_transmit) == 48, "lower_transmit");
_Static_assert(sizeof(struct path_device) == 64, "path_device");
_Static_assert(sizeof(struct term) == 40, "term");
_Static_assert(sizeof(struct untraced_period) == 24, "untraced_period");
_Static_assert(sizeof(struct turn) == 72, "turn");
_Static_assert(sizeof(struct task_switch) == 64, "task_switch");
_Static_assert(sizeof(struct wake) == 264, "wake");
_Static_assert(sizeof(struct quota_wait) == 112, "quota_wait");
_Static_assert(sizeof(struct interrupt) == 32, "interrupt");
_Static_assert(sizeof(struct stack_sample) == 408, "stack_sample");
_Static_assert(sizeof(struct queued_packet) == 72, "queued_packet");
_Static_assert(sizeof(struct device_queue) == 72, "device_queue");
_Static_assert(sizeof(struct socket_state) == 64, "socket_state");
_Static_assert(sizeof(struct address_wait) == 48, "address_wait");
_Static_assert(sizeof(struct group) == 56, "group");
_Static_assert(sizeof(struct group_limit) == 32, "group_limit");
_Static_assert(sizeof(struct histogram) == 3856, "histogram");
_Static_assert(sizeof(struct drop) == 32, "drop");
_Static_assert(sizeof(struct dropped) == 40, "dropped");

#endif
