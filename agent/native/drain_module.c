/*
 * drain_module.c - the `_drain` module: its functions, and its one type.
 */
#include "drain.h"
#include "drain_type.h"
#include "kernel_types.h"

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

static PyMethodDef module_methods[] = {
	{ "statistics", statistics, METH_NOARGS,
	  "switch program statistics on; they are off when the fd is closed" },
	{ "kernel_has", kernel_has, METH_VARARGS,
	  "kernel_has('tracepoint'|'function'|'struct', name, arguments=0)" },
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
