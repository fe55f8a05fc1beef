/* What a plan foretells of a run's memory, against what the run took. */
#ifndef COMPRESS_TESTS_SUPPORT_FORETOLD_H
#define COMPRESS_TESTS_SUPPORT_FORETOLD_H

#include <stddef.h>

/* Plans `recipe` with the built program on two threads; file `scratch` is written. Fails
 * unless what it foretells is at least `peak`, the bytes that a run took, and at most
 * half as much again and 100 MB: models are counted whole where versions share parts. */
void check_foretold(const char *recipe, const char *scratch, size_t peak);

#endif
