/*
 * named_functions.c - says where its functions are, and waits to be killed. As
 * a JIT does it has code in memory of its own, too: a call there and back.
 *
 *   named_functions          name, address and how many bytes, a line each
 *   named_functions again    first becomes itself anew: another image
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* As g++ and rustc would call them: app::queue::push(int), app::read. */
__attribute__((noinline)) int push(int n) __asm__("_ZN3app5queue4pushEi");
__attribute__((noinline)) int push(int n)
{
	return n * 3;
}

__attribute__((noinline)) int
rust_read(int n) __asm__("_ZN3app4read17h0123456789abcdefE");
__attribute__((noinline)) int rust_read(int n)
{
	return push(n) + 1;
}

static void tell(const char *name, const void *at)
{
	printf("%s %lu\n", name, (unsigned long)at);
}

int main(int count, char **words)
{
	unsigned char *made =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (count > 1)
		execl("/proc/self/exe", words[0], (char *)NULL);
	memset(made, 0x90, 4096);
	made[16] = 0xe8; /* call made + 64 */
	memcpy(made + 17, &(int32_t){ 64 - 21 }, 4);
	tell("push", push);
	tell("rust_read", rust_read);
	tell("main", main);
	tell("made", made);
	tell("puts", puts);
	fflush(stdout);
	pause();
	return rust_read(count);
}
