/*
 * drain_module.c - the `_drain` module: its functions, and its one type.
 */
#include "drain.h"
#include "drain_type.h"
#include "kernel_types.h"

#include <errno.h>
#include <sys/timex.h>

static PyObject *statistics(PyObject *module, PyObject *unused)
{
	int descriptor = drain_statistics();

	(void)module;
	(void)unused;
	if (descriptor < 0)
		return raise_errno(descriptor, "statistics");
	return PyLong_FromLong(descriptor);
}

static PyObject *kernel_has(PyObject *module, PyObject *arguments)
{
	const char *kind, *name;
	int found, least = 0;

	(void)module;
	if (!PyArg_ParseTuple(arguments, "ss|i", &kind, &name, &least))
		return NULL;
	found = kernel_types_have(kind, name, least);
	if (found < 0)
		return raise_errno(found, "/sys/kernel/btf/vmlinux");
	return PyBool_FromLong(found);
}

static PyObject *kernel_enum(PyObject *module, PyObject *arguments)
{
	PyObject *labels = PyDict_New();
	const char *name, *label;
	long long value;
	int error = 0;

	(void)module;
	if (!PyArg_ParseTuple(arguments, "s", &name))
		Py_CLEAR(labels);
	for (unsigned int i = 0; labels; i++) {
		PyObject *number;

		error = kernel_types_enumerator(name, i, &label, &value);
		if (error)
			break;
		number = PyLong_FromLongLong(value);
		if (!number || PyDict_SetItemString(labels, label, number))
			Py_CLEAR(labels);
		Py_XDECREF(number);
	}
	if (labels && error != -ENOENT) {
		Py_CLEAR(labels);
		return raise_errno(error, "/sys/kernel/btf/vmlinux");
	}
	return labels;
}

/* The kernel's frequency correction is in 2^-16 ppm. */
static PyObject *clock_error(PyObject *module, PyObject *unused)
{
	struct timex clock = { 0 };
	int state = adjtimex(&clock);

	(void)module;
	(void)unused;
	if (state < 0)
		return raise_errno(-errno, "adjtimex");
	return Py_BuildValue("illl", state != TIME_ERROR, clock.maxerror,
			     clock.esterror, clock.freq * 1000 / 65536);
}

static PyMethodDef module_methods[] = {
	{ "statistics", statistics, METH_NOARGS,
	  "switch program statistics on; they are off when the fd is closed" },
	{ "clock_error", clock_error, METH_NOARGS,
	  "of CLOCK_REALTIME: synchronised, largest and estimated error in us, "
	  "ppb" },
	{ "kernel_has", kernel_has, METH_VARARGS,
	  "kernel_has('tracepoint'|'function'|'struct', name, arguments=0)" },
	{ "kernel_enum", kernel_enum, METH_VARARGS,
	  "kernel_enum(name) -> {label: value}, empty where there is none" },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_drain",
	.m_size = 0,
	.m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__drain(void)
{
	PyObject *self = PyModule_Create(&module);
	PyObject *type = drain_type();

	if (!self || !type || PyModule_AddObjectRef(self, "Drain", type))
		Py_CLEAR(self);
	Py_XDECREF(type);
	return self;
}
