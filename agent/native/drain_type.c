/*
 * drain_type.c - struct drain as a Python type.
 */
#define PY_SSIZE_T_CLEAN
#include "drain_type.h"
#include "drain.h"
#include "histograms.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
	PyObject_HEAD struct drain *drain;
} Drain;

PyObject *raise_errno(int error, const char *what)
{
	const char *log = log_text();
	PyObject *arguments = Py_BuildValue(
		"(iss)", -error, log[0] ? log : strerror(-error), what);

	if (arguments)
		PyErr_SetObject(PyExc_OSError, arguments);
	Py_XDECREF(arguments);
	return NULL;
}

static PyObject *none_or_errno(int error, const char *what)
{
	if (error < 0)
		return raise_errno(error, what);
	Py_RETURN_NONE;
}

static int is_open(Drain *self)
{
	if (self->drain)
		return 1;
	PyErr_SetString(PyExc_ValueError, "the object is closed");
	return 0;
}

static int Drain_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
	Drain *self = (Drain *)object;
	const char *path;
	int error;

	(void)keywords;
	if (!PyArg_ParseTuple(arguments, "s", &path))
		return -1;
	error = drain_open(path, &self->drain);
	if (error < 0) {
		raise_errno(error, path);
		return -1;
	}
	return 0;
}

static PyObject *Drain_close(PyObject *object, PyObject *unused)
{
	Drain *self = (Drain *)object;

	(void)unused;
	drain_close(self->drain);
	self->drain = NULL;
	Py_RETURN_NONE;
}

static void Drain_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	drain_close(((Drain *)object)->drain);
	release(object);
	Py_DECREF(type);
}

static PyObject *Drain_programs(PyObject *object, PyObject *unused)
{
	Drain *self = (Drain *)object;
	PyObject *list = PyList_New(0);
	const char *name;

	(void)unused;
	if (!is_open(self))
		Py_CLEAR(list);
	for (size_t i = 0; list && (name = drain_program(self->drain, i));
	     i++) {
		PyObject *text = PyUnicode_FromString(name);

		if (!text || PyList_Append(list, text))
			Py_CLEAR(list);
		Py_XDECREF(text);
	}
	return list;
}

static PyObject *Drain_enable(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *program;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &program))
		return NULL;
	return none_or_errno(drain_enable(self->drain, program, true), program);
}

static PyObject *Drain_set_options(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	Py_buffer bytes;
	int error;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "y*", &bytes))
		return NULL;
	error = drain_set_options(self->drain, bytes.buf, bytes.len);
	PyBuffer_Release(&bytes);
	return none_or_errno(error, "options");
}

static PyObject *Drain_set_constant(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	unsigned int value;
	const char *name;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "sI", &name, &value))
		return NULL;
	return none_or_errno(drain_set_constant(self->drain, name, value),
			     name);
}

static PyObject *Drain_set_entries(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	unsigned int entries;
	const char *map;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "sI", &map, &entries))
		return NULL;
	return none_or_errno(drain_set_entries(self->drain, map, entries), map);
}

static PyObject *bytes_and_free(void *area, size_t size)
{
	PyObject *bytes = PyBytes_FromStringAndSize(area, size);

	free(area);
	return bytes;
}

static PyObject *Drain_globals(PyObject *object, PyObject *unused)
{
	Drain *self = (Drain *)object;
	size_t size;
	void *area;
	int error;

	(void)unused;
	if (!is_open(self))
		return NULL;
	error = drain_globals(self->drain, &area, &size);
	if (error)
		return raise_errno(error, "globals");
	return bytes_and_free(area, size);
}

static PyObject *Drain_counters(PyObject *object, PyObject *unused)
{
	Drain *self = (Drain *)object;
	uint64_t *sums;
	size_t count;
	int error;

	(void)unused;
	if (!is_open(self))
		return NULL;
	error = drain_counters(self->drain, &sums, &count);
	if (error)
		return raise_errno(error, "counters");
	return bytes_and_free(sums, count * sizeof(*sums));
}

static PyObject *Drain_size(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *name;
	Py_ssize_t bytes;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "sn", &name, &bytes))
		return NULL;
	return none_or_errno(drain_size(self->drain, name, bytes), name);
}

static PyObject *Drain_load(PyObject *object, PyObject *unused)
{
	Drain *self = (Drain *)object;

	(void)unused;
	if (!is_open(self))
		return NULL;
	return none_or_errno(drain_load(self->drain), "load");
}

static PyObject *Drain_attach(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *program;
	int cgroup = -1;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "s|i", &program, &cgroup))
		return NULL;
	return none_or_errno(drain_attach(self->drain, program, cgroup),
			     program);
}

static PyObject *Drain_detach(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *program = NULL;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "|s", &program))
		return NULL;
	return none_or_errno(program ? drain_detach(self->drain, program) :
				       drain_detach_all(self->drain),
			     "detach");
}

