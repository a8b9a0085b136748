/*
 * drain_type.h - the parts of the `_drain` module.
 */
#ifndef LATPROF_DRAIN_TYPE_H
#define LATPROF_DRAIN_TYPE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The type `Drain`, a new reference; NULL with an exception. */
PyObject *drain_type(void);

/* OSError(errno, libbpf's words, what it was about). Always NULL. */
PyObject *raise_errno(int error, const char *what);

#endif
