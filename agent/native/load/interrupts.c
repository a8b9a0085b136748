/* interrupts.c - SIGINT and SIGTERM, counted. */
#include "interrupts.h"

volatile sig_atomic_t interrupts;

static void on_signal(int signal)
{
	(void)signal;
	interrupts++;
}

/* Without SA_RESTART: a blocking receive must return. */
void interrupts_catch(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}