static PyObject *Drain_iterate(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *program, *map = NULL;
	void *bytes = NULL;
	size_t size = 0;
	int error;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "s|s", &program, &map))
		return NULL;
	error = drain_iterate(self->drain, program, map, &bytes, &size);
	if (error)
		return raise_errno(error, program);
	return bytes_and_free(bytes, size);
}

static PyObject *Drain_put(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *map;
	Py_buffer key, value;
	int error;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "sy*y*", &map, &key, &value))
		return NULL;
	error = drain_put(self->drain, map, key.buf, key.len, value.buf,
			  value.len);
	PyBuffer_Release(&key);
	PyBuffer_Release(&value);
	return none_or_errno(error, map);
}

static PyObject *Drain_take(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	PyObject *value;
	const char *map;
	Py_buffer key;
	ssize_t size;
	int error;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "sy*", &map, &key))
		return NULL;
	size = drain_value_size(self->drain, map);
	value = PyBytes_FromStringAndSize(NULL, size < 0 ? 0 : size);
	error = size < 0 ? (int)size : 0;
	if (value && !error)
		error = drain_take(self->drain, map, key.buf, key.len,
				   PyBytes_AsString(value), size);
	PyBuffer_Release(&key);
	if (!value || !error)
		return value;
	Py_DECREF(value);
	return raise_errno(error, map);
}

static PyObject *Drain_clear(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *map;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &map))
		return NULL;
	return none_or_errno(drain_clear(self->drain, map), map);
}

static PyObject *Drain_grow(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	struct histograms *found;
	unsigned int block;
	const char *map;
	int error;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "sI", &map, &block))
		return NULL;
	error = drain_histograms(self->drain, map, &found);
	if (!error)
		error = histograms_grow(found, block);
	return none_or_errno(error, map);
}

static PyObject *Drain_changes(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	struct histograms *found;
	struct changes changes;
	unsigned int count;
	PyObject *both;
	Py_buffer first;
	const char *map;
	int error;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "sy*I", &map, &first, &count))
		return NULL;
	error = drain_histograms(self->drain, map, &found);
	if (!error)
		error = histograms_changes(found, first.buf,
					   first.len / sizeof(uint32_t), count,
					   &changes);
	PyBuffer_Release(&first);
	if (error)
		return raise_errno(error, map);
	both = Py_BuildValue(
		"(y#y#)", changes.buckets ? (char *)changes.buckets : "",
		(Py_ssize_t)(changes.bucket_count * sizeof(*changes.buckets)),
		changes.sums ? (char *)changes.sums : "",
		(Py_ssize_t)(changes.sum_count * sizeof(*changes.sums)));
	changes_free(&changes);
	return both;
}

static PyObject *Drain_entries(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	size_t key_size, value_size;
	void *keys, *values;
	const char *map;
	PyObject *both;
	ssize_t count;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &map))
		return NULL;
	count = drain_entries(self->drain, map, &keys, &key_size, &values,
			      &value_size);
	if (count < 0)
		return raise_errno((int)count, map);
	both = Py_BuildValue("(y#y#)", keys, (Py_ssize_t)(count * key_size),
			     values, (Py_ssize_t)(count * value_size));
	free(keys);
	free(values);
	return both;
}

static PyObject *size_or_errno(ssize_t size, const char *what)
{
	if (size < 0)
		return raise_errno((int)size, what);
	return PyLong_FromSsize_t(size);
}

static PyObject *Drain_descriptor(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *map;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &map))
		return NULL;
	return size_or_errno(drain_descriptor(self->drain, map), map);
}

static PyObject *Drain_waiting(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *name;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &name))
		return NULL;
	return size_or_errno(drain_waiting(self->drain, name), name);
}

static PyObject *Drain_read(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *name;
	Py_buffer buffer;
	ssize_t size;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "sw*", &name, &buffer))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	size = drain_read(self->drain, name, buffer.buf, buffer.len);
	Py_END_ALLOW_THREADS;
	PyBuffer_Release(&buffer);
	return size_or_errno(size, name);
}

static PyObject *since_by_cpu(const struct drain *drain, const uint64_t *since)
{
	PyObject *ret = PyDict_New();
	const int *cpus;
	int count;

	cpus = drain_cpus(drain, &count);
	for (int i = 0; ret && i < count; i++) {
		PyObject *cpu = PyLong_FromLong(cpus[i]);
		PyObject *t_ns = PyLong_FromUnsignedLongLong(since[i]);

		if (!cpu || !t_ns || PyDict_SetItem(ret, cpu, t_ns))
			Py_CLEAR(ret);
		Py_XDECREF(cpu);
		Py_XDECREF(t_ns);
	}
	return ret;
}

static PyObject *Drain_snapshot(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	PyObject *records, *by_cpu;
	uint64_t *since;
	const char *name;
	size_t size;
	void *area;
	int error;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &name))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	error = drain_snapshot(self->drain, name, &area, &size, &since);
	Py_END_ALLOW_THREADS;
	if (error)
		return raise_errno(error, name);
	records = bytes_and_free(area, size);
	by_cpu = since_by_cpu(self->drain, since);
	free(since);
	if (records && by_cpu)
		return Py_BuildValue("(NN)", records, by_cpu);
	Py_XDECREF(records);
	Py_XDECREF(by_cpu);
	return NULL;
}

