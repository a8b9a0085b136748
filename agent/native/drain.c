#include "drain.h"
#include "histograms.h"
#include "log.h"
#include "ring.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PROGRAMS 64
#define MAX_RINGS 32
#define DEFAULT_RING_BYTES (256 * 1024)
#define ITERATOR_BYTES 4096

struct drain {
	struct bpf_object *object;
	struct bpf_program *programs[MAX_PROGRAMS];
	struct bpf_link *links[MAX_PROGRAMS];
	size_t program_count;
	struct ring rings[MAX_RINGS];
	size_t ring_count;
	struct cpus cpus;
	struct histograms *histograms; /* NULL: nobody has asked for them */
	struct bpf_link **clocks; /* one for each CPU, or NULL */
	bool loaded;
};

static int find_programs(struct drain *drain)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, drain->object) {
		if (drain->program_count == MAX_PROGRAMS)
			return -E2BIG;
		bpf_program__set_autoload(program, false);
		drain->programs[drain->program_count++] = program;
	}
	return 0;
}

static bool ends_in(const char *name, const char *suffix)
{
	size_t length = strlen(name), tail = strlen(suffix);

	return length >= tail && !strcmp(name + length - tail, suffix);
}

/* By the type of what an array holds; see RING() in ring.bpf.h. */
static bool is_ring(const struct drain *drain, const struct bpf_map *map)
{
	const struct btf *types = bpf_object__btf(drain->object);
	const struct btf_type *held =
		btf__type_by_id(types, bpf_map__btf_value_type_id(map));

	return bpf_map__type(map) == BPF_MAP_TYPE_ARRAY &&
	       bpf_map__map_flags(map) & BPF_F_MMAPABLE && held &&
	       ends_in(btf__name_by_offset(types, held->name_off), "_slot");
}

static int find_rings(struct drain *drain)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, drain->object) {
		struct ring *ring = &drain->rings[drain->ring_count];

		if (!is_ring(drain, map))
			continue;
		if (drain->ring_count == MAX_RINGS)
			return -E2BIG;
		ring->map = map;
		ring->cpus = &drain->cpus;
		ring_size(ring, DEFAULT_RING_BYTES);
		drain->ring_count++;
	}
	return 0;
}

int drain_open(const char *path, struct drain **ret)
{
	struct drain *drain = calloc(1, sizeof(*drain));
	int error;

	if (!drain)
		return -ENOMEM;
	log_start();
	error = cpus_find(&drain->cpus);
	if (!error) {
		drain->object = bpf_object__open_file(path, NULL);
		error = drain->object ? 0 : -errno;
	}
	if (!error)
		error = find_programs(drain);
	if (!error)
		error = find_rings(drain);
	if (error) {
		bpf_object__close(drain->object);
		free(drain->cpus.numbers);
		free(drain);
		return error;
	}
	*ret = drain;
	return 0;
}

static void stop_clocks(struct drain *drain)
{
	for (int i = 0; drain->clocks && i < drain->cpus.count; i++)
		bpf_link__destroy(drain->clocks[i]);
	free(drain->clocks);
	drain->clocks = NULL;
}

int drain_detach_all(struct drain *drain)
{
	int error = 0;

	stop_clocks(drain);

	for (size_t i = 0; i < drain->program_count; i++) {
		int failed = bpf_link__destroy(drain->links[i]);

		drain->links[i] = NULL;
		if (failed)
			error = failed;
	}
	return error;
}

void drain_close(struct drain *drain)
{
	if (!drain)
		return;
	drain_detach_all(drain);
	for (size_t i = 0; i < drain->ring_count; i++)
		ring_close(&drain->rings[i]);
	histograms_close(drain->histograms);
	bpf_object__close(drain->object);
	free(drain->cpus.numbers);
	free(drain);
}

const char *drain_program(const struct drain *drain, size_t i)
{
	return i < drain->program_count ?
		       bpf_program__name(drain->programs[i]) :
		       NULL;
}

static int program_index(const struct drain *drain, const char *name)
{
	for (size_t i = 0; i < drain->program_count; i++)
		if (!strcmp(bpf_program__name(drain->programs[i]), name))
			return (int)i;
	return -ENOENT;
}

static struct ring *ring_find(struct drain *drain, const char *name)
{
	for (size_t i = 0; i < drain->ring_count; i++)
		if (!strcmp(bpf_map__name(drain->rings[i].map), name))
			return &drain->rings[i];
	return NULL;
}

