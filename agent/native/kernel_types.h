/*
 * kernel_types.h - what the running kernel has, by its BTF.
 */
#ifndef LATPROF_KERNEL_TYPES_H
#define LATPROF_KERNEL_TYPES_H

/* 1 where the running kernel's BTF has the type, and for a tracepoint gives at
 * least so many arguments; 0 where not.
 * -errno where there is no BTF. `kind` is tracepoint, function or struct. */
int kernel_types_have(const char *kind, const char *name, int arguments);

/* The i-th enumerator of an enum of the running kernel. -ENOENT: there is none,
 * or no such enum. The name is owned by the kernel's types. */
int kernel_types_enumerator(const char *name, unsigned int i, const char **ret,
			    long long *value);

#endif