static PyObject *Drain_attach_clock(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *program;
	unsigned int hertz;

	if (!is_open(self) ||
	    !PyArg_ParseTuple(arguments, "sI", &program, &hertz))
		return NULL;
	return none_or_errno(drain_attach_clock(self->drain, program, hertz),
			     program);
}

static PyObject *Drain_cost(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	uint64_t runs = 0, nanoseconds = 0;
	const char *program;
	int error;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &program))
		return NULL;
	error = drain_cost(self->drain, program, &runs, &nanoseconds);
	if (error)
		return raise_errno(error, program);
	return Py_BuildValue("(KK)", runs, nanoseconds);
}

static PyObject *Drain_misses(PyObject *object, PyObject *arguments)
{
	Drain *self = (Drain *)object;
	const char *program;
	uint64_t misses;
	int error;

	if (!is_open(self) || !PyArg_ParseTuple(arguments, "s", &program))
		return NULL;
	error = drain_misses(self->drain, program, &misses);
	if (error)
		return raise_errno(error, program);
	return PyLong_FromUnsignedLongLong(misses);
}

static PyMethodDef drain_methods[] = {
	{ "programs", Drain_programs, METH_NOARGS, "names of the programs" },
	{ "enable", Drain_enable, METH_VARARGS, "load this program, too" },
	{ "set_options", Drain_set_options, METH_VARARGS,
	  "set_options(bytes), also while the programs run" },
	{ "globals", Drain_globals, METH_NOARGS, "a copy of the variables" },
	{ "counters", Drain_counters, METH_NOARGS,
	  "what all CPUs counted together" },
	{ "set_constant", Drain_set_constant, METH_VARARGS,
	  "set_constant(name, value) of the programs, before the load" },
	{ "set_entries", Drain_set_entries, METH_VARARGS,
	  "set_entries(map, entries), before the load" },
	{ "descriptor", Drain_descriptor, METH_VARARGS,
	  "descriptor(map) -> of a loaded map, to be closed" },
	{ "set_ring_bytes", Drain_size, METH_VARARGS, "bytes per CPU" },
	{ "load", Drain_load, METH_NOARGS, "load what is enabled" },
	{ "attach", Drain_attach, METH_VARARGS,
	  "attach(program, cgroup=-1): a descriptor for those of cgroups" },
	{ "attach_clock", Drain_attach_clock, METH_VARARGS,
	  "attach_clock(program, hertz) to each CPU" },
	{ "snapshot", Drain_snapshot, METH_VARARGS,
	  "snapshot(ring) -> records of one that is written over, as bytes, "
	  "and by "
	  "CPU since when all are there (0: always)" },
	{ "detach", Drain_detach, METH_VARARGS,
	  "detach a program, or all of them" },
	{ "iterate", Drain_iterate, METH_VARARGS,
	  "iterate(program, map=None) to its end -> what it wrote" },
	{ "put", Drain_put, METH_VARARGS, "put(map, key, value)" },
	{ "take", Drain_take, METH_VARARGS,
	  "take(map, key) -> the value, whose entry is removed" },
	{ "clear", Drain_clear, METH_VARARGS,
	  "clear(map): remove all entries of a hash map" },
	{ "grow", Drain_grow, METH_VARARGS,
	  "grow(map, block): make a block of histograms" },
	{ "changes", Drain_changes, METH_VARARGS,
	  "changes(map, first, count) -> of `count` histograms from each of "
	  "`first` (u4) on: histogram, bucket and count, as u4, since the last "
	  "time; and histogram and sum, as u8" },
	{ "entries", Drain_entries, METH_VARARGS,
	  "entries(map) -> keys and values of a hash map, as bytes" },
	{ "waiting", Drain_waiting, METH_VARARGS,
	  "waiting(ring) -> how many bytes read() gives now, at most" },
	{ "read", Drain_read, METH_VARARGS,
	  "read(ring, buffer) -> bytes copied; whole records, never blocks" },
	{ "cost", Drain_cost, METH_VARARGS, "(runs, nanoseconds)" },
	{ "misses", Drain_misses, METH_VARARGS,
	  "how often a program was skipped, as it ran on that CPU already" },
	{ "close", Drain_close, METH_NOARGS, "detach and unload everything" },
	{ NULL, NULL, 0, NULL },
};

static PyType_Slot drain_slots[] = {
	{ Py_tp_init, Drain_init },
	{ Py_tp_dealloc, Drain_dealloc },
	{ Py_tp_methods, drain_methods },
	{ Py_tp_doc, "The probes of one object file." },
	{ 0, NULL },
};

static PyType_Spec drain_spec = {
	.name = "latprof_agent._drain.Drain",
	.basicsize = sizeof(Drain),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = drain_slots,
};

PyObject *drain_type(void)
{
	return PyType_FromSpec(&drain_spec);
}