int drain_enable(struct drain *drain, const char *program, bool enable)
{
	int i = program_index(drain, program);

	return i < 0 ? i :
		       bpf_program__set_autoload(drain->programs[i], enable);
}

static struct bpf_map *map_ending_in(const struct drain *drain,
				     const char *suffix)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, drain->object) {
		if (ends_in(bpf_map__name(map), suffix))
			return map;
	}
	return NULL;
}

/* Before the load libbpf has them in memory; afterwards the kernel has. */
int drain_set_options(struct drain *drain, const void *options, size_t size)
{
	struct bpf_map *map = map_ending_in(drain, ".data.options");
	size_t whole;
	void *initial;
	__u32 key = 0;

	if (!map)
		return -ENOENT;
	initial = (void *)bpf_map__initial_value(map, &whole);
	if (!initial || size != whole)
		return -EINVAL;
	memcpy(initial, options, size);
	return drain->loaded ? bpf_map__update_elem(map, &key, sizeof(key),
						    options, size, BPF_ANY) :
			       0;
}

int drain_set_constant(struct drain *drain, const char *name, uint32_t value)
{
	char section[64];
	struct bpf_map *map;
	void *initial;
	size_t size;

	snprintf(section, sizeof(section), ".rodata.%s", name);
	map = map_ending_in(drain, section);
	initial = map ? (void *)bpf_map__initial_value(map, &size) : NULL;
	if (!initial)
		return -ENOENT;
	if (drain->loaded || size != sizeof(value))
		return -EINVAL;
	memcpy(initial, &value, sizeof(value));
	return 0;
}

int drain_set_entries(struct drain *drain, const char *map, uint32_t entries)
{
	struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);

	return found ? bpf_map__set_max_entries(found, entries) : -ENOENT;
}

int drain_descriptor(struct drain *drain, const char *map)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);
	int descriptor;

	if (!found)
		return -ENOENT;
	descriptor = fcntl(bpf_map__fd(found), F_DUPFD_CLOEXEC, 0);
	return descriptor < 0 ? -errno : descriptor;
}

int drain_globals(struct drain *drain, void **ret, size_t *size)
{
	struct bpf_map *map = map_ending_in(drain, ".bss");
	__u32 key = 0;
	int error;

	if (!map)
		return -ENOENT;
	*size = bpf_map__value_size(map);
	*ret = malloc(*size);
	if (!*ret)
		return -ENOMEM;
	error = bpf_map__lookup_elem(map, &key, sizeof(key), *ret, *size, 0);
	if (error)
		free(*ret);
	return error;
}

int drain_counters(struct drain *drain, uint64_t **ret, size_t *count)
{
	struct bpf_map *map = map_ending_in(drain, "counts");
	size_t words, cpus = libbpf_num_possible_cpus();
	uint64_t *all, *sums;
	__u32 key = 0;
	int error;

	if (!map)
		return -ENOENT;
	words = bpf_map__value_size(map) / sizeof(uint64_t);
	all = calloc(cpus * words, sizeof(uint64_t));
	sums = calloc(words, sizeof(uint64_t));
	error = all && sums ?
			bpf_map__lookup_elem(map, &key, sizeof(key), all,
					     cpus * words * sizeof(uint64_t),
					     0) :
			-ENOMEM;
	for (size_t i = 0; !error && i < cpus * words; i++)
		sums[i % words] += all[i];
	free(all);
	if (error) {
		free(sums);
		return error;
	}
	*ret = sums;
	*count = words;
	return 0;
}

int drain_size(struct drain *drain, const char *name, size_t bytes)
{
	struct ring *ring = ring_find(drain, name);

	return ring ? ring_size(ring, bytes) : -ENOENT;
}

int drain_load(struct drain *drain)
{
	int error;

	log_start();
	error = bpf_object__load(drain->object);
	/* the kernel's types and what was built of them: some 10 MB */
	malloc_trim(0);
	drain->loaded = !error;
	for (size_t i = 0; !error && i < drain->ring_count; i++)
		error = ring_open(&drain->rings[i]);
	return error;
}

int drain_attach(struct drain *drain, const char *program, int cgroup)
{
	int i = program_index(drain, program);

	if (i < 0)
		return i;
	if (drain->links[i])
		return 0;
	log_start();
	drain->links[i] =
		cgroup < 0 ?
			bpf_program__attach(drain->programs[i]) :
			bpf_program__attach_cgroup(drain->programs[i], cgroup);
	return drain->links[i] ? 0 : -errno;
}

