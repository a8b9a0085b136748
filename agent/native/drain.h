/*
 * drain.h - load the probes, attach them, and copy what their rings hold.
 *
 * Functions return 0 or -errno and print nothing; log_text() has libbpf's
 * reason for the last failure. A struct drain is used by one thread.
 */
#ifndef LATPROF_DRAIN_H
#define LATPROF_DRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct drain;
struct histograms;

/* Opens the object file; nothing is loaded. Close with drain_close(). */
int drain_open(const char *path, struct drain **ret);
void drain_close(struct drain *drain);

/* Name of the i-th program, NULL behind the last. Owned by `drain`. */
const char *drain_program(const struct drain *drain, size_t i);

/* Whether drain_load() loads a program; none by default. -ENOENT: no such. */
int drain_enable(struct drain *drain, const char *program, bool enable);

/* Pass options (struct options) to the programs, also while they run. -EINVAL
 * where the size is another one. */
int drain_set_options(struct drain *drain, const void *options, size_t size);

/* A constant of the programs, in a section .rodata.<name>. Before the load.
 * -ENOENT: no such. */
int drain_set_constant(struct drain *drain, const char *name, uint32_t value);

/* How many entries a map gets. Before the load. */
int drain_set_entries(struct drain *drain, const char *map, uint32_t entries);

/* A descriptor of a loaded map, to be closed; e.g. to map its memory. */
int drain_descriptor(struct drain *drain, const char *map);

/* A copy of the object's own variables as they are now; to be freed. */
int drain_globals(struct drain *drain, void **ret, size_t *size);

/* The sums over all CPUs of what each counted (struct counters); to be freed.
 */
int drain_counters(struct drain *drain, uint64_t **ret, size_t *count);

/* How many bytes each CPU's ring `name` gets; a power of two, pages. */
int drain_size(struct drain *drain, const char *name, size_t bytes);

int drain_load(struct drain *drain);

/* `cgroup` is a descriptor for programs of control groups, else -1. What is
 * attached, or detached, already stays so. */
int drain_attach(struct drain *drain, const char *program, int cgroup);
int drain_detach(struct drain *drain, const char *program);
int drain_detach_all(struct drain *drain);

/* Runs an iterator to its end, of a map if one is given; `ret` is what it
 * wrote, to be freed. */
int drain_iterate(struct drain *drain, const char *program, const char *map,
		  void **ret, size_t *size);

/* Puts an entry into a map; -EINVAL where a size is another one. */
int drain_put(struct drain *drain, const char *map, const void *key,
	      size_t key_size, const void *value, size_t value_size);

/* Copies a value of a hash map into `value` and removes its entry, at once.
 * -ENOENT: there is none. */
int drain_take(struct drain *drain, const char *map, const void *key,
	       size_t key_size, void *value, size_t value_size);
ssize_t drain_value_size(struct drain *drain, const char *map);

/* Removes all entries of a hash map that no program writes into meanwhile. */
int drain_clear(struct drain *drain, const char *map);

/* The histograms of a loaded map of maps; owned by `drain`. */
int drain_histograms(struct drain *drain, const char *map,
		     struct histograms **ret);

/* All entries of a hash map, keys and values apart; those of CPUs follow each
 * other, each of whole words. Both to be freed; returns how many or -errno. */
ssize_t drain_entries(struct drain *drain, const char *map, void **keys,
		      size_t *key_size, void **values, size_t *value_size);

/* How many bytes drain_read() gives now, at most. -ENOENT: no such ring. */
ssize_t drain_waiting(struct drain *drain, const char *name);

/* Copies records of all CPUs' rings `name` into `buffer`, whole records only;
 * returns how many bytes. Bounded by `size`, whatever the producers do. */
ssize_t drain_read(struct drain *drain, const char *name, void *buffer,
		   size_t size);

/* Copies what rings hold that are written over all the time, and since when
 * each CPU's has all (ring_copy()); both to be freed. */
int drain_snapshot(struct drain *drain, const char *name, void **ret,
		   size_t *size, uint64_t **since);

/* The numbers of CPUs that have rings, `*count` of them. */
const int *drain_cpus(const struct drain *drain, int *count);

/* Attaches a program to the clock of each CPU, so many times a second while
 * somebody runs there; detached as others are. */
int drain_attach_clock(struct drain *drain, const char *program,
		       unsigned hertz);

/* Runs and nanoseconds that a program took while statistics were on. */
int drain_cost(struct drain *drain, const char *program, uint64_t *runs,
	       uint64_t *nanoseconds);

/* How often the kernel has skipped a program, since it ran on that CPU already.
 */
int drain_misses(struct drain *drain, const char *program, uint64_t *ret);

/* Statistics are on until the descriptor is closed; -errno where refused. */
int drain_statistics(void);

#endif
