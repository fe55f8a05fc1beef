/* What happens when small memory runs out (ir/arena.h), for programs that want it
 * otherwise. */
#ifndef COMPRESS_IR_MEMORY_FAILURE_H
#define COMPRESS_IR_MEMORY_FAILURE_H

/* Calls `handler` in place of printing the message; if it returns, the program ends with
 * the exit code of STATUS_MEMORY all the same. NULL: the message again. For the whole
 * process; not to be called while another thread allocates. */
void memory_on_failure(void (*handler)(void *self), void *self);

#endif