int drain_detach(struct drain *drain, const char *program)
{
	int i = program_index(drain, program), error;

	if (i < 0)
		return i;
	error = bpf_link__destroy(drain->links[i]);
	drain->links[i] = NULL;
	return error;
}

static int read_all(int iterator, char **ret, size_t *size)
{
	size_t room = 0;

	for (;;) {
		ssize_t got;

		if (room - *size < ITERATOR_BYTES) {
			char *more = realloc(*ret, 2 * room + ITERATOR_BYTES);

			if (!more)
				return -ENOMEM;
			room = 2 * room + ITERATOR_BYTES;
			*ret = more;
		}
		got = read(iterator, *ret + *size, room - *size);
		if (!got)
			return 0;
		/* so many were passed over that the kernel makes a pause */
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		*size += got > 0 ? got : 0;
	}
}

static struct bpf_link *attach_iterator(struct drain *drain,
					const struct bpf_program *program,
					const char *map)
{
	union bpf_iter_link_info of_map = {};
	LIBBPF_OPTS(bpf_iter_attach_opts, options);

	if (map) {
		of_map.map.map_fd =
			bpf_object__find_map_fd_by_name(drain->object, map);
		options.link_info = &of_map;
		options.link_info_len = sizeof(of_map);
	}
	return bpf_program__attach_iter(program, &options);
}

int drain_iterate(struct drain *drain, const char *program, const char *map,
		  void **ret, size_t *size)
{
	int i = program_index(drain, program), iterator, error;
	struct bpf_link *link;
	char *bytes = NULL;

	if (i < 0)
		return i;
	log_start();
	link = attach_iterator(drain, drain->programs[i], map);
	if (!link)
		return -errno;
	*size = 0;
	iterator = bpf_iter_create(bpf_link__fd(link));
	error = iterator < 0 ? -errno : read_all(iterator, &bytes, size);
	if (iterator >= 0)
		close(iterator);
	bpf_link__destroy(link);
	if (error) {
		free(bytes);
		return error;
	}
	*ret = bytes;
	return 0;
}

int drain_put(struct drain *drain, const char *map, const void *key,
	      size_t key_size, const void *value, size_t value_size)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);

	if (!found)
		return -ENOENT;
	/* a queue has no keys */
	return bpf_map__update_elem(found, key_size ? key : NULL, key_size,
				    value, value_size, BPF_ANY);
}

int drain_take(struct drain *drain, const char *map, const void *key,
	       size_t key_size, void *value, size_t value_size)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);

	if (!found)
		return -ENOENT;
	return bpf_map__lookup_and_delete_elem(found, key, key_size, value,
					       value_size, 0);
}

ssize_t drain_value_size(struct drain *drain, const char *map)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);

	return found ? (ssize_t)bpf_map__value_size(found) : -ENOENT;
}

int drain_clear(struct drain *drain, const char *map)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);
	char *key;
	int error;

	if (!found)
		return -ENOENT;
	key = malloc(bpf_map__key_size(found));
	if (!key)
		return -ENOMEM;
	do {
		error = bpf_map_get_next_key(bpf_map__fd(found), NULL, key);
		if (!error)
			error = bpf_map_delete_elem(bpf_map__fd(found), key);
	} while (!error);
	free(key);
	return error == -ENOENT ? 0 : error;
}

int drain_histograms(struct drain *drain, const char *map,
		     struct histograms **ret)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);
	int error = 0;

	if (!found || !drain->loaded)
		return -ENOENT;
	if (!drain->histograms)
		error = histograms_open(drain->object, found,
					&drain->histograms);
	*ret = drain->histograms;
	return error;
}

static size_t whole_value_size(const struct bpf_map *map)
{
	size_t size = bpf_map__value_size(map);

	switch (bpf_map__type(map)) {
	case BPF_MAP_TYPE_PERCPU_HASH:
	case BPF_MAP_TYPE_LRU_PERCPU_HASH:
		return (size + 7) / 8 * 8 * libbpf_num_possible_cpus();
	default:
		return size;
	}
}

