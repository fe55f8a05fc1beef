/* What happens when a small allocation fails (ir/arena.h), for programs that need other
 * behaviour. */
#ifndef COMPRESS_IR_MEMORY_FAILURE_H
#define COMPRESS_IR_MEMORY_FAILURE_H

/* Calls `handler` instead of printing the message; if it returns, the program still ends
 * with the exit code of STATUS_MEMORY. NULL restores the message. For the whole process;
 * not to be called while another thread allocates. */
void memory_on_failure(void (*handler)(void *self), void *self);

#endif
