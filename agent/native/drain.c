#include "drain.h"
#include "log.h"
#include "ring.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PROGRAMS 64
#define MAX_RINGS 16
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
	bool loaded;
};

static void find_programs(struct drain *drain)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, drain->object) {
		if (drain->program_count == MAX_PROGRAMS)
			return;
		bpf_program__set_autoload(program, false);
		drain->programs[drain->program_count++] = program;
	}
}

/* All arrays that user space may map, but for the object's own variables. */
static bool is_ring(const struct bpf_map *map)
{
	return bpf_map__type(map) == BPF_MAP_TYPE_ARRAY &&
	       bpf_map__map_flags(map) & BPF_F_MMAPABLE &&
	       !bpf_map__is_internal(map);
}

static void find_rings(struct drain *drain)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, drain->object) {
		struct ring *ring = &drain->rings[drain->ring_count];

		if (!is_ring(map) || drain->ring_count == MAX_RINGS)
			continue;
		ring->map = map;
		ring->cpus = &drain->cpus;
		ring_size(ring, DEFAULT_RING_BYTES);
		drain->ring_count++;
	}
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
	if (error) {
		free(drain->cpus.numbers);
		free(drain);
		return error;
	}
	find_programs(drain);
	find_rings(drain);
	*ret = drain;
	return 0;
}

int drain_detach_all(struct drain *drain)
{
	int error = 0;

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
		const char *name = bpf_map__name(map);
		size_t length = strlen(name), tail = strlen(suffix);

		if (length >= tail && !strcmp(name + length - tail, suffix))
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

int drain_iterate(struct drain *drain, const char *program, void **ret,
		  size_t *size)
{
	int i = program_index(drain, program), iterator, error;
	struct bpf_link *link;
	char *bytes = NULL;

	if (i < 0)
		return i;
	log_start();
	link = bpf_program__attach(drain->programs[i]);
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
	return bpf_map__update_elem(found, key, key_size, value, value_size,
				    BPF_ANY);
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

int drain_cost(struct drain *drain, const char *program, uint64_t *runs,
	       uint64_t *nanoseconds)
{
	struct bpf_prog_info info = {};
	__u32 length = sizeof(info);
	int i = program_index(drain, program), error;

	if (i < 0)
		return i;
	error = bpf_obj_get_info_by_fd(bpf_program__fd(drain->programs[i]),
				       &info, &length);
	if (error)
		return error;
	*runs = info.run_cnt;
	*nanoseconds = info.run_time_ns;
	return 0;
}

int drain_statistics(void)
{
	return bpf_enable_stats(BPF_STATS_RUN_TIME);
}