/* In pieces; the kernel gives whole buckets of the map only. */
static ssize_t read_entries(int map, char *keys, size_t key_size, char *values,
			    size_t value_size, __u32 room)
{
	__u64 place[2]; /* as large as a key, or 4 bytes */
	char *at = malloc(key_size > sizeof(place) ? key_size : sizeof(place));
	__u32 done = 0, count;
	int error = at ? 0 : -ENOMEM;

	while (!error && done < room) {
		count = room - done;
		error = bpf_map_lookup_batch(
			map, done ? at : NULL, at, keys + done * key_size,
			values + done * value_size, &count, NULL);
		if (!error || error == -ENOENT)
			done += count;
	}
	free(at);
	return error && error != -ENOENT ? error : (ssize_t)done;
}

ssize_t drain_entries(struct drain *drain, const char *map, void **keys,
		      size_t *key_size, void **values, size_t *value_size)
{
	const struct bpf_map *found =
		bpf_object__find_map_by_name(drain->object, map);
	size_t room;
	ssize_t count;

	if (!found)
		return -ENOENT;
	room = bpf_map__max_entries(found);
	*key_size = bpf_map__key_size(found);
	*value_size = whole_value_size(found);
	*keys = malloc(room * *key_size);
	*values = malloc(room * *value_size);
	count = *keys && *values ?
			read_entries(bpf_map__fd(found), *keys, *key_size,
				     *values, *value_size, room) :
			-ENOMEM;
	if (count < 0) {
		free(*keys);
		free(*values);
	}
	return count;
}

ssize_t drain_waiting(struct drain *drain, const char *name)
{
	const struct ring *ring = ring_find(drain, name);

	return ring ? (ssize_t)ring_waiting(ring) : -ENOENT;
}

ssize_t drain_read(struct drain *drain, const char *name, void *buffer,
		   size_t size)
{
	struct ring *ring = ring_find(drain, name);

	return ring ? (ssize_t)ring_read(ring, buffer, size) : -ENOENT;
}

int drain_snapshot(struct drain *drain, const char *name, void **ret,
		   size_t *size, uint64_t **since)
{
	struct ring *ring = ring_find(drain, name);

	if (!ring)
		return -ENOENT;
	*ret = malloc(ring_room(ring));
	*since = calloc(drain->cpus.count, sizeof(**since));
	if (!*ret || !*since) {
		free(*ret);
		free(*since);
		return -ENOMEM;
	}
	*size = ring_copy(ring, *ret, *since);
	return 0;
}

const int *drain_cpus(const struct drain *drain, int *count)
{
	*count = drain->cpus.count;
	return drain->cpus.numbers;
}

static int open_clock(int cpu, unsigned hertz)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.sample_freq = hertz,
	};
	int event = (int)syscall(SYS_perf_event_open, &attributes, -1, cpu, -1,
				 PERF_FLAG_FD_CLOEXEC);

	return event < 0 ? -errno : event;
}

static int attach_clock(struct drain *drain, int program, int i, unsigned hertz)
{
	int event = open_clock(drain->cpus.numbers[i], hertz);

	if (event < 0)
		return event;
	drain->clocks[i] =
		bpf_program__attach_perf_event(drain->programs[program], event);
	if (drain->clocks[i])
		return 0;
	close(event);
	return -errno;
}

int drain_attach_clock(struct drain *drain, const char *program, unsigned hertz)
{
	int at = program_index(drain, program), error = 0;

	if (at < 0)
		return at;
	log_start();
	stop_clocks(drain);
	drain->clocks = calloc(drain->cpus.count, sizeof(*drain->clocks));
	if (!drain->clocks)
		return -ENOMEM;
	for (int i = 0; !error && i < drain->cpus.count; i++)
		error = attach_clock(drain, at, i, hertz);
	if (error)
		stop_clocks(drain);
	return error;
}

static int program_info(const struct drain *drain, const char *program,
			struct bpf_prog_info *ret)
{
	__u32 length = sizeof(*ret);
	int i = program_index(drain, program);

	return i < 0 ? i :
		       bpf_obj_get_info_by_fd(
			       bpf_program__fd(drain->programs[i]), ret,
			       &length);
}

int drain_cost(struct drain *drain, const char *program, uint64_t *runs,
	       uint64_t *nanoseconds)
{
	struct bpf_prog_info info = {};
	int error = program_info(drain, program, &info);

	if (error)
		return error;
	*runs = info.run_cnt;
	*nanoseconds = info.run_time_ns;
	return 0;
}

int drain_misses(struct drain *drain, const char *program, uint64_t *ret)
{
	struct bpf_prog_info info = {};
	int error = program_info(drain, program, &info);

	*ret = info.recursion_misses;
	return error;
}

int drain_statistics(void)
{
	return bpf_enable_stats(BPF_STATS_RUN_TIME);
}
