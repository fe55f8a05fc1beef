/* The loops of one set. */
#include "exec/loops/loops.h"

const Loops REAL_FN(loops) = {
#define LOOP(type, name, arguments) .name = REAL_FN(name),
#include "exec/loops/loops.def"
#undef LOOP
};
