/*
 * rows.c - any columns, as lines of CSV: what printf writes, byte for byte.
 *
 * Includes the source: what is tried is below what Python calls.
 */
#include "rows_module.c"

#include <inttypes.h>

enum { COLUMNS = 5, ROWS = 64, TEXTS = 4, OUT_MAX = 1 << 20 };

static char out[OUT_MAX], expected[OUT_MAX];
static size_t out_bytes;

ssize_t world_send(const void *bytes, size_t size)
{
	size_t count = size > 1 && world_byte() & 1 ? size / 2 : size;

	MUST(out_bytes + count <= OUT_MAX);
	memcpy(out + out_bytes, bytes, count);
	out_bytes += count;
	return (ssize_t)count;
}

/* Small and large ones, and those at the ends of the range. */
static int64_t value(void)
{
	uint64_t ret = 0;
	uint8_t kind = world_byte();

	if (kind < 16)
		return INT64_MIN + kind;
	if (kind < 32)
		return INT64_MAX - (kind - 16);
	for (int i = 0; i < kind % 9; i++)
		ret = ret << 8 | world_byte();
	return (int64_t)ret;
}

static char *print_cell(char *at, const struct column *column, int row)
{
	char *end = expected + sizeof(expected);
	int32_t index;

	if (!column->texts) {
		int64_t n = ((int64_t *)column->buffer.buf)[row];

		return n == INT64_MIN ?
			       at :
			       at + snprintf(at, end - at, "%" PRId64, n);
	}
	index = ((int32_t *)column->buffer.buf)[row];
	if (index < 0 || index >= column->text_count)
		return at;
	return at + snprintf(at, end - at, "%s", column->text[index]);
}

static void check(const struct column *columns, int count, int rows)
{
	char *at = expected;

	for (int row = 0; row < rows; row++)
		for (int i = 0; i < count; i++) {
			at = print_cell(at, &columns[i], row);
			*at++ = i + 1 < count ? ',' : '\n';
		}
	MUST(out_bytes == (size_t)(at - expected));
	MUST(!memcmp(out, expected, out_bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	static const char *texts[TEXTS] = { "", "a", "10.0.0.1:8080",
					    "a long name of a process" };
	static Py_ssize_t lengths[TEXTS];
	int64_t numbers[COLUMNS][ROWS];
	struct column columns[COLUMNS] = {};
	int count, rows;

	world_begin(input, size);
	count = 1 + (int)world_number(COLUMNS - 1);
	rows = (int)world_number(ROWS);
	for (int i = 0; i < count; i++) {
		columns[i].buffer.buf = numbers[i];
		if (world_byte() & 1) {
			columns[i].texts = Py_None;
			columns[i].text = texts;
			columns[i].length = lengths;
			columns[i].text_count = TEXTS;
		}
		for (int k = 0; k < TEXTS; k++) {
			lengths[k] = (Py_ssize_t)strlen(texts[k]);
			if (columns[i].texts && lengths[k] > columns[i].longest)
				columns[i].longest = lengths[k];
		}
		for (int row = 0; row < rows; row++)
			if (columns[i].texts)
				((int32_t *)numbers[i])[row] =
					(int8_t)world_byte();
			else
				numbers[i][row] = value();
	}
	out_bytes = 0;
	MUST(!write_rows(0, columns, count, rows));
	check(columns, count, rows);
	return 0;
}
