#include "kernel_types.h"
#include "log.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int kind_number(const char *kind)
{
	if (!strcmp(kind, "tracepoint"))
		return BTF_KIND_TYPEDEF;
	if (!strcmp(kind, "function"))
		return BTF_KIND_FUNC;
	return BTF_KIND_STRUCT;
}

/* A tracepoint is a typedef of a pointer to void (void *context, arguments). */
static int tracepoint_arguments(const struct btf *btf, int id)
{
	const struct btf_type *type = btf__type_by_id(btf, id);

	type = btf__type_by_id(btf, type->type);
	return btf_vlen(btf__type_by_id(btf, type->type)) - 1;
}

static const struct btf *kernel_types(void)
{
	static struct btf *kernel;

	log_start();
	if (!kernel)
		kernel = btf__load_vmlinux_btf();
	return kernel;
}

int kernel_types_have(const char *kind, const char *name, int arguments)
{
	const struct btf *kernel = kernel_types();
	int number = kind_number(kind), id;
	char type_name[128];

	if (!kernel)
		return -errno;
	snprintf(type_name, sizeof(type_name), "%s%s",
		 number == BTF_KIND_TYPEDEF ? "btf_trace_" : "", name);
	id = btf__find_by_name_kind(kernel, type_name, number);
	if (id <= 0 || !arguments)
		return id > 0;
	return tracepoint_arguments(kernel, id) >= arguments;
}

int kernel_types_enumerator(const char *name, unsigned int i, const char **ret,
			    long long *value)
{
	const struct btf *kernel = kernel_types();
	const struct btf_type *type;
	int id;

	if (!kernel)
		return -errno;
	id = btf__find_by_name_kind(kernel, name, BTF_KIND_ENUM);
	type = id > 0 ? btf__type_by_id(kernel, id) : NULL;
	if (!type || i >= btf_vlen(type))
		return -ENOENT;
	*ret = btf__name_by_offset(kernel, btf_enum(type)[i].name_off);
	*value = btf_kflag(type) ? btf_enum(type)[i].val :
				   (__u32)btf_enum(type)[i].val;
	return 0;
}
